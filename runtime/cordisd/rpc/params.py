"""The params of each method, validated at the edge. `rpc.discover` shows a field by the string below it."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from cordisd.agent.limits import LimitsConfig
from cordisd.errors import InvalidParamsError, nearest
from cordisd.events import OutcomeClass
from cordisd.settings import PositiveInt, PositiveSeconds

MAX_COMPLAINTS: Final = 10
"""Faults of one request that its error tells of one by one."""

SessionId = Annotated[str, Field(min_length=1, max_length=255)]
"""No longer than a file name, which it becomes."""
Name = Annotated[str, Field(min_length=1, max_length=1000)]
"""Of a preset, a provider or a model, or what a client calls something of its own."""
Identity = Annotated[str, Field(max_length=1000)]
TokenLimit = Annotated[int, Field(ge=1, le=2**53 - 1)]


MAX_NESTING: Final = 100


class Params(BaseModel):
    """Frozen and strict; unknown fields are errors, so that a misspelt one is never ignored."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        alias_generator=to_camel,
        populate_by_name=False,
        defer_build=True,  # 0.3 ms each, and most daemons use few of them
    )


def check_nesting(field: str, value: Any) -> None:
    """Go on only if objects and arrays lie at most `MAX_NESTING` deep in each other: logs have to hold them.

    Raises:
        InvalidParamsError: they lie deeper.
    """
    level: list[Any] = [value]
    for _ in range(MAX_NESTING):
        level = [
            inner
            for outer in level
            if isinstance(outer, (dict, list))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return
    raise InvalidParamsError(f"{field} must not be nested deeper than {MAX_NESTING} levels")


class ContentBlock(BaseModel):
    """A block of a prompt: an object with a `type`; its other fields are kept as they are."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)
    type: Annotated[str, Field(min_length=1)]
    """`text`, with the string `text`, or another that the model takes; never what is the model's to say."""

    @model_validator(mode="after")
    def _is_a_users(self) -> Self:
        if self.type in ("tool-call", "tool-result", "reasoning"):
            raise ValueError(f"a prompt cannot hold a {self.type} block")
        if self.type == "text" and not isinstance((self.model_extra or {}).get("text"), str):
            raise ValueError("a text block needs a string text")
        return self


class Nothing(Params):
    """No params."""


class OfSession(Params):
    """Params of a method on one session."""

    session_id: SessionId
    """The session's id, as its maker chose it."""


class CreateSession(Params):
    """`session/create`."""

    session_id: SessionId | None = None
    """An id that no session has, live or stored; the daemon makes one up without it."""
    preset: Name | None = None
    """The agent; without it that of `initialize`, else the daemon's default."""
    require_preset: Name | None = None
    """The digest, `sha256:…`, that the agent must have; no session is made of another."""
    cwd: Annotated[str, Field(min_length=1)] | None = None
    """Where its tools work: an existing directory, relative to that of `initialize`."""
    provider: Name | None = None
    """The model's provider; without it that of `initialize`."""
    model: Name | None = None
    """The model; without it that of `initialize`."""
    max_tokens: TokenLimit | None = None
    """Most tokens of one answer of the model; without it that of `initialize`."""
    limits: LimitsConfig | None = None
    """What ends its runs early; `session/get` tells which limits hold."""
    rollout_id: Identity | None = None
    """What the client calls this rollout; kept in the log's header."""
    group_id: Identity | None = None
    """What the client calls the rollouts that belong together; kept in the log's header."""
    attempt: Annotated[int, Field(ge=0)] | None = None
    """Which try of the rollout it is; kept in the log's header."""


class Attach(OfSession):
    """`session/attach`."""

    from_: Annotated[int, Field(ge=0)] | None = Field(None, alias="from")
    """The `seq` of the first event to send; without it, unless they come already, the next one to happen."""


class SelectPreset(OfSession):
    """`preset/select`."""

    preset: Name
    """Name of a preset of `preset/list`."""


class RenderPreset(Params):
    """`preset/render`."""

    preset: Name | None = None
    """The agent; without it that of `initialize`, else the daemon's default."""
    prompt: str = ""
    """The user's first message."""
    cwd: Annotated[str, Field(min_length=1)] | None = None
    """The working directory that the prompt may speak of, relative to that of `initialize`."""
    provider: Name | None = None
    """The model's provider; without it that of `initialize`."""
    model: Name | None = None
    """The model; without it that of `initialize`."""
    max_tokens: TokenLimit | None = None
    """Most tokens of one answer of the model; without it that of `initialize`."""


class GetProfile(Params):
    """`profile/get`: exactly one of the two."""

    session_id: SessionId | None = None
    """A live session whose agent is frozen; or else give `preset`."""
    preset: Name | None = None
    """A frozen preset; or else give `sessionId`."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.session_id is None) == (self.preset is None):
            raise ValueError("give either sessionId or preset")
        return self


class Prompt(OfSession):
    """`session/prompt`."""

    content_blocks: Annotated[list[ContentBlock], Field(min_length=1)]
    """The user's message."""
    idempotency_key: Name | None = None
    """A repeated key returns the first `messageId` and queues nothing."""
    max_turns: PositiveInt | None = None
    """Most model requests of this run."""
    timeout_seconds: PositiveSeconds | None = None
    """Most time that this run may take."""


class Steer(OfSession):
    """`session/steer`."""

    content_blocks: Annotated[list[ContentBlock], Field(min_length=1)]
    """The user's message."""


class Cancel(OfSession):
    """`session/cancel`."""

    queue: Literal["drop", "keep"] = "drop"
    """What becomes of the prompts that wait behind the running turn."""


class SetDirectory(OfSession):
    """`session/working-directory/set`."""

    path: str
    """An existing directory; a relative path starts at the session's current one."""


class ReadEvents(OfSession):
    """`session/events`."""

    from_: Annotated[int, Field(ge=0)] = Field(0, alias="from")
    """The `seq` of the first event wanted."""
    limit: Annotated[int, Field(ge=1, le=10_000)] = 1000
    """Most events of one answer, which may hold fewer."""


class Fork(OfSession):
    """`session/fork`."""

    new_session_id: SessionId | None = None
    """An id that no session has, live or stored; the daemon makes one up without it."""
    at_turn: int | None = None
    """A turn that has ended: the fork goes on from there. Without it: from where the session stands."""


class Outcome(OfSession):
    """`session/outcome`."""

    class_: OutcomeClass = Field(alias="class")
    """What has become of the session, as its harness sees it."""
    reward: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """What it was worth."""
    data: dict[str, Any] | None = None
    """Whatever else is to be kept of the outcome."""


P = TypeVar("P", bound=BaseModel)


def read_params(model: type[P], method: str, params: dict[str, Any]) -> P:
    """The validated params.

    Raises:
        InvalidParamsError: naming the fields that do not fit, what is wrong with each, and the nearest field
            for an unknown one; of very many, the first.
    """
    try:
        return model.model_validate(params)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        complaints = [_complaint(one, model) for one in found[:MAX_COMPLAINTS]]
        if len(found) > MAX_COMPLAINTS:
            complaints.append(f"and {len(found) - MAX_COMPLAINTS} more faults")
        raise InvalidParamsError(f"{method}: {'; '.join(complaints)}") from None


def _complaint(error: Any, model: type[BaseModel]) -> str:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error["loc"]).lstrip(".")
    match error["type"]:
        case "missing":
            return f"missing required field {path}"
        case "extra_forbidden":
            *outer, name = error["loc"]
            known = _fields_within(model, outer)
            return f"unknown field {path}{nearest(name, known)}; allowed: {', '.join(known) or 'none'}"
        case "value_error":
            return ": ".join(filter(None, (path, error["msg"].removeprefix("Value error, "))))
        case _:
            message: str = error["msg"]
            return f"{path}: {message[:1].lower()}{message[1:]}"


def _fields_within(model: type[BaseModel], path: list[str]) -> list[str]:
    """The fields of the model that stands at `path`."""
    by_alias = {field.alias or name: field for name, field in model.model_fields.items()}
    for name in path[:1]:
        for kind in get_args(by_alias[name].annotation):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                return _fields_within(kind, path[1:])
    return list(by_alias)

"""The params of each method, validated at the edge."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from cordisd.agent.limits import LimitsConfig
from cordisd.errors import InvalidParamsError, nearest
from cordisd.settings import PositiveInt, PositiveSeconds

SessionId = Annotated[str, Field(min_length=1)]
PresetName = Annotated[str, Field(min_length=1)]
TokenLimit = Annotated[int, Field(ge=1, le=2**53 - 1)]


class Params(BaseModel):
    """Frozen and strict; unknown fields are errors, so that a misspelt one is never ignored."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, alias_generator=to_camel, populate_by_name=False
    )


class ContentBlock(BaseModel):
    """A block of a prompt: an object with a `type`; its other fields are kept as they are."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)
    type: Annotated[str, Field(min_length=1)]

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


class CreateSession(Params):
    """`session/create`."""

    session_id: SessionId | None = None
    preset: PresetName | None = None
    require_preset: PresetName | None = None
    cwd: Annotated[str, Field(min_length=1)] | None = None
    provider: Annotated[str, Field(min_length=1)] | None = None
    model: Annotated[str, Field(min_length=1)] | None = None
    max_tokens: TokenLimit | None = None
    limits: LimitsConfig | None = None
    rollout_id: str | None = None
    group_id: str | None = None
    attempt: Annotated[int, Field(ge=0)] | None = None


class SelectPreset(OfSession):
    """`preset/select`."""

    preset: PresetName


class RenderPreset(Params):
    """`preset/render`."""

    preset: PresetName | None = None
    prompt: str = ""
    cwd: Annotated[str, Field(min_length=1)] | None = None
    provider: Annotated[str, Field(min_length=1)] | None = None
    model: Annotated[str, Field(min_length=1)] | None = None
    max_tokens: TokenLimit | None = None


class GetProfile(Params):
    """`profile/get`: exactly one of the two."""

    session_id: SessionId | None = None
    preset: PresetName | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.session_id is None) == (self.preset is None):
            raise ValueError("give either sessionId or preset")
        return self


class Prompt(OfSession):
    """`session/prompt`."""

    content_blocks: Annotated[list[ContentBlock], Field(min_length=1)]
    idempotency_key: Annotated[str, Field(min_length=1)] | None = None
    max_turns: PositiveInt | None = None
    timeout_seconds: PositiveSeconds | None = None


class Steer(OfSession):
    """`session/steer`."""

    content_blocks: Annotated[list[ContentBlock], Field(min_length=1)]


class Cancel(OfSession):
    """`session/cancel`."""

    queue: Literal["drop", "keep"] = "drop"


class SetDirectory(OfSession):
    """`session/working-directory/set`."""

    path: str


P = TypeVar("P", bound=BaseModel)


def read_params(model: type[P], method: str, params: dict[str, Any]) -> P:
    """The validated params.

    Raises:
        InvalidParamsError: naming each field that does not fit, what is wrong with it, and the nearest field
            for an unknown one.
    """
    try:
        return model.model_validate(params)
    except ValidationError as error:
        complaints = [
            _complaint(one, model) for one in error.errors(include_url=False, include_context=False)
        ]
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

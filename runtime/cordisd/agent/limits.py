"""Limits of runs and sessions, as clients and compositions give them: checked here, then numbers by name."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field, ValidationError

from cordisd.agent.agent import Agent
from cordisd.agent.budget import COSTS, NOTICES, Limits, tightest
from cordisd.agent.settings import SessionLimits
from cordisd.errors import InvalidParamsError, LogCorruptError, ProfileOverrideError
from cordisd.events import JsonObject
from cordisd.kernel.scope import Scope
from cordisd.services.models import ModelRegistry
from cordisd.settings import EntryConfig, PositiveInt, PositiveSeconds

Cost = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class LimitsConfig(EntryConfig):
    """What ends a run early, and in time. A run is all that follows one user input.

    They are looked at before each model request: the tool calls of the last answer are run, and an answer
    without calls is the end of a run that has kept its limits. Only the time limits interrupt.
    """

    model_config = ConfigDict(populate_by_name=False, defer_build=True)

    max_turns: PositiveInt | None = None
    """Model requests of a run; the retries of a request count as that one. Stop reason `turn_limit`."""
    max_model_tokens: PositiveInt | None = None
    """Tokens of a run, read (cached ones too) and written. A run with a model that does not report them
    fails. Stop reason `token_limit`."""
    timeout_seconds: PositiveSeconds | None = None
    """Time of a run by the clock; what is under way when it is over is cancelled. Stop reason `timeout`."""
    max_tool_output_bytes: PositiveInt | None = None
    """Bytes of the tool results of a run. Stop reason `output_limit`."""
    max_errors: PositiveInt | None = None
    """Failed tool results in a row. Stop reason `error_limit`."""
    max_cost: Cost | None = None
    """Cost of a run by the prices in the row of its model, which must be there. Stop reason `cost_limit`."""
    max_session_turns: PositiveInt | None = None
    """User inputs of a session; those beyond are taken, and not worked on. Stop reason `session_turn_limit`.
    The limits of a session count its whole life, in earlier processes too."""
    max_session_model_tokens: PositiveInt | None = None
    """As `maxModelTokens`, for all runs of the session."""
    session_timeout_seconds: PositiveSeconds | None = None
    """As `timeoutSeconds`, for all runs of the session; the time between them does not count."""
    max_session_tool_output_bytes: PositiveInt | None = None
    """As `maxToolOutputBytes`, for all runs of the session."""
    max_session_cost: Cost | None = None
    """As `maxCost`, for all runs of the session."""
    notice_seconds: PositiveSeconds | None = None
    """Tell the model, once in a run and at its next request, when only so much of the time is left. A frozen
    agent is told nothing: from a client this is refused for one."""
    notice_turns: PositiveInt | None = None
    """Tell the model, once in a run, when only so many of its `maxTurns` are left; as `noticeSeconds`."""

    def as_limits(self) -> Limits:
        """Those that are given."""
        return self.model_dump(by_alias=True, exclude_none=True)


def limits_of(host: Scope, header: JsonObject, agent: Agent) -> Limits:
    """The limits of a session: those of the composition, and its own from its header's key `cordisd`.

    A frozen agent is shown nothing but its task (FP-3): it gets no notices from the composition.

    Raises:
        InvalidParamsError: its cost is limited, and nobody has said what its model costs.
        ProfileOverrideError: it is frozen, and notices were asked for.
        LogCorruptError: its own are none that this version can keep.
    """
    own, others = _read(header.get("limits", {})), host.find(SessionLimits)
    given = others.limits if others is not None else {}
    if agent.profile is not None:
        given = {name: value for name, value in given.items() if name not in NOTICES}
        if told := [name for name in NOTICES if name in own]:
            frozen = f'the frozen profile "{agent.profile.id}"'
            raise ProfileOverrideError(f"limits.{told[0]} would add a message to what {frozen} is shown")
    limits, config = tightest(given, own), agent.config
    prices = host.get(ModelRegistry).prices(config.provider, config.model)
    if prices is None and (unknown := [name for name in COSTS if name in limits]):
        raise InvalidParamsError(
            f"limits.{unknown[0]} cannot be kept: the composition has no prices for the model "
            f'"{config.model}" of provider "{config.provider}"; write them into the row of that provider'
        )
    return limits


def _read(written: object) -> Limits:
    if not written:
        return {}
    try:
        return LimitsConfig.model_validate(written).as_limits()
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, ("limits", *first["loc"])))
        raise LogCorruptError(
            f"the limits in the log's header cannot be kept: {place}: {first['msg']}"
        ) from None

"""How a turn ended, in the words of the log: a reason of the published set, and our finer stop reason."""

from __future__ import annotations

from typing import Final, NamedTuple

from cordisd.agent.budget import Stop
from cordisd.agent.request import ModelError
from cordisd.errors import (
    LogWriteError,
    ProfileHashMismatchError,
    ProfileOverrideError,
    ReplayMismatchError,
    UnsupportedContentError,
)
from cordisd.events import Failure, JsonObject

STOP_REASONS: Final = {
    "completed": "completed",
    "max-tokens": "max_tokens",
    "error": "error",
    "aborted": "cancelled",
    "maxTurns": "turn_limit",
    "maxModelTokens": "token_limit",
    "timeoutSeconds": "timeout",
    "maxToolOutputBytes": "output_limit",
    "maxErrors": "error_limit",
    "maxCost": "cost_limit",
    "maxSessionTurns": "session_turn_limit",
    "maxSessionModelTokens": "token_limit",
    "sessionTimeoutSeconds": "timeout",
    "maxSessionToolOutputBytes": "output_limit",
    "maxSessionCost": "cost_limit",
}
"""Our stop reason for each published kind of `turn/end` reason, and for each limit that aborted the turn."""


class Ending(NamedTuple):
    """Why a turn ended; `limit` if a limit ended it."""

    reason: JsonObject
    limit: JsonObject | None = None

    @property
    def stop_reason(self) -> str:
        """Our word for it."""
        aborted_by = self.reason.get("reason", {})
        return STOP_REASONS[aborted_by.get("limit", self.reason["kind"])]

    @property
    def is_failure(self) -> bool:
        """Whether the turn did not come to its end."""
        return self.reason["kind"] in ("error", "aborted")

    def data(self, turn: int | None) -> JsonObject:
        """The data of `turn/end`; `turn` is None for a prompt that never had one."""
        found: JsonObject = {"turn": turn, "reason": self.reason, "stopReason": self.stop_reason}
        if self.limit is not None:
            found["limit"] = self.limit
        return found


def aborted(kind: str) -> Ending:
    """The end of a turn that somebody has ended: `user`, `disposed`, …"""
    return Ending({"kind": "aborted", "reason": {"kind": kind}})


def stopped(stop: Stop) -> Ending:
    """The end of a turn at a limit; an error where it cannot be known how much was used."""
    limit = stop._asdict()
    if stop.used is not None:
        return Ending({"kind": "aborted", "reason": {"kind": "hook", "limit": stop.name}}, limit)
    text = (
        f"the limit {stop.name} of {stop.allowed:g} cannot be kept: the model did not report how many tokens "
        "an answer took, or has no price any more"
    )
    return Ending({"kind": "error", "error": {"message": text, "code": "USAGE_UNKNOWN"}}, limit)


def failed(error: Exception) -> Ending:
    """The end of a turn that could not go on."""
    match error:
        case ModelError():
            return Ending({"kind": "error", "error": error.failure})
        case LogWriteError():
            code = "LOG_WRITE_FAILED"
        case UnsupportedContentError():
            code = "UNSUPPORTED_CONTENT"
        case ProfileHashMismatchError():
            code = "PROFILE_HASH_MISMATCH"
        case ReplayMismatchError():
            code = "REPLAY_MISMATCH"
        case ProfileOverrideError():
            code = "PROFILE_OVERRIDE_REFUSED"
        case _:
            code = "UNKNOWN"
    failure: Failure = {"message": str(error) or type(error).__name__, "code": code}
    return Ending({"kind": "error", "error": failure})

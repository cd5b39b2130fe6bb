"""The shapes of the methods on what a session has logged; as `shapes`, they describe and do not validate."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from cordisd.events import JsonObject, OutcomeClass
from cordisd.preset_shapes import ProfileIdentity
from cordisd.shapes import Outcome

SessionEventsParams = TypedDict(
    "SessionEventsParams", {"sessionId": str, "from": NotRequired[int], "limit": NotRequired[int]}
)
"""`from` (default 0) is the `seq` of the first event wanted, `limit` (1,000) how many, 10,000 at most."""


class SessionEventsResult(TypedDict):
    """Events as they were sent; `session/end-seed`, which is never sent, is among them."""

    events: list[JsonObject]
    """Contiguous; none: there are none yet. At most about 4 MB, or a single larger one."""
    next: int
    """The `from` of the next request, also of one for events that are still to come."""


class SessionForkParams(TypedDict):
    """`atTurn`: a turn that has ended, by default the last one, with what has come since if nothing runs."""

    sessionId: str
    newSessionId: NotRequired[str]
    atTurn: NotRequired[int]


SessionOutcomeParams = TypedDict(
    "SessionOutcomeParams",
    {
        "sessionId": str,
        "class": OutcomeClass,
        "reward": NotRequired[float],
        "data": NotRequired[JsonObject],
    },
)
"""May be said again, and after the session was closed; the last one counts."""


class RequestCounts(TypedDict):
    """Model requests of which the log has something. `attempts` includes `retries`."""

    attempts: int
    retries: int


class TokenCounts(TypedDict):
    """Tokens as reported; null where they never were. `input` excludes what was read from a cache."""

    input: int | None
    output: int | None
    reasoning: int | None
    cacheRead: int | None


class SeedMetrics(TypedDict):
    """What of a fork's numbers is its parent's."""

    parentSession: str
    events: int
    turns: int
    requests: RequestCounts
    requestsWithoutUsage: int
    tokens: TokenCounts


class ToolMetrics(TypedDict):
    """The calls of one tool that the model asked for; `outputBytes` of their results, as UTF-8."""

    calls: int
    errors: int
    outputBytes: int


class WallTimes(TypedDict):
    """Milliseconds by the clock of the log. The rest of `total`, all turns together, is the daemon's own."""

    total: int
    model: int
    tools: int
    """In which at least one call ran."""


class MetricsIdentity(TypedDict):
    """Who the numbers are of. Null: the log does not say."""

    preset: str | None
    digest: str | None
    profile: ProfileIdentity | None
    version: str | None
    provider: str | None
    model: str | None


class SessionMetricsResult(TypedDict):
    """What a session has cost and how it went, a fork's seed included."""

    sessionId: str
    identity: MetricsIdentity
    turns: int
    requests: RequestCounts
    requestsWithoutUsage: int
    tokens: TokenCounts
    toolCalls: dict[str, ToolMetrics]
    wallMs: WallTimes
    headers: int
    """`request/header` events: segments of the trajectory, as token sequences."""
    stopReasons: dict[str, int]
    lastStopReason: str | None
    outcome: Outcome | None
    seed: SeedMetrics | None

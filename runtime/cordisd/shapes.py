"""The shapes of params and results on the wire, by method.

They are `TypedDict`s: they describe, they do not validate. The daemon checks what it receives in `rpc`, the
SDK the few fields that it relies on. `rpc.discover` shows results and notifications by what is written here.
"""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypedDict

from cordisd.events import JsonObject, OutcomeClass, TurnEndReason, Usage
from cordisd.preset_shapes import AgentIdentity, ProfileIdentity

NonEmpty = Annotated[str, {"minLength": 1}]
TokenLimit = Annotated[int, {"minimum": 1, "maximum": 2**53 - 1}]
SessionStatus = Literal["running", "idle", "closed"]
QueuePolicy = Literal["drop", "keep"]
StopReason = Literal[
    "completed",
    "structured_output",
    "no_structured_output",
    "turn_limit",
    "session_turn_limit",
    "token_limit",
    "timeout",
    "output_limit",
    "error_limit",
    "cost_limit",
    "max_tokens",
    "cancelled",
    "error",
]


class Empty(TypedDict):
    """Done; there is nothing to tell."""


class Limits(TypedDict, total=False):
    """What ends a run early, and in time; a run is all that follows one user input. All are above 0.

    They are looked at before each model request: the tool calls of the last answer are run, and an answer
    without calls is the end of a run that has kept its limits. Only the time limits interrupt. Those of a
    session count its whole life, in earlier processes too, and before it was forked. Of two limits of one
    name the smaller holds.
    """

    maxTurns: int
    """Model requests; a request that is retried is one. Stop reason `turn_limit`."""
    maxModelTokens: int
    """Tokens read (cached ones too) and written. With a model that does not report them a run fails, with
    the code USAGE_UNKNOWN. Stop reason `token_limit`."""
    timeoutSeconds: float
    """Time by the clock; what is under way when it is over is cancelled. Stop reason `timeout`."""
    maxToolOutputBytes: int
    """Bytes of tool results. Stop reason `output_limit`."""
    maxErrors: int
    """Failed tool results in a row. Stop reason `error_limit`."""
    maxCost: float
    """By the prices of the composition, without which it is refused. Stop reason `cost_limit`."""
    maxSessionTurns: int
    """User inputs; those beyond are taken, and not worked on. Stop reason `session_turn_limit`."""
    maxSessionModelTokens: int
    sessionTimeoutSeconds: float
    """Of all runs; the time between them does not count."""
    maxSessionToolOutputBytes: int
    maxSessionCost: float
    noticeSeconds: float
    """Tell the model, once in a run, when at most so much of the time is left at a request. When that is
    differs from one time to the next, so a recording of it may not replay. Refused for a frozen agent."""
    noticeTurns: int
    """Tell the model, once in a run, when only so many of its `maxTurns` are left. Refused as that."""


class LimitReached(TypedDict):
    """The limit that has ended a run. `used` is null where the model did not tell, so nobody knows."""

    name: str
    allowed: float
    used: float | None


class InitializeParams(TypedDict):
    """Defaults of the sessions that this connection creates from now on."""

    cwd: NonEmpty
    """Where the tools work, relative to the daemon's own directory."""
    provider: NonEmpty
    """Whose model it is: the `provider` of an entry of the composition."""
    model: NonEmpty
    maxTokens: NotRequired[TokenLimit]
    """Most tokens of one answer of the model; without it the provider's default."""
    reasoningEffort: NotRequired[NonEmpty]
    """How much the model reasons, in its provider's words; without it the provider's default."""
    preset: NotRequired[NonEmpty]
    """The agent of sessions that name none; without it the daemon's default."""
    requirePreset: NotRequired[NonEmpty]
    """The digest, `sha256:…`, that the agent of every session must have; the request is refused otherwise."""
    token: NotRequired[NonEmpty]
    """What the daemon's `--token-file` holds: a TCP connection must begin with it."""


class ServerInfo(TypedDict):
    """Who answers."""

    name: str
    version: str


class Capabilities(TypedDict):
    """What the daemon understands and sends."""

    methods: list[str]
    notifications: list[str]


class InitializeResult(TypedDict):
    """Published daemons send `serverInfo` only, or nothing. The agent is that of sessions by default."""

    preset: NotRequired[str | None]
    digest: NotRequired[str]
    profile: NotRequired[ProfileIdentity]
    serverInfo: NotRequired[ServerInfo]
    protocolVersion: NotRequired[int]
    capabilities: NotRequired[Capabilities]
    maxFrameBytes: NotRequired[int]


class OpenRpcDocument(TypedDict):
    """What the daemon serves, by the OpenRPC specification (https://spec.open-rpc.org).

    The extension `x-notifications` describes what the daemon sends by itself, as methods are described.
    """

    openrpc: str
    info: JsonObject
    servers: list[JsonObject]
    methods: list[JsonObject]
    components: JsonObject


class SessionParams(TypedDict):
    """Params of the methods that need nothing but the session."""

    sessionId: str


class RolloutIdentity(TypedDict, total=False):
    """What the client calls a session; it is kept in the log's header and given back."""

    rolloutId: str
    groupId: str
    attempt: int


class SessionCreateParams(RolloutIdentity, total=False):
    """A field left out takes the value of `initialize`; a `sessionId` left out is made up by the daemon."""

    sessionId: str
    preset: str
    requirePreset: str
    cwd: str
    provider: str
    model: str
    maxTokens: int
    limits: Limits
    """The composition may have tighter ones; `session/get` tells which hold."""


class SessionCreateResult(AgentIdentity):
    """The session as made; also the result of `preset/select`."""

    sessionId: str
    cwd: str


SessionAttachParams = TypedDict("SessionAttachParams", {"sessionId": str, "from": NotRequired[int]})
"""`from`: seq of the first event to send, by default the next one to come."""


class SessionAttachResult(TypedDict):
    """Every event from `from` on follows, those up to `lastSeq` from the log."""

    lastSeq: int


class SessionPromptParams(TypedDict):
    """A repeated `idempotencyKey` returns the first `messageId` and queues nothing."""

    sessionId: str
    contentBlocks: list[JsonObject]
    idempotencyKey: NotRequired[str]
    maxTurns: NotRequired[int]
    """Of this prompt's run, as in `Limits`."""
    timeoutSeconds: NotRequired[float]
    """Of this prompt's run, as in `Limits`; the time in the queue does not count."""


class SessionPromptResult(TypedDict):
    """Acceptance only; the outcome comes as `session.completed` with the same `messageId`."""

    messageId: str


class SessionSteerParams(TypedDict):
    """A message for the next step of the running turn; the result is as of `session/prompt`."""

    sessionId: str
    contentBlocks: list[JsonObject]


class SessionCancelParams(TypedDict):
    """`queue` (default `drop`): what becomes of the prompts that wait behind the running turn."""

    sessionId: str
    queue: NotRequired[QueuePolicy]


class SessionCancelResult(TypedDict):
    """`cancelled` false comes with `already`, why there was nothing to cancel."""

    cancelled: bool
    turn: NotRequired[int]
    dropped: list[str]
    already: NotRequired[str]


class SessionSummary(TypedDict):
    """One row of `session/list`; `createdAt` in milliseconds since the epoch."""

    sessionId: str
    status: SessionStatus
    preset: str | None
    turns: int
    createdAt: int


class SessionListResult(TypedDict):
    """The live sessions of the daemon."""

    sessions: list[SessionSummary]


class SessionGetResult(AgentIdentity, RolloutIdentity):
    """One live session. `usage` is summed over its turns; `lastSeq` is -1 before the first event."""

    sessionId: str
    status: SessionStatus
    cwd: str
    provider: str
    model: str
    limits: Limits
    """Those that hold: of the session and of the composition."""
    usage: Usage
    cost: float | None
    """By the prices of the composition; null where the model has none, or did not report its tokens."""
    turns: int
    lastSeq: int
    outcome: Outcome | None
    """What `session/outcome` said last."""


Outcome = TypedDict(
    "Outcome", {"class": OutcomeClass, "reward": NotRequired[float], "data": NotRequired[JsonObject]}
)
"""What has become of a session, as its harness sees it; the daemon never says `success` by itself."""


class WorkingDirectorySetParams(TypedDict):
    """A relative `path` starts at the session's current directory."""

    sessionId: str
    path: str


class WorkingDirectoryResult(TypedDict):
    """The session's directory, absolute."""

    cwd: str


class LoggedEvent(TypedDict):
    """One record of a session's log, format 0."""

    type: str
    seq: int
    """Its place in the log, from 0 without gaps; `session/end-seed` takes one too and is never sent."""
    time: int
    """Milliseconds since the epoch."""
    data: JsonObject
    sourceEventSeqs: NotRequired[list[int]]
    surfaceOp: NotRequired[Literal["append"] | JsonObject]
    """On what is part of the model's history, and only there."""
    ignorable: NotRequired[bool]


class SessionEventParams(TypedDict):
    """Every appended event of every session of the connection, in append order."""

    sessionId: str
    event: LoggedEvent


class SessionStatusParams(TypedDict):
    """Whether the session works now; it says nothing about the outcome of a turn."""

    sessionId: str
    status: SessionStatus


class SessionCompletedParams(TypedDict):
    """The outcome of one prompt, sent after its `turn/end` and before `idle`."""

    sessionId: str
    messageId: str
    turn: int | None
    """Null: the prompt had no turn, because the log could not be written any more."""
    reason: TurnEndReason
    stopReason: StopReason
    limit: NotRequired[LimitReached]


class SubagentStartedParams(TypedDict):
    """Comes before any event of the child session."""

    parentSessionId: str
    childSessionId: str


class SubagentFinishedParams(TypedDict):
    """An in-process delegated run has settled."""

    provider: str
    agentId: str
    parentSessionId: str
    childSessionId: str
    status: Literal["ok", "error"]
    stopReason: str
    lastAssistantMessage: NotRequired[JsonObject]

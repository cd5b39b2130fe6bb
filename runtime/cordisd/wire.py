"""The words of the wire, used by the daemon and by the SDK: names, limits, shapes of params and results.

Newline-delimited JSON-RPC 2.0. Shapes are `TypedDict`s: they describe, they do not validate; the daemon
checks what it receives in `rpc`, the SDK the few fields that it relies on.
"""

from __future__ import annotations

from typing import Final, Literal, NotRequired, TypedDict

from cordisd.events import JsonObject, TurnEndReason, Usage

PROTOCOL_VERSION: Final = 1
"""Grows when a client of the previous version would misread us; additions do not change it."""

MAX_FRAME_BYTES: Final = 64 * 2**20
"""Longest line either side accepts, newline excluded; `initialize` announces the daemon's own."""

INITIALIZE: Final = "initialize"
SHUTDOWN: Final = "shutdown"
PING: Final = "rpc.ping"
SESSION_CREATE: Final = "session/create"
SESSION_PROMPT: Final = "session/prompt"
SESSION_STEER: Final = "session/steer"
SESSION_CANCEL: Final = "session/cancel"
SESSION_CLOSE: Final = "session/close"
SESSION_LIST: Final = "session/list"
SESSION_GET: Final = "session/get"
SESSION_RESUME: Final = "session/resume"
WORKING_DIRECTORY_GET: Final = "session/working-directory/get"
WORKING_DIRECTORY_SET: Final = "session/working-directory/set"

METHODS: Final = (
    INITIALIZE,
    SHUTDOWN,
    PING,
    SESSION_CREATE,
    SESSION_PROMPT,
    SESSION_STEER,
    SESSION_CANCEL,
    SESSION_CLOSE,
    SESSION_LIST,
    SESSION_GET,
    SESSION_RESUME,
    WORKING_DIRECTORY_GET,
    WORKING_DIRECTORY_SET,
)

SESSION_EVENT: Final = "session.event"
SESSION_STATUS: Final = "session.status"
SESSION_COMPLETED: Final = "session.completed"
SUBAGENT_STARTED: Final = "subagent.started"
SUBAGENT_FINISHED: Final = "subagent.finished"

NOTIFICATIONS: Final = (
    SESSION_EVENT,
    SESSION_STATUS,
    SESSION_COMPLETED,
)
"""What this daemon sends; published daemons also announce subagents."""

SessionStatus = Literal["running", "idle"]
QueuePolicy = Literal["drop", "keep"]
StopReason = Literal[
    "completed",
    "structured_output",
    "no_structured_output",
    "turn_limit",
    "token_limit",
    "timeout",
    "cost_limit",
    "error_limit",
    "max_tokens",
    "cancelled",
    "error",
]


class InitializeParams(TypedDict):
    """Defaults of the sessions that this connection creates from now on."""

    cwd: str
    provider: str
    model: str
    maxTokens: NotRequired[int]
    reasoningEffort: NotRequired[str]


class ServerInfo(TypedDict):
    """Who answers."""

    name: str
    version: str


class Capabilities(TypedDict):
    """What the daemon understands and sends."""

    methods: list[str]
    notifications: list[str]


class InitializeResult(TypedDict):
    """Published daemons send `serverInfo` only, or nothing."""

    serverInfo: NotRequired[ServerInfo]
    protocolVersion: NotRequired[int]
    capabilities: NotRequired[Capabilities]
    maxFrameBytes: NotRequired[int]


class SessionParams(TypedDict):
    """Params of the methods that need nothing but the session."""

    sessionId: str


class SessionCreateParams(TypedDict, total=False):
    """A field left out takes the value of `initialize`; a `sessionId` left out is made up by the daemon."""

    sessionId: str
    cwd: str
    provider: str
    model: str
    maxTokens: int
    rolloutId: str
    groupId: str
    attempt: int


class SessionCreateResult(TypedDict):
    """The session as made. `preset` and `digest` are null for the composition's own agent."""

    sessionId: str
    preset: str | None
    digest: str | None
    cwd: str


class SessionPromptParams(TypedDict):
    """A repeated `idempotencyKey` returns the first `messageId` and queues nothing."""

    sessionId: str
    contentBlocks: list[JsonObject]
    idempotencyKey: NotRequired[str]


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


class SessionGetResult(TypedDict):
    """One live session. `usage` is summed over its turns; `lastSeq` is -1 before the first event."""

    sessionId: str
    status: SessionStatus
    preset: str | None
    digest: str | None
    cwd: str
    provider: str
    model: str
    usage: Usage
    turns: int
    lastSeq: int
    rolloutId: NotRequired[str]
    groupId: NotRequired[str]
    attempt: NotRequired[int]


class WorkingDirectorySetParams(TypedDict):
    """A relative `path` starts at the session's current directory."""

    sessionId: str
    path: str


class WorkingDirectoryResult(TypedDict):
    """The session's directory, absolute."""

    cwd: str


class SessionEventParams(TypedDict):
    """Every appended event of every session of the connection, in append order."""

    sessionId: str
    event: JsonObject


class SessionStatusParams(TypedDict):
    """Says nothing about the outcome of a turn."""

    sessionId: str
    status: SessionStatus


class SessionCompletedParams(TypedDict):
    """The outcome of one prompt, sent after its `turn/end` and before `idle`."""

    sessionId: str
    messageId: str
    turn: int | None
    """None: the prompt had no turn, because the log could not be written any more."""
    reason: TurnEndReason
    stopReason: StopReason


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

"""The error tree: every error of the runtime is a `CordisError` with a JSON-RPC code.

    CordisError                     -32603  something failed inside the daemon
    ├── CompositionError            -32603  a composition cannot be loaded; carries every problem found
    ├── MissingServiceError         -32603  an entry asked for a service that nobody provides
    ├── PromptError                 -32603  the system prompt cannot be assembled or rendered
    ├── UnsupportedContentError     -32603  a message holds what the model's wire cannot carry
    ├── ToolError                   -32603  a tool call failed; becomes a result for the model
    ├── ShellError                  -32603  no shell could be started or driven
    ├── ListenError                 -32603  no connections can be accepted where they should
    ├── InvalidParamsError          -32602  a request's params are wrong; names the field
    ├── NotJsonError                -32700  a frame is not JSON
    ├── InvalidRequestError         -32600  a frame is JSON but not a request
    ├── MethodNotFoundError         -32601  no such method; lists the nearest
    ├── UnauthorizedError           -32006  a connection has not shown the daemon's token; it is closed
    ├── SessionError                -32603
    │   ├── SessionExistsError      -32001  the id is taken, in this process or on disk
    │   ├── SessionNotFoundError    -32002  no live or stored session of that id
    │   ├── SessionBusyError        -32003  another process or connection owns it
    │   ├── NotInitializedError     -32004  a request came before `initialize`, or after `shutdown` began
    │   ├── SessionBegunError       -32005  too late: the session has begun
    │   └── SessionNotBegunError    -32007  too early: no turn of the session has ended
    ├── PresetError                 -32020  no such preset, or one that cannot be mounted
    │   └── PresetMismatchError     -32021  an agent is not the one that the client requires
    ├── ProfileError                -32603  a frozen profile breaks a rule, or its lock file cannot be read
    │   ├── ProfileHashMismatchError  2301  a frozen profile is not what was locked; nothing is sent
    │   └── ProfileOverrideError      2303  something would change a pinned value; it is refused
    ├── ReplayMismatchError         -32030  a replay does not do what its recording has; carries a diff
    └── LogError                    -32010
        ├── LogWriteError           -32011  an event could not be made durable; ends the session
        │   └── LogTakenError       -32001  another process was the first to store a session of this id
        ├── LogCorruptError         -32012  damage inside committed data; nothing was changed
        └── LogRefusedError         -32013  a newer or unknown format; nothing was changed

Messages say what was wrong, where, what is allowed and, where it helps, the nearest match.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

MAX_NAME: Final = 200
"""No name of ours has so many characters."""


class CordisError(Exception):
    """Something failed inside the daemon. Root of every error that the runtime raises on purpose."""

    rpc_code = -32603
    code_name: str | None = None
    """Name of the error in `error.data.code`, for those that have one."""


class Problem(NamedTuple):
    """One fault of a composition: where it is and what is wrong there."""

    where: str
    """`file:line`, with the entry where known: `minimal.cordis.yml:12, entry "bash"`."""
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


class CompositionError(CordisError):
    """A composition cannot be loaded. `problems` lists every fault found, in file order."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


def problems_behind(error: CordisError) -> tuple[Problem, ...]:
    """The problems of the composition that an error tells of, itself or by its cause; none if of no such."""
    told = error if isinstance(error, CompositionError) else error.__cause__
    return told.problems if isinstance(told, CompositionError) else ()


class MissingServiceError(CordisError):
    """An entry asked for a service that nobody in its scope provides."""


class PromptError(CordisError):
    """The system prompt cannot be assembled or rendered; the message names the section."""


class UnsupportedContentError(CordisError):
    """A message holds content that the model's wire cannot carry, such as an image; ends the turn."""


class ToolError(CordisError):
    """A tool call failed. The text goes to the model; `name` and `code` go to the log.

    `code` None means an ordinary failure of the tool, which the log records without an error object.
    """

    def __init__(self, text: str, *, name: str = "ToolError", code: str | None = None) -> None:
        super().__init__(text)
        self.name = name
        self.code = code


class ShellError(CordisError):
    """No shell could be started, or the guardian that starts them is gone."""


class ListenError(CordisError):
    """A daemon cannot accept connections where it should; the message names the place."""


class InvalidParamsError(CordisError):
    """A request's params do not fit; the message names the field and what is allowed."""

    rpc_code = -32602


class NotJsonError(CordisError):
    """A frame is not JSON."""

    rpc_code = -32700


class InvalidRequestError(CordisError):
    """A frame is JSON but not a JSON-RPC request."""

    rpc_code = -32600


class MethodNotFoundError(CordisError):
    """No such method."""

    rpc_code = -32601


class UnauthorizedError(CordisError):
    """A connection that needs a token has not shown it, or not the right one."""

    rpc_code = -32006
    code_name = "unauthorized"


class SessionError(CordisError):
    """Something about one session."""


class SessionExistsError(SessionError):
    """The session id is taken, in this process or on disk."""

    rpc_code = -32001


class SessionNotFoundError(SessionError):
    """There is no session of that id, live or stored."""

    rpc_code = -32002


class SessionBusyError(SessionError):
    """Another process, or another connection, owns the session."""

    rpc_code = -32003


class NotInitializedError(SessionError):
    """The connection is not ready for this request: not initialized yet, or shutting down."""

    rpc_code = -32004


class SessionBegunError(SessionError):
    """What was asked for is possible before the first event of a session only."""

    rpc_code = -32005


class SessionNotBegunError(SessionError):
    """What was asked for needs a turn of the session that has ended."""

    rpc_code = -32007


class PresetError(CordisError):
    """There is no such preset, or it cannot be mounted; the message lists those there are, or says why."""

    rpc_code = -32020


class PresetMismatchError(PresetError):
    """The digest of an agent is not the one that the client requires."""

    rpc_code = -32021
    code_name = "preset_mismatch"


class ProfileError(CordisError):
    """A frozen profile breaks a rule of frozen profiles, or its lock file cannot be read or written."""


class ProfileHashMismatchError(ProfileError):
    """What a frozen profile resolves to, or what is about to be sent for it, is not what was locked."""

    rpc_code = 2301
    code_name = "profile_hash_mismatch"


class ProfileOverrideError(ProfileError):
    """An environment variable or a field would change what a frozen profile pins."""

    rpc_code = 2303
    code_name = "profile_override_refused"


class ReplayMismatchError(CordisError):
    """A request, a tool result or the end of a turn is not what was recorded. The message holds the diff."""

    rpc_code = -32030
    code_name = "replay_mismatch"


class LogError(CordisError):
    """Something about a session log on disk; the message carries the path."""

    rpc_code = -32010


class LogWriteError(LogError):
    """Events could not be written. The session ends; nothing that was written before is lost."""

    rpc_code = -32011


class LogTakenError(LogWriteError):
    """Two processes began sessions of the same id, and the other one was the first to write."""

    rpc_code = SessionExistsError.rpc_code


class LogCorruptError(LogError):
    """A log is damaged inside committed data. The file was left untouched."""

    rpc_code = -32012


class LogRefusedError(LogError):
    """A log is of a newer format, or holds an event this version does not know. Untouched."""

    rpc_code = -32013


def nearest(word: str, known: Iterable[str]) -> str:
    """` (did you mean "x"?)` for the closest of `known`, or nothing when none is close."""
    if len(word) > MAX_NAME:  # a client's: the look would take a quarter of a second for each million
        return ""
    from difflib import get_close_matches  # costs 5 ms to import; only errors need it

    close = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f' (did you mean "{close[0]}"?)' if close else ""

"""The errors of the SDK.

SdkError                      the SDK was used wrongly, or the daemon cannot be started
├── RpcError                  the daemon answered a request with an error
├── ConnectionClosedError     the daemon is gone or cannot be reached, or the client was closed
│   └── NotListeningError     no daemon listens at the URL
├── ProtocolError             the daemon sent something that is not the protocol
└── RequestTimeoutError       no answer, or no end of a turn, in the time allowed
"""

from __future__ import annotations

from typing import Any, Final

from cordisd.errors import CordisError

MAX_SHOWN_LINES: Final = 20


class SdkError(CordisError):
    """Root of what the SDK raises.

    Of a daemon that this client has started: `exit_code`, negative for a signal, None while it lives or when
    it never started; `stderr_tail` holds up to 400 of its last lines, the message shows the last 20 of them.
    Of a daemon behind a URL nothing is known; the message begins with the URL.
    """

    def __init__(self, message: str, *, exit_code: int | None = None, stderr_tail: str = "") -> None:
        super().__init__(_with_diagnosis(message, exit_code, stderr_tail))
        self.exit_code = exit_code
        self.stderr_tail = stderr_tail


class RpcError(SdkError):
    """The daemon refused a request. `code` is the JSON-RPC code, `data` what the daemon added."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    def __str__(self) -> str:
        return f"{self.message} (code {self.code})"


class ConnectionClosedError(SdkError):
    """The daemon has ended, closed the connection, cannot be reached, or the client was closed."""


class NotListeningError(ConnectionClosedError):
    """No daemon listens at the URL, at least not yet."""


class ProtocolError(SdkError):
    """The daemon sent a broken or oversize frame, or an answer without a field that it must have."""


class RequestTimeoutError(SdkError):
    """The daemon did not answer, or a turn did not end, in time."""


def _with_diagnosis(message: str, exit_code: int | None, stderr_tail: str) -> str:
    if exit_code is not None:
        message += f" (exit code {exit_code})"
    lines = stderr_tail.splitlines()
    if not lines:
        return message
    hidden = len(lines) - MAX_SHOWN_LINES
    earlier = f", {hidden} earlier lines in stderr_tail" if hidden > 0 else ""
    return f"{message}\nstderr of the daemon{earlier}:\n" + "\n".join(lines[-MAX_SHOWN_LINES:])

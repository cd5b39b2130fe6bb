"""The stream of bytes under a connection, whatever it is: the pipes of a process, or a socket."""

from __future__ import annotations

from typing import Protocol


class Sink(Protocol):
    """Takes what a transport brings. Called on the event loop; must not block or raise."""

    def receive(self, piece: bytes) -> None: ...

    def end(self, how: str) -> None:
        """Nothing more will come; called once. `how` says so in words."""
        ...


class Transport(Protocol):
    """Bytes to and from one daemon."""

    @property
    def place(self) -> str:
        """Begins every error of the connection: the URL and a colon; empty for a daemon of one's own."""
        ...

    @property
    def pid(self) -> int | None:
        """Process id of a daemon of one's own."""
        ...

    @property
    def exit_code(self) -> int | None:
        """Of a daemon of one's own that has ended."""
        ...

    @property
    def stderr_tail(self) -> str:
        """The last words of a daemon of one's own."""
        ...

    async def start(self, sink: Sink) -> None:
        """Open it, and bring `sink` what comes. The caller must `close` it then.

        Raises:
            SdkError: it cannot be opened; nothing is left of it.
        """
        ...

    async def write(self, data: bytes) -> None:
        """Hand `data` over whole; waits while what was written before is not read.

        Cancelling it never leaves a part of `data` written.
        """
        ...

    def write_soon(self, data: bytes) -> None:
        """Like `write`, without waiting: buffered here until the daemon reads."""
        ...

    def take_noise(self, line: bytes) -> str | None:
        """Keep a line that is no frame as a diagnosis; returns what is wrong when it cannot be tolerated."""
        ...

    def kill(self) -> None:
        """End it at once; what was not written is lost. From any thread."""
        ...

    async def close(self, grace_s: float) -> None:
        """End it in order; each step takes at most `grace_s`. Cancelling it kills it."""
        ...

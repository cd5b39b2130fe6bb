"""The daemon as a child process: bytes in and out, its last words, and an end that leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast

from cordisd_sdk.errors import SdkError
from cordisd_sdk.transport import Sink

MAX_TAIL_LINES: Final = 400
MAX_TAIL_LINE_BYTES: Final = 2**16
MAX_NOISE_LINES: Final = 1000
MAX_NOISE_BYTES: Final = 200
END_GRACE_S: Final = 0.5


class DaemonProcess(asyncio.SubprocessProtocol):
    """A `Transport`: a daemon in a session of its own, so that the terminal's Ctrl-C does not reach it.

    Its stderr is always drained; `on_stderr` gets each line of it, on the event loop.
    """

    place: Final = ""

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str], on_stderr: Callable[[str], None] | None
    ) -> None:
        self._argv = argv
        self._env = env
        self._on_stderr = on_stderr
        self._tail: deque[str] = deque(maxlen=MAX_TAIL_LINES)
        self._n_noise_lines = 0
        self._stderr_rest = b""
        self._stdin_open = True
        self._ended = False
        self._exited = asyncio.Event()
        self._released = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self.exit_code: int | None = None

    async def start(self, sink: Sink) -> None:
        """Start it. The caller must `close` it then. Cancelling it leaves no process.

        Raises:
            SdkError: the program cannot be started.
        """
        self._sink = sink
        try:
            await asyncio.get_running_loop().subprocess_exec(
                lambda: self, *self._argv, env=self._env, start_new_session=True
            )
        except OSError as error:
            raise SdkError(f"cannot start {self._argv[0]!r}: {error.strerror}") from error

    @property
    def pid(self) -> int:
        """The process id, also the id of its process group."""
        return self._transport.get_pid()

    @property
    def stderr_tail(self) -> str:
        """The last 400 lines of its stderr; bytes that are not UTF-8 are replaced."""
        rest = [self._stderr_rest.decode("utf-8", "replace")] if self._stderr_rest else []
        return "\n".join([*self._tail, *rest])

    def take_noise(self, line: bytes) -> str | None:
        """Keep a stray line of its stdout among the last words; too many of them cannot be tolerated."""
        self._tail.append("stdout: " + line[:MAX_NOISE_BYTES].decode("utf-8", "replace"))
        self._n_noise_lines += 1
        if self._n_noise_lines > MAX_NOISE_LINES:
            return f"more than {MAX_NOISE_LINES} lines on stdout are not frames"
        return None

    async def write(self, data: bytes) -> None:
        """Hand `data` over whole; waits while the daemon has not read what was written before.

        Cancelling it never leaves a part of `data` written.
        """
        await self._writable.wait()
        self.write_soon(data)

    def write_soon(self, data: bytes) -> None:
        """Like `write`, without waiting: buffered here until the daemon reads."""
        if not self._stdin.is_closing():
            self._stdin.write(data)

    def kill(self) -> None:
        """SIGKILL for it and its process group, at once."""
        self._signal(signal.SIGKILL)

    async def close(self, grace_s: float) -> None:
        """Close its stdin, then SIGTERM, then SIGKILL, each after `grace_s` seconds; then release the pipes.

        Cancelling it kills the process.
        """
        try:
            self._stdin.close()
            if not await self._exits_within(grace_s):
                self._signal(signal.SIGTERM)
                if not await self._exits_within(grace_s):
                    self._signal(signal.SIGKILL)
                    await self._exits_within(grace_s)
        finally:
            self.kill()
            if self._stdin_open:  # a lost transport cannot be aborted
                self._stdin.abort()
            self._transport.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._released.wait(), grace_s)

    async def _exits_within(self, time_s: float) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._exited.wait(), time_s)
        return self._exited.is_set()

    def _signal(self, number: signal.Signals) -> None:
        # The group, so that a wrapper script does not leave the real daemon behind.
        if self.exit_code is None:
            _signal_group(self.pid, number)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)
        self._stdin = cast(asyncio.WriteTransport, self._transport.get_pipe_transport(0))

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            self._sink.receive(data)
            return
        lines = (self._stderr_rest + data).split(b"\n")
        self._stderr_rest = lines.pop()[-MAX_TAIL_LINE_BYTES:]
        for line in lines:
            text = line[-MAX_TAIL_LINE_BYTES:].decode("utf-8", "replace").rstrip("\r")
            self._tail.append(text)
            if self._on_stderr is not None:
                self._on_stderr(text)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 0:
            self._stdin_open = False
        elif fd == 1:
            self._near_end()

    def process_exited(self) -> None:
        self.exit_code = self._transport.get_returncode()
        # Now or never: later the id may belong to others.
        _signal_group(self.pid, signal.SIGKILL)
        self._exited.set()
        self._near_end()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._released.set()
        self._end()

    def _near_end(self) -> None:
        # Exit and the ends of both pipes come in any order, and a process that outlives the daemon may hold
        # a pipe open, so the missing ones are waited for, but not for ever.
        asyncio.get_running_loop().call_later(END_GRACE_S, self._end)

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            self._writable.set()
            code = self.exit_code
            what = "closed its stdout" if code is None else "was killed" if code < 0 else "exited"
            self._sink.end(f"the daemon {what}")


def _signal_group(group_id: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group_id, number)

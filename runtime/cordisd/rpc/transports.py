"""The byte stream under a connection, read and written by the event loop: two pipes, or a socket."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import Callable
from typing import Final

logger = logging.getLogger(__name__)

READ_BYTES: Final = 1 << 18
"""Most bytes taken from one connection in one turn of the event loop."""
HIGH_WATER_BYTES: Final = 8 << 20
"""Past this much unsent output a connection counts as behind, and gets no events."""
FULL_BYTES: Final = 4 * HIGH_WATER_BYTES
"""Past this much, which only unread answers can amount to, no more of its requests are read, nor begun."""


def claim_stdio() -> tuple[int, int]:
    """Private copies of fds 0 and 1 for the protocol, not inherited by children.

    Afterwards fd 0 reads nothing and fd 1 is stderr, so a stray `print` or child cannot touch the stream.
    """
    reader, writer = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return reader, writer


class FdTransport:
    """Reads one fd and writes another. All writes of one loop turn leave in one system call.

    `on_data` gets what arrived, `on_eof` is called when nothing more will come or go, and `on_drained`
    whenever a connection that was behind has caught up.
    """

    def __init__(
        self,
        reader: int,
        writer: int,
        *,
        on_data: Callable[[bytes], None],
        on_eof: Callable[[], None],
        on_drained: Callable[[], None],
    ) -> None:
        self._reader, self._writer = reader, writer
        self._on_data, self._on_eof, self._on_drained = on_data, on_eof, on_drained
        self._loop = asyncio.get_running_loop()
        self._out: list[bytes] = []
        self._rest = memoryview(b"")
        self._unsent_bytes = 0
        self._flushing = False
        self._broken = False
        self._was_behind = False
        self._is_paused = False
        self._is_held = False
        self._reads = True
        self._is_closed = False
        self._roomy = asyncio.Event()
        """Not set while somebody waits for room."""
        self._emptied: asyncio.Future[None] | None = None
        """Done when a drained connection has nothing more to send."""
        self._reading: asyncio.Task[None] | None = None
        # A terminal's description is shared with the shell that started us: leave it blocking.
        self._may_block = stat.S_ISREG(os.fstat(writer).st_mode) or os.isatty(writer)
        self._set_blocking(False)

    def start(self) -> None:
        """Begin to read."""
        try:
            self._loop.add_reader(self._reader, self._readable)
        except PermissionError:  # epoll refuses regular files and /dev/null
            self._reading = self._loop.create_task(self._read_file())

    @property
    def is_broken(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._broken

    @property
    def is_behind(self) -> bool:
        """Whether the other side has left more than the high-water mark unread."""
        return self._unsent_bytes > HIGH_WATER_BYTES

    @property
    def is_full(self) -> bool:
        """Whether it has left so much unread that nothing more may be kept in memory for it."""
        return self._unsent_bytes > FULL_BYTES

    def hold(self, held: bool) -> None:
        """Read nothing for a while; a regular file is read all the same."""
        if held != self._is_held:
            self._is_held = held
            self._pause_or_go_on()

    async def room(self) -> None:
        """Return when the connection is not full, first come, first served."""
        while self.is_full:
            self._roomy.clear()
            await self._roomy.wait()

    def write(self, frame: bytes) -> None:
        """Send `frame` at the end of this loop turn."""
        if self._broken:
            return
        self._out.append(frame)
        self._unsent_bytes += len(frame)
        self._was_behind |= self.is_behind
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    async def drain(self, timeout_s: float) -> None:
        """Wait until everything is sent or cannot be, at most `timeout_s`; nothing more is read."""
        self._stop_reading()
        if self._emptied is None or self._emptied.done():  # else somebody waits already
            self._emptied = self._loop.create_future()
        self._tell_emptied()
        await asyncio.wait([self._emptied], timeout=timeout_s)

    def close(self) -> None:
        """Let go of the fds, and of what is unsent. Closing twice is harmless."""
        if self._is_closed:
            return
        self._is_closed = True
        self._stop_reading()
        self._loop.remove_writer(self._writer)
        self._send()
        self._set_blocking(True)
        self._break()  # a flush may still be scheduled: the descriptors are somebody else's soon
        os.close(self._reader)
        os.close(self._writer)

    def give_up(self) -> None:
        """End the connection at the end of this loop turn: its other side would miss something."""
        if not self._broken:
            self._break()
            self._loop.call_soon(self._on_eof)

    def _break(self) -> None:
        self._broken = True
        self._out, self._rest, self._unsent_bytes = [], memoryview(b""), 0
        self._roomy.set()
        self._tell_emptied()

    def _readable(self) -> None:
        try:
            data = os.read(self._reader, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._on_data(data)
            self._pause_or_go_on()
        else:
            self._stop_reading()
            self._on_eof()

    def _stop_reading(self) -> None:
        self._reads = False
        self._loop.remove_reader(self._reader)
        if self._reading is not None:
            self._reading.cancel()

    def _pause_or_go_on(self) -> None:
        waits = self.is_full or self._is_held
        if waits != self._is_paused and self._reading is None and self._reads:
            self._is_paused = waits
            if waits:
                self._loop.remove_reader(self._reader)
            else:
                self._loop.add_reader(self._reader, self._readable)

    async def _read_file(self) -> None:
        try:
            while data := await asyncio.to_thread(os.read, self._reader, READ_BYTES):
                self._on_data(data)
        except OSError as error:  # a directory, for instance
            logger.error("cannot read requests: %s", error)
        self._on_eof()

    def _flush(self) -> None:
        self._send()
        if self._unsent_bytes:
            self._loop.add_writer(self._writer, self._writable)
        else:
            self._flushing = False
        self._tell_drained()

    def _writable(self) -> None:
        self._send()
        if not self._unsent_bytes:
            self._loop.remove_writer(self._writer)
            self._flushing = False
        self._tell_drained()

    def _tell_emptied(self) -> None:
        if self._emptied is not None and not self._emptied.done() and not self._unsent_bytes:
            self._emptied.set_result(None)

    def _tell_drained(self) -> None:
        self._tell_emptied()
        if self._was_behind and not self._broken and self._unsent_bytes < HIGH_WATER_BYTES // 2:
            self._was_behind = False
            self._roomy.set()
            self._pause_or_go_on()
            self._on_drained()

    def _send(self) -> None:
        while self._unsent_bytes and not self._broken:
            if not self._rest:
                self._rest, self._out = memoryview(b"".join(self._out)), []
            try:
                sent = os.write(self._writer, self._rest)
            except BlockingIOError:
                return
            except OSError:  # the other side is gone, and will not miss what is left
                self.give_up()
                return
            self._rest = self._rest[sent:]
            self._unsent_bytes -= sent

    def _set_blocking(self, blocking: bool) -> None:
        if not self._may_block:
            os.set_blocking(self._writer, blocking)

"""One program on a terminal of its own: what it prints is kept, what is typed it reads.

The program is a child of the guardian and the leader of its session. When it ends, so does everything that
it has started. It has no shell above it, so nobody could continue it if it stopped: the kernel ignores
Ctrl-Z for such a program, and if it stops itself all the same, the guardian wakes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import termios
from enum import Enum
from typing import Any

from cordisd.errors import ToolError
from cordisd.shell.guardian import Guardian, SpawnedShell
from cordisd.shell.launch import ShellSpec
from cordisd.shell.screen import Picture, Screen
from cordisd.shell.unread import Unread

_BYTES_PER_TURN = 64 * 1024
_WORK_S = 0.002
"""Of drawing, and of searching, in one turn of the event loop."""
_REST_S = 0.02
"""Between two turns of work while nobody waits, so that an unattended flood costs little."""
_MAX_PENDING_CHARS = 256 * 1024
"""Of what was not drawn yet. With more of them at hand, more can be skipped."""
_REOPEN_S = 0.1
_HANG_UP_S = 0.5
_MAX_LINE_BYTES = 4094
"""What the kernel's line editor holds, without the end of the line. It drops the rest without a word."""
_LINE_ENDS = re.compile(rb"[\r\n\x03\x04\x15\x1c]")
"""Enter, and the keys that end or discard a line: Ctrl-C, -D, -U and -\\."""


class Stop(Enum):
    """Why a wait was over."""

    FOUND = "the pattern was found"
    SILENT = "silence"
    ENDED = "the program ended"
    EXPIRED = "time limit"


class Terminal:
    """A running program, or what it has left. One call at a time."""

    def __init__(self, spawned: SpawnedShell, guardian: Guardian, spec: ShellSpec, *, answers: bool) -> None:
        self.exit_status: int | None = None
        """The wait status, once the program has ended and all that it had printed was read."""
        self.unread = Unread()
        self._pid = spawned.pid
        self._fd = spawned.master_fd
        self._guardian = guardian
        self._answers = answers
        self._screen = Screen(spec.rows, spec.columns, self._answer)
        self._exited = spawned.exited
        self._loop = asyncio.get_running_loop()
        self._stop: asyncio.Future[Stop] | None = None
        """Of the wait in progress."""
        self._silence: asyncio.TimerHandle | None = None
        self._printed_at_s = self._loop.time()
        self._picture: asyncio.Future[Picture] | None = None
        """That is waited for."""
        self._busy: asyncio.TimerHandle | None = None
        """Set while output is left to be searched or drawn."""
        self._listening = True
        """Whether more is read; while not, the program has to wait."""
        self._writable = asyncio.Event()
        """Set when the terminal takes more, or nothing any more."""
        self._n_line_bytes = 0
        """Typed since the last end of a line, to a program that reads by lines."""
        self._reopening: asyncio.TimerHandle | None = None
        self._closed = False
        self._loop.add_reader(self._fd, self._on_output)
        self._exited.add_done_callback(self._on_exit)

    @classmethod
    async def start(cls, guardian: Guardian, spec: ShellSpec, *, answers: bool) -> Terminal:
        """A program that was just started. `answers`: whether queries to the terminal are answered.

        Raises:
            ShellError: it could not be started.
        """
        return cls(await guardian.spawn(spec), guardian, spec, answers=answers)

    async def wait(self, pattern: Any, silence_s: float | None, limit_s: float) -> Stop:
        """Until the pattern is found in unread text, nothing was printed for a time, the end, or the limit.

        Cancelled or not, nothing is lost: what has come stays unread.
        """
        self.unread.look_for(pattern)
        stop: asyncio.Future[Stop] = self._loop.create_future()
        self._stop = stop
        limit = self._loop.call_later(limit_s, self._end_wait, Stop.EXPIRED)
        if silence_s is not None:
            self._watch_silence(silence_s, self._loop.time())
        try:
            self._work()
            return await stop
        finally:
            self._stop = None
            limit.cancel()
            if self._silence is not None:
                self._silence.cancel()

    async def type(self, data: bytes, limit_s: float) -> int:
        """Type, at the pace at which the program reads; how many bytes it took before the limit.

        The next pattern is looked for in what comes from now on.

        Raises:
            ToolError: a line is longer than the terminal's line editor can hold; nothing is typed.
        """
        self._check_lines(data)
        self._on_output()
        self.unread.skip()
        n_typed = 0
        try:
            async with asyncio.timeout(limit_s):
                while n_typed < len(data) and not self._closed:
                    try:
                        n_typed += os.write(self._fd, data[n_typed : n_typed + _BYTES_PER_TURN])
                    except BlockingIOError:
                        self._writable.clear()
                        self._loop.add_writer(self._fd, self._writable.set)
                        await self._writable.wait()
        except (TimeoutError, OSError):
            pass  # it reads no more for now, or is just ending
        finally:
            if not self._closed:
                self._loop.remove_writer(self._fd)
        return n_typed

    async def picture(self) -> Picture:
        """The screen, with all drawn that has come until now; meanwhile no more is read."""
        if self._busy is None:
            return self._screen.picture()
        picture: asyncio.Future[Picture] = self._loop.create_future()
        self._picture = picture
        self._work()
        try:
            return await picture
        finally:
            self._picture = None

    def take_rearranged(self) -> bool:
        """Whether the program has moved the cursor to places of its choice since this was last asked."""
        rearranged, self._screen.rearranged = self._screen.rearranged, False
        return rearranged

    @property
    def application_keys(self) -> bool:
        """Whether the program wants the other form of the arrow keys."""
        return self._screen.application_keys

    async def hang_up(self) -> None:
        """End the program as the closing of its window does; if it stays, end it as `close` does."""
        self._on_output()
        self._release()
        await asyncio.wait({self._exited}, timeout=_HANG_UP_S)
        await self.close()

    async def close(self) -> None:
        """End the program and everything that it has started."""
        self._release()
        if not self._exited.done():
            await self._guardian.end_shell(self._pid)
        await asyncio.wait({self._exited}, timeout=_HANG_UP_S)
        for timer in (self._busy, self._reopening):
            if timer is not None:
                timer.cancel()
        self._end()

    def _on_exit(self, _: asyncio.Future[int]) -> None:
        if self._listening:
            self._on_output()

    def _on_output(self) -> None:
        if self._closed:
            return
        pieces: list[bytes] = []
        over = False
        try:
            while sum(map(len, pieces)) < _BYTES_PER_TURN:
                pieces.append(os.read(self._fd, _BYTES_PER_TURN))
        except BlockingIOError:
            over = self._exited.done()
        except OSError:  # EIO: nobody has the terminal open
            over = self._exited.done()
            if not pieces and not over:
                self._reopen_later()
                return
        data = b"".join(pieces)
        if data:
            self._printed_at_s = self._loop.time()
        self.unread.take(data, final=over)
        self._screen.take(data)
        if over:
            self._release()
        flooded = len(data) >= _BYTES_PER_TURN
        self._work(flooded=flooded)
        if flooded and self._listening and self._exited.done():
            self._loop.call_soon(self._on_output)  # the end of the last bytes is no event

    def _work(self, *, flooded: bool = False) -> None:
        """Search and draw what has come. When too much is left, or nobody waits, no more is read for now."""
        if self._busy is not None:
            self._busy.cancel()
            self._busy = None
        if self._stop is not None and self.unread.search(_WORK_S):
            self._end_wait(Stop.FOUND)
        searched = self._stop is None or self.unread.searched
        drawn = self._screen.advance(_WORK_S)
        waited_for = self._stop is not None or self._picture is not None
        if not (drawn and searched) or (flooded and not waited_for):
            self._busy = self._loop.call_later(0 if waited_for else _REST_S, self._work)
        elif self._picture is not None and not self._picture.done():
            self._picture.set_result(self._screen.picture())
        may_read_on = self._stop is not None and searched
        if self._busy is None or (may_read_on and self._screen.n_pending_chars < _MAX_PENDING_CHARS):
            self._listen()
        elif not self._closed:
            self._listening = False
            self._loop.remove_reader(self._fd)
        if self._busy is None and self._closed and self._exited.done():
            self._end()

    def _listen(self) -> None:
        if not self._closed and self._reopening is None and not self._listening:
            self._listening = True
            self._loop.add_reader(self._fd, self._on_output)
            if self._exited.done():
                self._loop.call_soon(self._on_output)

    def _reopen_later(self) -> None:
        """The program has closed its terminal, which would be readable all the time; it may open it again."""
        self._loop.remove_reader(self._fd)
        self._listening = False
        self._reopening = self._loop.call_later(_REOPEN_S, self._reopen)

    def _reopen(self) -> None:
        self._reopening = None
        self._listen()

    def _end(self) -> None:
        self.exit_status = self._exited.result() if self._exited.done() else 9
        self._end_wait(Stop.ENDED)

    def _watch_silence(self, silence_s: float, since_s: float) -> None:
        """End the wait when nothing was printed for a time, while nothing was held back."""
        left_s = max(since_s, self._printed_at_s) + silence_s - self._loop.time()
        if self._busy is not None:
            left_s = max(left_s, _REST_S)
        if left_s <= 0:
            self._end_wait(Stop.SILENT)
        else:
            self._silence = self._loop.call_later(left_s, self._watch_silence, silence_s, since_s)

    def _end_wait(self, reason: Stop) -> None:
        if self._stop is not None and not self._stop.done():
            self._stop.set_result(reason)

    def _release(self) -> None:
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._fd)
            self._loop.remove_writer(self._fd)
            os.close(self._fd)
            self._writable.set()

    def _check_lines(self, data: bytes) -> None:
        """Note how long the line being typed is; refuse one that the kernel would cut."""
        if not self._modes() & termios.ICANON:
            self._n_line_bytes = 0
            return
        lines = _LINE_ENDS.split(data)
        lengths = [self._n_line_bytes + len(lines[0]), *map(len, lines[1:])]
        if max(lengths) > _MAX_LINE_BYTES:
            raise ToolError(
                f"the terminal takes no line of more than {_MAX_LINE_BYTES} bytes while its program reads by "
                "lines: send shorter lines, or pass the data in a file"
            )
        self._n_line_bytes = lengths[-1]

    def _modes(self) -> int:
        """The terminal's local modes; none when it is closed."""
        with contextlib.suppress(OSError, termios.error):
            if not self._closed:
                return int(termios.tcgetattr(self._fd)[3])
        return 0

    def _answer(self, reply: bytes) -> None:
        """Answer a query, unless the program reads by lines: then it was printed, not asked."""
        if self._answers and not self._closed and not self._modes() & termios.ICANON:
            with contextlib.suppress(OSError):
                os.write(self._fd, reply)

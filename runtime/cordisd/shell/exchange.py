"""One typed line in progress: which bytes of the terminal belong to it, and whether it is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum, IntEnum
from typing import Literal

from cordisd.shell.driver import MARK_LENGTH, Token
from cordisd.shell.output import Capture


class Ending(Enum):
    """How an exchange ended."""

    FINISHED = "finished"
    PROMPTED = "returned to its prompt"
    """Without having reached the end of the command; also the good end of a line without a command."""
    DIED = "died"
    BROKEN = "did not answer"
    """Or not in a way that can be trusted."""
    EXPIRED = "took too long"
    """Nothing ended but the caller's patience; the exchange goes on."""
    WAITING = "waits for input"
    """Which nobody can give; the exchange goes on."""


class Phase(IntEnum):
    """Which mark of the terminal is awaited: the index into `Token.marks`."""

    TYPED = 0
    PREAMBLE = 1
    RUNNING = 2
    POSTAMBLE = 3


def background_capture() -> Capture:
    """For what the terminal prints while no command runs."""
    return Capture(4096, 16384)


class Exchange:
    """A call with its command, or (`sync`) a line without one, from the typing to the ending.

    `done` gives the ending. `capture` holds the output of the command, `earlier` what background jobs
    printed before it began.
    """

    __slots__ = (
        "_after",
        "_before",
        "_late",
        "aborted",
        "capture",
        "cured",
        "done",
        "draining",
        "earlier",
        "finished",
        "held",
        "interrupt_due",
        "loop",
        "n_marks",
        "n_records",
        "phase",
        "redirected",
        "status",
        "sync_typed",
        "synced",
        "timers",
        "token",
        "traced",
    )

    def __init__(
        self,
        token: Token,
        loop: asyncio.AbstractEventLoop,
        *,
        sync: bool = False,
        traced: bool = False,
    ) -> None:
        self.token = token
        self.loop = loop
        self.done: asyncio.Future[Ending] = loop.create_future()
        self.capture = Capture()
        self.earlier: Capture | None = None
        self.phase = Phase.RUNNING if sync else Phase.TYPED
        self.status = 0
        """Exit status: of the command, of what interrupted it, or of the line."""
        self.aborted = False
        """bash came back to its prompt on its own without having finished."""
        self.redirected = False
        """The command has led the shell's own stdout or stderr away from the terminal."""
        self.traced = traced
        """`set -x` or a DEBUG trap may speak of our own line: when it began, and from record T on, when it
        ended."""
        self.cured = False
        """bash had to be repaired before it answered."""
        self.sync_typed = sync
        self.finished = False
        """Record S has come."""
        self.synced = False
        """Record R has come."""
        self.draining = False
        """All is there, but output may still come through another process."""
        self.interrupt_due = False
        """The command is to be interrupted as soon as it has begun."""
        self.held = b""
        """Bytes at the end of what was read that may begin a mark."""
        self._before = background_capture()
        """What came between the marks before the command, of jobs or of tracing."""
        self._after = background_capture()
        """The same after it."""
        self._late = background_capture()
        """What came after the end mark."""
        self.n_records = 0
        self.n_marks = 0
        self.timers: dict[str, asyncio.TimerHandle] = {}

    @property
    def begun(self) -> bool:
        """Whether bash has started on the command; if not when the exchange has ended, it never ran."""
        return self.phase >= Phase.RUNNING

    @property
    def complete(self) -> bool:
        """Whether every record and every mark has come."""
        over = self.synced if self.sync_typed else self.finished
        return over and self.n_marks >= self.n_records

    def take(self, data: bytes, background: Capture) -> Capture:
        """Sort terminal bytes into the capture and `background`; returns the background for what follows."""
        if self.held:
            data, self.held = self.held + data, b""
        while b"\x1e" in data:
            at = data.find(self.token.marks[self.phase])
            if at < 0:
                at = data.rfind(b"\x1e", max(0, len(data) - MARK_LENGTH + 1))
                if at >= 0:
                    data, self.held = data[:at], data[at:]
                break
            self._keep(data[:at], background)
            data = data[at + MARK_LENGTH :]
            match self.phase:
                case Phase.TYPED:
                    self.phase = Phase.PREAMBLE
                    if background.n_bytes:
                        self.earlier, background = background, background_capture()
                case Phase.PREAMBLE:
                    self.phase = Phase.RUNNING
                    if self._before.n_bytes and not self.traced:
                        self.earlier = self.earlier or background_capture()
                        _move(self._before, self.earlier)
                case Phase.RUNNING:
                    self.phase = Phase.POSTAMBLE
                case Phase.POSTAMBLE:
                    self.phase = Phase.RUNNING
                    self.n_marks += 1
        self._keep(data, background)
        return background

    def finish(self, ending: Ending, background: Capture) -> None:
        """Make `ending` the result; no timer is left."""
        for timer in self.timers.values():
            timer.cancel()
        self._keep(self.held, background)
        self._end_of_line(background)
        if self.done.done():  # it expired or its waiter was cancelled, and nobody has asked again yet
            self.done = self.loop.create_future()
        self.done.set_result(ending)

    def stop_waiting(self, reason: Literal[Ending.EXPIRED, Ending.WAITING]) -> None:
        """Give the waiter `reason`; the exchange goes on."""
        if not self.done.done():
            self.done.set_result(reason)

    def after(self, name: str, delay_s: float, act: Callable[..., object], *arguments: object) -> None:
        """Call `act` later, in the place of the timer of that name, unless the exchange is over by then."""
        previous = self.timers.get(name)
        if previous is not None:
            previous.cancel()
        self.timers[name] = self.loop.call_later(delay_s, act, *arguments)

    def drain(self) -> None:
        """From now on whatever comes belongs to the command, and so does what came after its end mark."""
        self.draining = True
        self._end_of_line(self.capture)

    def _end_of_line(self, capture: Capture) -> None:
        """Give `capture` what came around and after the end mark, but for what is said of our own line."""
        if not self.traced:
            _move(self._after, capture)
        _move(self._late, capture)

    def _keep(self, data: bytes, background: Capture) -> None:
        if not data:
            return
        match self.phase:
            case Phase.TYPED:
                background.append(data)
            case Phase.PREAMBLE:
                self._before.append(data)
            case Phase.POSTAMBLE:
                self._after.append(data)
            case Phase.RUNNING if self.n_marks and not self.draining:
                self._late.append(data)
            case Phase.RUNNING:
                self.capture.append(data)


def _move(source: Capture, target: Capture) -> None:
    """Append what `source` has kept to `target`, and empty it."""
    target.append(source.head())
    target.append(source.tail())
    source.clear()

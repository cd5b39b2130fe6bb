"""A persistent bash for one session: commands in, results for the model out, whatever they do to it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from shlex import quote
from typing import Literal

from cordisd.errors import ShellError
from cordisd.shell.driver import SHELL_ARGV, Stdin
from cordisd.shell.exchange import Ending, Exchange
from cordisd.shell.guardian import Guardian, Moment
from cordisd.shell.launch import Launch, Place, ShellSpec
from cordisd.shell.live import LiveShell
from cordisd.shell.report import (
    WAS_RESET_NOTICE,
    CommandResult,
    Outcome,
    Trailer,
    Truncation,
    background_section,
    capture_of,
    death_line,
    ending_of,
    lines,
    notice_after,
    notice_before,
    shown_output,
)
from cordisd.shell.spill import Spill, SpillFolder
from cordisd.shell.stop import UNFINISHED, USABLE, last_moment, stop
from cordisd.shell.watch import cwd_of

OnTimeout = Literal["keep", "reset"]

_N_STARTS = 3


@dataclass(frozen=True, slots=True)
class BashSettings:
    """How commands are run and reported."""

    timeout_s: float = 300.0
    """Of one command with the start of the shell; time in the queue is not counted."""
    max_output_chars: int = 16_000
    """Of the command's output; notices and trailers come on top."""
    trailer: Trailer = "reference"
    truncation: Truncation = "headTail"
    on_timeout: OnTimeout = "keep"
    stdin: Stdin = "null"
    """What a command reads: /dev/null, or the terminal, where nobody types."""
    input_wait_s: float = 10.0
    """How long a command may wait silently for terminal input before it is stopped."""


class Bash:
    """One bash, started at the first command and again after a death; runs one command at a time.

    `realm` is the name under which the guardian knows its processes; `environment` is asked at each start.
    """

    def __init__(
        self,
        guardian: Guardian,
        realm: str,
        cwd: str,
        environment: Callable[[], dict[str, str]],
        settings: BashSettings | None = None,
        launch: Launch | None = None,
        spill_folder: SpillFolder | None = None,
    ) -> None:
        self._guardian = guardian
        self._realm = realm
        self._environment = environment
        self._cwd = cwd
        self._settings = settings or BashSettings()
        self._launch = launch or Launch()
        self._spill_folder = spill_folder
        self._lock = asyncio.Lock()
        self._live: LiveShell | None = None
        self._recovery: asyncio.Task[None] | None = None
        self._status = 0
        """`$?` of the last command."""
        self._destination: str | None = None
        """Where the live shell has to go before its next command."""
        self._notes: list[str] = []
        """What the next result must begin with."""
        self._closed = False

    async def run(self, command: str) -> CommandResult:
        """Run a command to its end or its time limit.

        A caller that is cancelled while queued has run nothing. Cancelled while the command runs, the
        command is stopped first, then `CancelledError` goes on; the shell stays usable, or is reset.

        Raises:
            ShellError: no shell can be started.
            ValueError: the command holds a NUL, which bash cannot.
        """
        text = _encoded(command)
        async with self._lock:
            await self._recovered()
            return await self._run(text)

    async def place(self) -> Place:
        """Where the shell is, if its launch `is_elsewhere`; it is started if it is not there.

        Raises:
            ShellError: no shell can be started.
        """
        async with self._lock:
            await self._recovered()
            place = (await self._ready()).place
            assert place is not None, "asked for nothing"
            return place

    def move(self, cwd: str) -> None:
        """Make `cwd` the directory of the shell, live or yet to start, from its next command on."""
        self._cwd = self._destination = cwd

    def announce_reset(self) -> None:
        """Have the next result say that the state of an earlier shell is lost."""
        self._notes.append(WAS_RESET_NOTICE)

    async def close(self) -> None:
        """End the shell and everything that it started."""
        self._closed = True
        await self._recovered()
        if self._live is not None:
            await self._reset(self._live)

    async def _run(self, command: bytes) -> CommandResult:
        deadline_s = asyncio.get_running_loop().time() + self._settings.timeout_s
        for n_failures in range(_N_STARTS):
            live = await self._ready()
            while self._destination is not None and live is self._live:
                await self._go(live, self._destination)
            if live is not self._live:
                continue
            spill = Spill(self._spill_folder) if self._spill_folder is not None else None
            try:
                result = await self._attempt(live, command, deadline_s, spill)
            finally:
                if spill is not None:
                    spill.close()
            if result is not None:
                return result
            if live is self._live:
                # It returned to its prompt: a late interrupt has hit our line, or it does not understand it.
                await (self._bury(live) if n_failures else live.cure())
        notes, self._notes = self._notes, []
        raise ShellError(lines(f"bash was started {_N_STARTS} times, but never began on the command", *notes))

    async def _attempt(
        self, live: LiveShell, command: bytes, deadline_s: float, spill: Spill | None
    ) -> CommandResult | None:
        """The result of the command in this shell; None if it has not run, and the shell is to blame."""
        moment = Moment.now()
        exchange = live.call(command, self._status, capture_of(self._settings.max_output_chars, spill))
        stopped: Ending | None = None
        try:
            ending = await live.limit(exchange, max(deadline_s - asyncio.get_running_loop().time(), 0.0))
            if ending is Ending.EXPIRED:
                ending = await last_moment(live, exchange)
            if ending in UNFINISHED:
                stopped = ending
                ending = await stop(live, exchange, moment, "time")
        except asyncio.CancelledError:
            await self._stop_for_cancel(live, exchange, moment)
            raise
        except ShellError:  # the command could not be ended: nothing may be typed into it
            with contextlib.suppress(ShellError):
                await self._bury(live)
            raise
        if stopped is not None or exchange.begun:
            return await self._report(live, exchange, ending, stopped)
        if ending is not Ending.PROMPTED:
            await self._bury(live)
        return None

    async def _ready(self) -> LiveShell:
        """The live shell, or a new one if there is none any more."""
        if self._closed:
            raise ShellError("this session's shell is closed")
        if self._live is not None and self._live.exit_status is not None:
            await self._bury(self._live)
        if self._live is None:
            self._status = 0
            settings = self._settings
            # Behind a launcher, bash may be elsewhere.
            argv = ["bash", *SHELL_ARGV[1:]] if self._launch.argv else SHELL_ARGV
            spec = ShellSpec(self._realm, argv, self._environment(), launch=self._launch)
            place = self._cwd
            try:
                async with asyncio.timeout(settings.timeout_s):
                    live = await LiveShell.start(
                        self._guardian, spec, place, settings.stdin, settings.input_wait_s
                    )
            except TimeoutError as failure:
                raise ShellError(f"bash did not start in {settings.timeout_s:g} s") from failure
            if self._closed:  # meanwhile
                await live.end()
                raise ShellError("this session's shell is closed")
            self._live = live
            self._has_arrived(place)
            if not live.has_arrived:
                self._notes.append(
                    f"[The workspace {place} cannot be entered; the shell started in {cwd_of(live.pid)}.]"
                )
        return self._live

    def _has_arrived(self, place: str) -> None:
        if self._destination == place:  # else the session has moved on meanwhile
            self._destination = None

    async def _go(self, live: LiveShell, place: str) -> None:
        """Lead the shell to `place`, or give it up."""
        # Inverted, so that `set -e` does not take a failure for the end of the shell.
        text = f"! {{ \\builtin cd -- {quote(place)}; }} >/dev/null 2>&1"
        moment = Moment.now()
        exchange = live.call(text.encode("utf-8", "surrogateescape"), 0)
        try:
            ending = await live.limit(exchange, self._settings.timeout_s)
        except asyncio.CancelledError:
            await self._stop_for_cancel(live, exchange, moment)
            raise
        self._has_arrived(place)
        if ending is not Ending.FINISHED:
            await self._bury(live)
        elif exchange.status == 0:
            self._notes.append(f"[The shell could not enter {place}; it is still in {cwd_of(live.pid)}.]")

    async def _bury(self, live: LiveShell) -> None:
        """Give up a shell that has not run what it was given; the next result says so, once."""
        if live.exit_status is None:
            how = "[The persistent shell could not run commands any more.]"
        else:
            how = death_line(*ending_of(live.exit_status)).replace("[shell", "[before this call: shell")
        note = lines(background_section(live.background), how, WAS_RESET_NOTICE)
        if note not in self._notes:
            self._notes.append(note)
        await self._reset(live)

    async def _reset(self, live: LiveShell) -> None:
        self._live = None
        await live.end()

    async def _stop_for_cancel(self, live: LiveShell, exchange: Exchange, moment: Moment) -> None:
        """Make the shell usable again for the next caller, even if this one is cancelled twice."""

        async def recover() -> None:
            ending = await last_moment(live, exchange)
            if ending in UNFINISHED:
                ending = await stop(live, exchange, moment, "cancellation")
            else:
                await live.kill_since(moment)
            if ending in USABLE:
                self._status = exchange.status
                await live.reconnect()
            else:
                self._notes.append(WAS_RESET_NOTICE)
                await self._reset(live)

        self._recovery = asyncio.create_task(recover())
        await asyncio.wait({self._recovery})

    async def _recovered(self) -> None:
        if self._recovery is not None:
            recovery = self._recovery
            await asyncio.wait({recovery})
            self._recovery = None
            if recovery.exception() is not None and self._live is not None:
                await self._bury(self._live)

    async def _report(
        self,
        live: LiveShell,
        exchange: Exchange,
        ending: Ending,
        stopped: Ending | None,
    ) -> CommandResult:
        """The result for the model; resets the shell where the ending or the settings ask for it.

        `stopped` says why we had to end the command ourselves.
        """
        settings = self._settings
        output, truncated = shown_output(exchange.capture, settings.max_output_chars, settings.truncation)
        notes, self._notes = self._notes, []
        exit_code: int | None = None
        signal_word: str | None = None
        reconnected: list[str] = []
        lost = ending not in USABLE or (stopped is Ending.EXPIRED and settings.on_timeout == "reset")
        if ending is Ending.DIED and live.exit_status is not None:
            exit_code, signal_word = ending_of(live.exit_status)
        elif ending in USABLE:
            self._status = exchange.status
            if ending is Ending.FINISHED or exchange.aborted:
                exit_code = exchange.status
            if ending is Ending.PROMPTED:
                output = output.removesuffix("\n")  # bash ends the line of an interrupt
            if (exchange.redirected or ending is Ending.PROMPTED) and not lost:
                reconnected = await live.reconnect()
        if lost:
            await self._reset(live)
        outcome = Outcome(ending, stopped, exit_code, signal_word, lost, reconnected)
        text = lines(
            *notes,
            background_section(exchange.earlier),
            notice_before(outcome, settings.timeout_s),
            output,
            notice_after(outcome, settings.trailer),
        )
        return CommandResult(
            text, exit_code, signal_word, stopped is Ending.EXPIRED, truncated, shell_reset=lost
        )


def _encoded(command: str) -> bytes:
    """The command as UTF-8; surrogate pairs are joined, lone surrogates become U+FFFD."""
    if "\0" in command:
        raise ValueError("the command contains a NUL character, which bash cannot hold")
    try:
        return command.encode()
    except UnicodeEncodeError:
        return command.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()

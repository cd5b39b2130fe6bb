"""The terminals of one session by name, and what the model is told about them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cordisd.errors import ToolError, nearest
from cordisd.shell.guardian import Guardian
from cordisd.shell.keys import key_bytes
from cordisd.shell.launch import Launch, ShellSpec
from cordisd.shell.output import Capture
from cordisd.shell.report import ending_of, lines, shown_output
from cordisd.shell.screen import Picture
from cordisd.shell.terminal import Stop, Terminal
from cordisd.shell.unread import compiled

TERM = "linux"
"""The terminal that pyte draws and `keys` are those of. It has no other screen that programs would leave at
their end, and vim, less or readline ask it nothing."""
_LAUNCH = 'cd -- "$1" && exec bash -c "$2"'
"""The second bash becomes the program itself when the command is a single one."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True, slots=True)
class TerminalSettings:
    """How programs are run and reported."""

    rows: int = 40
    columns: int = 160
    silence_s: float = 1.0
    timeout_s: float = 30.0
    max_timeout_s: float = 600.0
    max_output_chars: int = 16_000
    max_terminals: int = 4
    answer_queries: bool = True


@dataclass(frozen=True, slots=True)
class Waiting:
    """How long to wait for what."""

    pattern: str | None = None
    silence_s: float | None = None
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class _Criteria:
    """A `Waiting` that was checked, with the defaults."""

    pattern: Any
    silence_s: float | None
    limit_s: float


@dataclass(frozen=True, slots=True)
class TerminalResult:
    """What the model reads, and the facts behind it, each independent of the others."""

    text: str
    stop: Stop | None = None
    """Why the wait was over; None if there was none."""
    running: bool = True
    exit_code: int | None = None
    signal: str | None = None
    truncated: bool = False


class Terminals:
    """The terminals of one session; one call at a time.

    `realm` is the name under which the guardian knows their programs; `cwd` and `environment` are asked at
    each start.
    """

    def __init__(
        self,
        guardian: Guardian,
        realm: str,
        cwd: Callable[[], str],
        environment: Callable[[], dict[str, str]],
        settings: TerminalSettings | None = None,
        launch: Launch | None = None,
    ) -> None:
        self._guardian = guardian
        self._realm = realm
        self._cwd = cwd
        self._environment = environment
        self._settings = settings or TerminalSettings()
        self._launch = launch or Launch()
        self._terminals: dict[str, Terminal] = {}
        self._commands: dict[str, str] = {}

    async def start(self, name: str, command: str, waiting: Waiting, *, screen: bool) -> TerminalResult:
        """Run a command line in a new terminal, and wait.

        Raises:
            ToolError: the name is in use or no name, there are too many terminals, or `waiting` is wrong.
            ShellError: the program cannot be started.
        """
        criteria = self._criteria(waiting)
        if not _NAME.fullmatch(name):
            raise ToolError(f'"{name}" is no name of a terminal: use letters, digits, "_", "-" and "."')
        if not command.strip() or "\0" in command:
            raise ToolError("the command is empty" if "\0" not in command else "the command contains a NUL")
        earlier = self._terminals.get(name)
        if earlier is not None and earlier.exit_status is None:
            raise ToolError(f'terminal "{name}" is in use: it runs {self._commands[name]!r}; stop it first')
        if earlier is None and len(self._terminals) >= self._settings.max_terminals:
            raise ToolError(
                f"there are already {len(self._terminals)} terminals, the most allowed "
                f"({', '.join(self._terminals)}); stop one first, or start again in one that has ended"
            )
        spec = ShellSpec(
            self._realm,
            ["bash", "-c", _LAUNCH, "bash", self._cwd(), command.encode("utf-8", "replace").decode()],
            self._environment() | {"TERM": TERM},
            rows=self._settings.rows,
            columns=self._settings.columns,
            launch=self._launch,
            driven=False,
        )
        terminal = await Terminal.start(self._guardian, spec, answers=self._settings.answer_queries)
        self._terminals[name] = terminal
        self._commands[name] = command
        note = ""
        if earlier is not None and earlier.unread.has_text:
            note = "[The last program on this terminal left output that was never read; it is gone.]"
        return await self._wait(name, terminal, criteria, screen=screen, note=note)

    async def send(
        self, name: str, text: str | None, keys: list[str] | None, waiting: Waiting, *, screen: bool
    ) -> TerminalResult:
        """Type the text, where a newline is Enter, then press the keys, and wait.

        Raises:
            ToolError: there is nothing to send, no such terminal or key, the program has ended, or `waiting`
                is wrong; then nothing was typed.
        """
        criteria = self._criteria(waiting)
        terminal = self._terminal(name)
        if terminal.exit_status is not None:
            raise ToolError(f'nothing can be sent to terminal "{name}": {_state(terminal)}')
        typed = (text or "").replace("\r\n", "\r").replace("\n", "\r").encode("utf-8", "replace")
        typed += key_bytes(keys or [], application=terminal.application_keys)
        if not typed:
            raise ToolError('"send" needs text or keys')
        n_typed = await terminal.type(typed, criteria.limit_s)
        note = ""
        if n_typed < len(typed) and terminal.exit_status is None:
            note = f"[Only {n_typed:,} of {len(typed):,} bytes were sent: the program did not read more.]"
        return await self._wait(name, terminal, criteria, screen=screen, note=note)

    async def wait(self, name: str, waiting: Waiting, *, screen: bool) -> TerminalResult:
        """Wait, and report what is unread by then.

        Raises:
            ToolError: no such terminal, or `waiting` is wrong.
        """
        criteria = self._criteria(waiting)
        return await self._wait(name, self._terminal(name), criteria, screen=screen)

    async def read(self, name: str, *, screen: bool) -> TerminalResult:
        """What is unread, or the screen, without waiting.

        Raises:
            ToolError: no such terminal.
        """
        return await self._report(name, self._terminal(name), screen=screen)

    async def stop(self, name: str) -> TerminalResult:
        """End a program and all that it has started, and give up its terminal; reports what was unread.

        Raises:
            ToolError: no such terminal.
        """
        terminal = self._terminal(name)
        await terminal.hang_up()
        del self._terminals[name]
        return await self._report(name, terminal, screen=False, note="[Its terminal is closed.]")

    def list(self) -> str:
        """A line for every terminal: its name, how its program is, and its command."""
        rows = (
            f"{name}: {_state(terminal)}; {'with' if terminal.unread.has_text else 'no'} unread output; "
            f"command: {self._commands[name]}"
            for name, terminal in self._terminals.items()
        )
        return "\n".join(rows) or "There are no terminals."

    async def close(self) -> None:
        """End every program."""
        terminals = [*self._terminals.values()]
        self._terminals.clear()
        await asyncio.gather(*(terminal.close() for terminal in terminals))

    def _terminal(self, name: str) -> Terminal:
        terminal = self._terminals.get(name)
        if terminal is None:
            known = f"there are {', '.join(self._terminals)}" if self._terminals else "there are none"
            raise ToolError(
                f'no terminal "{name}"{nearest(name, self._terminals)}: {known}; use "start" '
                "(terminals do not outlive a restart of the session)"
            )
        return terminal

    def _criteria(self, waiting: Waiting) -> _Criteria:
        settings = self._settings
        limit_s = settings.timeout_s if waiting.timeout_s is None else waiting.timeout_s
        if not 0 <= limit_s <= settings.max_timeout_s:
            raise ToolError(f"timeout_seconds must be from 0 to {settings.max_timeout_s:g}")
        silence_s = waiting.silence_s
        if silence_s is not None and silence_s <= 0:
            raise ToolError("silence_seconds must be more than 0")
        if waiting.pattern is None:
            return _Criteria(None, settings.silence_s if silence_s is None else silence_s, limit_s)
        return _Criteria(compiled(waiting.pattern), silence_s, limit_s)

    async def _wait(
        self, name: str, terminal: Terminal, criteria: _Criteria, *, screen: bool, note: str = ""
    ) -> TerminalResult:
        stop = await terminal.wait(criteria.pattern, criteria.silence_s, criteria.limit_s)
        return await self._report(
            name, terminal, screen=screen, how=_how(stop, criteria), stop=stop, note=note
        )

    async def _report(
        self,
        name: str,
        terminal: Terminal,
        *,
        screen: bool,
        how: str = "",
        stop: Stop | None = None,
        note: str = "",
    ) -> TerminalResult:
        head = hint = ""
        picture = await terminal.picture() if screen else None
        if picture is not None or stop is not Stop.FOUND:
            terminal.unread.look_for(None)  # all is shown, or counts as shown, and not up to a match only
        if picture is not None:
            terminal.unread.consume()
            head, capture = _screen_line(picture), Capture()
            capture.append("\n".join(picture.rows).encode())
        else:
            capture = terminal.unread.consume()
            if terminal.take_rearranged():
                hint = "[The program moves about the screen; screen: true shows it as it looks.]"
        body, truncated = shown_output(capture, self._settings.max_output_chars, "headTail")
        exit_code, signal_word = ending_of(terminal.exit_status)
        text = lines(
            head,
            body or ("" if screen else "[no new output]"),
            "[end of the screen]" if screen else "",
            hint,
            note,
            f"[terminal {name}: {_state(terminal)}{how}]",
        )
        return TerminalResult(
            text, stop, terminal.exit_status is None, exit_code, signal_word, truncated=truncated
        )


def _how(stop: Stop, criteria: _Criteria) -> str:
    match stop:
        case Stop.FOUND:
            return "; the pattern was found"
        case Stop.SILENT:
            return f"; nothing was printed for {criteria.silence_s:g} s"
        case Stop.EXPIRED if criteria.pattern is None:
            return f"; it was not silent within the time limit of {criteria.limit_s:g} s"
        case Stop.EXPIRED:
            return f"; the pattern was not found within the time limit of {criteria.limit_s:g} s"
        case Stop.ENDED:
            return "; the pattern was not found" if criteria.pattern is not None else ""


def _screen_line(picture: Picture) -> str:
    return (
        f"[screen of {picture.n_rows} rows and {picture.n_columns} columns; "
        f"cursor at row {picture.row}, column {picture.column}]"
    )


def _state(terminal: Terminal) -> str:
    exit_code, signal_word = ending_of(terminal.exit_status)
    if signal_word is not None:
        return f"killed by signal {signal_word}"
    return "running" if exit_code is None else f"exited with code {exit_code}"

"""Entry `terminal`: a tool for programs that ask, draw or go on: REPLs, debuggers, editors, passwords."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pydantic import Field, model_validator

from cordisd.errors import ShellError, ToolError
from cordisd.events import JsonObject
from cordisd.kernel.entry import Entry, Lifetime
from cordisd.kernel.scope import Scope
from cordisd.services.secrets import SecretNames
from cordisd.services.tools import ToolCall, ToolRegistry, ToolResult, ToolSchema
from cordisd.session.realm import Realm
from cordisd.settings import EntryConfig, EnvironmentVariables, Milliseconds, PositiveInt
from cordisd.shell.environment import tool_environment

if TYPE_CHECKING:
    from cordisd.shell.terminals import TerminalResult, Terminals

DESCRIPTION = """\
Drive an interactive program on a terminal: a REPL, a debugger, a pager, an editor, a password prompt.
* `start` runs `command` in bash, `send` types `text` and then presses `keys`, `wait` only waits, `read` \
does not even that, `stop` ends the program and all that it has started, `list` shows the terminals.
* `start`, `send` and `wait` return when `pattern` is found in the new output, when nothing was printed for \
`silence_seconds`, when the program ends, or after `timeout_seconds`. Give the pattern of the prompt that \
comes next where you can, for example `>>> $`.
* The result is the output since the last one. If the pattern was found, it ends where the match ends; the \
rest stays for the next call. With `screen` it is the whole screen instead, for programs that draw on it; \
what is on the screen then counts as read.
* The last line of a result tells whether the program still runs."""

_PARAMETERS: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "action": {
            "type": "string",
            "enum": ["start", "send", "wait", "read", "stop", "list"],
            "description": "What to do.",
        },
        "name": {"type": "string", "description": "Which terminal; `main` if left out."},
        "command": {"type": "string", "description": "For `start`, required: the command line."},
        "text": {
            "type": "string",
            "description": "For `send`: typed as it is. A newline is the enter key: end a line with one to "
            "enter it.",
        },
        "keys": {
            "type": "array",
            "items": {"type": "string"},
            "description": "For `send`: keys to press after the text: enter, tab, escape, backspace, delete, "
            "up, down, left, right, home, end, page_up, page_down, f1 to f12, ctrl-c (any letter), alt-x "
            '(any character). For example ["escape", "ctrl-d"].',
        },
        "pattern": {
            "type": "string",
            "description": "For `start`, `send` and `wait`: regular expression (RE2) to wait for; for "
            "`send`, in what is printed from then on. ^ and $ are the ends of a line.",
        },
        "silence_seconds": {
            "type": "number",
            "description": "For `start`, `send` and `wait`: return when nothing was printed for so long. "
            "Without a pattern there is a default.",
        },
        "timeout_seconds": {
            "type": "number",
            "description": "For `start`, `send` and `wait`: return after this time at the latest. The "
            "program goes on.",
        },
        "screen": {"type": "boolean", "description": "Show the screen instead of the new output."},
    },
    "required": ["action"],
}
_WAITING = frozenset({"pattern", "silence_seconds", "timeout_seconds", "screen"})
_TAKEN: Final = {
    "start": frozenset({"command"}) | _WAITING,
    "send": frozenset({"text", "keys"}) | _WAITING,
    "wait": _WAITING,
    "read": frozenset({"screen"}),
    "stop": frozenset(),
    "list": frozenset(),
}
"""What each action takes beside `action` and `name`."""


class TerminalConfig(EntryConfig):
    """Configuration of the terminal tool."""

    rows: int = Field(default=40, ge=2, le=500)
    """Height of the screen."""
    columns: int = Field(default=160, ge=10, le=1000)
    """Width of the screen."""
    silence_ms: Milliseconds = Field(default=1000, gt=0)
    """How long nothing must have been printed where a call names neither a pattern nor a silence."""
    timeout_ms: Milliseconds = Field(default=30_000, gt=0)
    """How long a call waits where it does not say."""
    max_timeout_ms: Milliseconds = Field(default=600_000, gt=0)
    """The longest wait that a call may ask for."""
    max_output_chars: PositiveInt = 16_000
    """Characters of output, or of the screen, that one result shows; notices come on top."""
    max_terminals: PositiveInt = 4
    """How many terminals a session may have, those of ended programs included until they are stopped."""
    answer_queries: bool = True
    """Whether the terminal answers when a program asks for the cursor's place or the kind of terminal.

    Programs of prompt_toolkit (ipython) complain without it. Nothing is answered while the program reads by
    lines: then the question was in something printed, a binary file for instance.
    """
    env: EnvironmentVariables = {}
    """Variables to set for the programs. TERM stays that of the terminal."""
    pass_env: list[str] = []
    """Variables to pass on although they look like secrets of the daemon."""
    description: str = Field(default=DESCRIPTION, pattern=r"\S")
    """What the model is told about the tool."""

    @model_validator(mode="after")
    def _has_libraries(self) -> TerminalConfig:
        if any(find_spec(name) is None for name in ("pexpect", "pyte", "re2")):
            raise ValueError("the terminal's libraries are not installed: pip install 'cordisd[terminal]'")
        if self.timeout_ms > self.max_timeout_ms:
            raise ValueError("timeoutMs must not be more than maxTimeoutMs")
        return self


class TerminalTool:
    """The tool `terminal` of one session. What it needs is imported at the first call."""

    parallel_safe = False
    contract = 1

    def __init__(self, make: Callable[[], Terminals], description: str) -> None:
        self.schema = ToolSchema("terminal", description, _PARAMETERS)
        self._make = make
        self._terminals: Terminals | None = None

    async def run(self, arguments: JsonObject, call: ToolCall) -> ToolResult:
        """Carry out `arguments["action"]`; a program that fails is an ordinary result.

        Raises:
            ToolError: the action cannot be carried out; nothing was done.
        """
        action: str = arguments["action"]
        given = arguments.keys() - {"action", "name"}
        if unfit := sorted(given - _TAKEN[action] & _PARAMETERS["properties"].keys()):
            takes = ", ".join(sorted(_TAKEN[action])) or "nothing"
            raise ToolError(f'"{action}" does not take {", ".join(unfit)}; beside name it takes {takes}')
        if self._terminals is None:
            await asyncio.to_thread(import_module, "cordisd.shell.terminals")  # 0.1 s
            self._terminals = self._terminals or self._make()
        if action == "list":
            return ToolResult(self._terminals.list())
        try:
            result = await self._act(self._terminals, action, arguments)
        except ShellError as failure:
            raise ToolError(str(failure)) from failure
        return ToolResult(result.text, meta=_facts(result))

    async def close(self) -> None:
        """End every program."""
        if self._terminals is not None:
            await self._terminals.close()

    async def _act(self, terminals: Terminals, action: str, arguments: JsonObject) -> TerminalResult:
        from cordisd.shell.terminals import Waiting

        name: str = arguments.get("name", "main")
        screen: bool = arguments.get("screen", False)
        waiting = Waiting(
            arguments.get("pattern"), arguments.get("silence_seconds"), arguments.get("timeout_seconds")
        )
        match action:
            case "start":
                if "command" not in arguments:
                    raise ToolError('"start" needs a command')
                return await terminals.start(name, arguments["command"], waiting, screen=screen)
            case "send":
                return await terminals.send(
                    name, arguments.get("text"), arguments.get("keys"), waiting, screen=screen
                )
            case "wait":
                return await terminals.wait(name, waiting, screen=screen)
            case "read":
                return await terminals.read(name, screen=screen)
            case _:
                return await terminals.stop(name)


class TerminalEntry(Entry):
    """Offers the tool `terminal` to a session."""

    Config = TerminalConfig
    lifetime: ClassVar[Lifetime] = "session"
    needs: ClassVar[tuple[type[object], ...]] = (Realm, ToolRegistry)

    @asynccontextmanager
    async def mount(self, scope: Scope) -> AsyncIterator[None]:
        """Add the tool; on the way out take it back and end its programs with all that they started."""
        realm = scope.get(Realm)
        guardian = realm.guardian
        if guardian is None:
            raise ShellError('entry "terminal" needs a guardian, but this daemon was started without one')
        config: TerminalConfig = self.config
        secrets = scope.find(SecretNames)

        def environment() -> dict[str, str]:
            return tool_environment(
                os.environ,
                secret_names=secrets.names if secrets else (),
                pass_names=config.pass_env,
                extra={**(user.environment if (user := realm.launch.user) else {}), **config.env},
                attended=True,
            )

        def make() -> Terminals:
            from cordisd.shell.terminals import Terminals, TerminalSettings

            settings = TerminalSettings(
                rows=config.rows,
                columns=config.columns,
                silence_s=config.silence_ms / 1000,
                timeout_s=config.timeout_ms / 1000,
                max_timeout_s=config.max_timeout_ms / 1000,
                max_output_chars=config.max_output_chars,
                max_terminals=config.max_terminals,
                answer_queries=config.answer_queries,
            )
            return Terminals(
                guardian, realm.session_id, lambda: realm.cwd, environment, settings, realm.launch
            )

        tool = TerminalTool(make, config.description)
        remove = scope.get(ToolRegistry).add(tool)
        try:
            yield
        finally:
            remove()
            await tool.close()


def _facts(result: TerminalResult) -> JsonObject:
    """What the log notes beside the text."""
    facts: dict[str, Any] = {
        "stop": result.stop.name.lower() if result.stop else None,
        "exitCode": result.exit_code,
        "signal": result.signal,
        "truncated": result.truncated or None,
    }
    return {"running": result.running} | {name: fact for name, fact in facts.items() if fact is not None}

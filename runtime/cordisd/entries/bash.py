"""Entry `bash`: the tool that runs commands in the session's persistent shell."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import ClassVar

from pydantic import Field, field_validator, model_validator

from cordisd.errors import ShellError, ToolError
from cordisd.events import JsonObject
from cordisd.kernel.entry import Entry, Lifetime
from cordisd.kernel.scope import Scope
from cordisd.services.secrets import SecretNames
from cordisd.services.tools import ToolCall, ToolRegistry, ToolResult, ToolSchema
from cordisd.session.realm import Realm
from cordisd.settings import EntryConfig, EnvironmentVariables, Milliseconds, NonNegativeInt, PositiveInt
from cordisd.shell.bash import Bash, BashSettings, OnTimeout
from cordisd.shell.driver import Stdin
from cordisd.shell.environment import tool_environment
from cordisd.shell.launch import Launch, Resource, find_user
from cordisd.shell.report import CommandResult, Trailer, Truncation
from cordisd.shell.spill import SpillFolder

DESCRIPTION = """\
Run commands in a bash shell.
* The command reaches bash exactly as written; it needs no XML escaping.
* The shell is persistent: its directory, variables, functions and background jobs stay between calls. \
`exit` makes the next call start in a fresh one.
* Commands read no input: anything that asks a question gets end of file. Use flags such as `-y`.
* To see a part of a file, print a range of lines, for example `sed -n 10,25p path/to/file`.
* Avoid commands that print very much; the middle of long output is left out.
* Run servers and other long tasks in the background, for example `sleep 60 > sleep.log 2>&1 &`."""


_MIN_FILES = 256


class BashConfig(EntryConfig):
    """Configuration of the bash tool."""

    timeout_ms: Milliseconds = Field(default=300_000, gt=0)
    """Longest time that one command may take, the start of the shell included."""
    max_output_chars: PositiveInt = 16_000
    """Characters of a command's output that the model sees; notices come on top."""
    description: str = Field(default=DESCRIPTION, pattern=r"\S")
    """What the model is told about the tool."""
    trailer: Trailer = "reference"
    """`reference`: the exit code is shown if it is not 0; `always`: it is always shown."""
    truncation: Truncation = "headTail"
    """Long output: `headTail` keeps its beginning and its end, `reference` its beginning only."""
    on_timeout: OnTimeout = "keep"
    """After a timeout: `keep` the shell with its state if it can be, or `reset` it."""
    stdin: Stdin = "null"
    """What commands read: `null` is /dev/null, `tty` the terminal, where nobody types."""
    input_wait_ms: Milliseconds = Field(default=10_000, gt=0)
    """How long a command may wait silently for terminal input before it is stopped."""
    env: EnvironmentVariables = {}
    """Variables to set in the shell."""
    pass_env: list[str] = []
    """Variables to pass on although they look like secrets of the daemon."""
    spill_dir: str | None = Field(default=None, pattern="^/")
    """Absolute path of a folder for whole copies of outputs that are too long to show; made if it is missing.
    The result names the file, which `user` may read and which is removed when the session ends; what a killed
    daemon leaves there stays. Behind a launcher (`argv`) it must be seen under the same path to be of use."""
    spill_max_bytes: PositiveInt = 268_435_456
    """Of all copies of one session together; what comes after is not copied, and the result says so."""
    rlimits: dict[Resource, NonNegativeInt] = {}
    """Resource limits of the shell and of what it starts, soft and hard, by their names in `prlimit`: `as`,
    `core`, `cpu`, `data`, `fsize`, `memlock`, `nofile`, `nproc`, `stack`; in bytes, seconds or numbers as in
    setrlimit(2). `nofile` must be at least 256, where the shell's own descriptors are. `nproc` does not bind
    root."""
    user: str | NonNegativeInt | None = None
    """Name or number of the user who runs the shell and edits the files; null for the daemon's own. Another
    one needs a daemon of root. It is the only real boundary between the model and the daemon. An editor that
    is isolated from the shell (`isolate: {fs: true}` on one of them) works as the daemon's user."""
    argv: list[str] = []
    """A launcher, such as `[chroot, /srv/image]` or `[bwrap, --bind, /, /, --]`: bash's own command line is
    put behind it. It must keep the terminal and all descriptors; `/proc` and `/dev/tty` must be there. The
    editor follows the shell inside, unless the two are isolated from each other."""

    @model_validator(mode="after")
    def _copies_are_named_where_the_middle_is_left_out(self) -> BashConfig:
        if self.spill_dir and self.truncation == "reference":
            raise ValueError("spillDir needs truncation: headTail, whose notice names the copy")
        return self

    @field_validator("rlimits")
    @classmethod
    def _room_for_the_shell(cls, limits: dict[Resource, int]) -> dict[Resource, int]:
        if limits.get("nofile", _MIN_FILES) < _MIN_FILES:
            raise ValueError(f"nofile must be at least {_MIN_FILES}, where the shell's own descriptors are")
        return limits


class BashTool:
    """The tool `bash` of one session. The shell starts at the first call."""

    parallel_safe = False
    contract = 1

    def __init__(self, shell: Bash, realm: Realm, schema: ToolSchema) -> None:
        self.schema = schema
        self._shell = shell
        self._realm = realm

    async def run(self, arguments: JsonObject, call: ToolCall) -> ToolResult:
        """Run `arguments["command"]`; a failing command is an ordinary result.

        Raises:
            ToolError: the command is blank or holds a NUL, or no shell can be started.
        """
        command: str = arguments["command"]
        if not command.strip():
            raise ToolError("the command is empty: it must hold at least one character that is not a space")
        if self._realm.restored:
            self._realm.restored = False
            self._shell.announce_reset()
        try:
            result = await self._shell.run(command)
        except (ShellError, ValueError) as failure:
            raise ToolError(str(failure)) from failure
        return ToolResult(result.text, meta=_facts(result))


class BashEntry(Entry):
    """Offers the tool `bash` to a session."""

    Config = BashConfig
    lifetime: ClassVar[Lifetime] = "session"
    needs: ClassVar[tuple[type[object], ...]] = (Realm, ToolRegistry)

    def __init__(self, config: BashConfig) -> None:
        super().__init__(config)
        self._pass_names = config.pass_env
        self._extra = config.env
        self._spill_dir = config.spill_dir
        self._spill_max_bytes = config.spill_max_bytes
        self._user = config.user
        self._argv = tuple(config.argv)
        self._rlimits = config.rlimits
        self._settings = BashSettings(
            timeout_s=config.timeout_ms / 1000,
            max_output_chars=config.max_output_chars,
            trailer=config.trailer,
            truncation=config.truncation,
            on_timeout=config.on_timeout,
            stdin=config.stdin,
            input_wait_s=config.input_wait_ms / 1000,
        )
        self._schema = _schema(config.description)

    @asynccontextmanager
    async def mount(self, scope: Scope) -> AsyncIterator[None]:
        """Add the tool; on the way out take it back and end the shell with all that it started."""
        realm = scope.get(Realm)
        if realm.guardian is None:
            raise ShellError('entry "bash" needs a guardian, but this daemon was started without one')
        secrets = scope.find(SecretNames)
        user = None if self._user is None else find_user(self._user)
        realm.launch = Launch(self._argv, user, self._rlimits)

        def environment() -> dict[str, str]:
            return tool_environment(
                os.environ,
                secret_names=secrets.names if secrets else (),
                pass_names=self._pass_names,
                extra={**(user.environment if user else {}), **self._extra},
            )

        spills = None
        if self._spill_dir:
            spills = SpillFolder(self._spill_dir, realm.session_id, self._spill_max_bytes, user)
        shell = Bash(
            realm.guardian, realm.session_id, realm.cwd, environment, self._settings, realm.launch, spills
        )
        if realm.launch.is_elsewhere:
            realm.place = shell.place
        remove = scope.get(ToolRegistry).add(BashTool(shell, realm, self._schema))
        stop_following = realm.on_move(shell.move)
        try:
            yield
        finally:
            stop_following()
            remove()
            try:
                await shell.close()
            finally:
                if spills:
                    spills.close()


def _schema(description: str) -> ToolSchema:
    command = {"type": "string", "description": "The command to run. Prefer relative paths."}
    return ToolSchema(
        "bash", description, {"type": "object", "properties": {"command": command}, "required": ["command"]}
    )


def _facts(result: CommandResult) -> JsonObject | None:
    """What the log notes beside the text; None for an ordinary success."""
    facts = {
        "exitCode": result.exit_code,
        "signal": result.signal,
        "timedOut": result.timed_out,
        "truncated": result.truncated,
        "shellReset": result.shell_reset,
    }
    return {name: fact for name, fact in facts.items() if fact} or None

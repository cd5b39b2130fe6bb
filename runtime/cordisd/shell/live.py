"""One running bash: its terminal, its control pipe, and the exchange in progress."""

from __future__ import annotations

import asyncio
import math
import os

from cordisd.errors import ShellError
from cordisd.shell import driver
from cordisd.shell.driver import Stdin, Token
from cordisd.shell.exchange import Ending, Exchange, background_capture
from cordisd.shell.guardian import Guardian, Moment, SpawnedShell
from cordisd.shell.launch import Place, ShellSpec, place_of
from cordisd.shell.output import Capture
from cordisd.shell.pty import Pty
from cordisd.shell.watch import Sight, Watch, target_of

_FLUSH_LIMIT_S = 0.25
"""How long terminal bytes may lag behind the control record that followed them."""
_SILENCE_S = 0.02
_START_LIMIT_S = 20.0


class LiveShell:
    """A bash on its terminal. One exchange at a time; the caller holds the lock."""

    def __init__(self, spawned: SpawnedShell, guardian: Guardian, spec: ShellSpec) -> None:
        self.pid = spawned.pid
        """Of bash itself, which a launcher may have put below the process that was spawned."""
        self.background = background_capture()
        """What the terminal has printed since the last exchange."""
        self.has_arrived = True
        """Whether it could start where it was to."""
        self.exit_status: int | None = None
        """The wait status, once dead."""
        self._pty = Pty(spawned.master_fd, spec.rows, spec.columns, self._take, self._on_hang_up)
        self._control_fd = spawned.control_fd
        self._command_fd = spawned.command_fd
        self.place: Place | None = None
        """Where it is, if that is not where the daemon is, or as another user."""
        self._guardian = guardian
        self._spawned_pid = spawned.pid
        self._command_bytes = 0
        self._traced = False
        """Whether bash traced its lines after the last command."""
        self._stdin: Stdin = "null"
        self._watch: Watch | None = None
        """None until the shell has started."""
        self._loop = asyncio.get_running_loop()
        self._control = ""
        self._exchange: Exchange | None = None
        self._records = b""
        self._n_prompts_due = 0
        """P records still to come from lines that are known to be over."""
        self._hung_up = False
        self._closed = False
        self._loop.add_reader(self._control_fd, self._on_control)
        spawned.exited.add_done_callback(self._on_exit)

    @classmethod
    async def start(
        cls, guardian: Guardian, spec: ShellSpec, cwd: str, stdin: Stdin, input_wait_s: float = math.inf
    ) -> LiveShell:
        """A bash at its first prompt, in `cwd` or the nearest ancestor that can be entered.

        Calls end as `WAITING` after about `input_wait_s` without output in a read from the terminal.

        Raises:
            ShellError: it could not be started.
        """
        spawned = await guardian.spawn(spec)
        shell = cls(spawned, guardian, spec)
        token = Token()
        os.pwrite(shell._command_fd, driver.setup_file(token, cwd), 0)
        exchange = shell._begin(token, sync=True)
        shell._type(driver.START_LINE)
        try:
            ending = await exchange.done
        except asyncio.CancelledError:
            await shell.end()
            raise
        if ending is not Ending.PROMPTED:
            await shell.end()
            shown = exchange.capture.head()[-500:].decode(errors="replace").strip()
            raise ShellError(
                f"{spec.program} {ending.value} at its start; it printed: {shown or '(nothing)'}"
            )
        if spec.launch.argv:  # an interactive bash leads the group that has the terminal
            shell.pid = shell.foreground or spawned.pid
        if spec.launch.is_elsewhere:
            shell.place = place_of(shell.pid)
        shell._stdin = stdin
        shell._control = target_of(shell.pid, driver.CONTROL_FD)
        terminals = (target_of(shell.pid, 0), "/dev/tty")
        shell._watch = Watch(shell.pid, shell._pty, terminals, input_wait_s)
        shell.has_arrived = exchange.status == 0
        if spec.launch.argv:
            await shell.reconnect()
        return shell

    def call(self, command: bytes, last_status: int, capture: Capture | None = None) -> Exchange:
        """Start a command whose `$?` begins with `last_status`, and whose output goes to `capture`.

        `done` of the exchange tells the end.
        """
        token = Token()
        text = memoryview(driver.command_file(token, command, last_status))
        os.ftruncate(self._command_fd, 0)
        offset = 0
        while offset < len(text):
            offset += os.pwrite(self._command_fd, text[offset:], offset)
        os.lseek(self._command_fd, 0, os.SEEK_SET)  # bash reads through the same open file
        self._command_bytes = len(text)
        exchange = self._begin(token)
        exchange.capture = capture or exchange.capture
        self._type(driver.call_line(token, self._stdin))
        return exchange

    def limit(self, exchange: Exchange, limit_s: float) -> asyncio.Future[Ending]:
        """`exchange.done`, which from now on gives `EXPIRED` after `limit_s`; may be called again."""
        if exchange is self._exchange:
            if exchange.done.done():
                exchange.done = self._loop.create_future()
            exchange.after("limit", limit_s, exchange.stop_waiting, Ending.EXPIRED)
        return exchange.done

    def interrupt(self) -> None:
        """SIGINT to the foreground process group.

        It waits until bash has read the whole line of a call: of a line cut by a signal, bash would take the
        rest for a command.
        """
        exchange = self._exchange
        if exchange is not None and not exchange.begun:
            exchange.interrupt_due = True
            return
        self._pty.interrupt()

    @property
    def foreground(self) -> int | None:
        """The process group that has the terminal: `pid` while bash is busy by itself."""
        return self._pty.foreground()

    async def kill_since(self, moment: Moment) -> None:
        """End every process that the shell has started since `moment`."""
        await self._guardian.kill_since(self._spawned_pid, moment)

    async def settle(self) -> bool:
        """Prove that the shell is at its prompt, after an interrupt that may have hit a typed line."""
        token = Token()
        return await self._synchronise(token, driver.sync_line(token), first=b"") is not None

    async def cure(self) -> None:
        """Undo what keeps bash from understanding our lines."""
        token = Token()
        await self._synchronise(token, driver.sync_line(token), first=driver.CURE)

    async def reconnect(self) -> list[str]:
        """Lead stdout and stderr to the terminal again, unless a pipe does that; those that did not.

        /proc may show a moment of our own lines, so bash has the last word.
        """
        names = []
        for fd, name in ((1, "stdout"), (2, "stderr")):
            target = target_of(self.pid, fd)
            if target == self._control or not target.startswith("pipe:"):
                names.append(name)
        token = Token()
        status = await self._synchronise(token, driver.reconnect_line(token, names))
        return [name for bit, name in ((1, "stdout"), (2, "stderr")) if (status or 0) & bit]

    async def _synchronise(self, token: Token, line: bytes, *, first: bytes | None = None) -> int | None:
        """The status of record R of a line without a command; None when it never came.

        `first`: lines to type before, if only an empty one, because an interrupt may be pending. What jobs
        print meanwhile is background output like any other.
        """
        exchange = self._begin(token, sync=True)
        if first is not None:
            exchange.cured = bool(first)
            self._type_after_interrupt(first)
        self._type(line)
        ending = await exchange.done
        self.background.append(exchange.capture.head())
        self.background.append(exchange.capture.tail())
        return exchange.status if ending is Ending.PROMPTED else None

    async def end(self) -> None:
        """End the shell and everything that it started, and release it."""
        try:
            if self.exit_status is None:
                await self._guardian.end_shell(self._spawned_pid)
        finally:
            self._release()

    def _release(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._pty.close()
        self._loop.remove_reader(self._control_fd)
        os.close(self._control_fd)
        os.close(self._command_fd)
        if self._exchange is not None:
            self._finish(self._exchange, Ending.DIED)

    def _begin(self, token: Token, *, sync: bool = False) -> Exchange:
        exchange = self._exchange = Exchange(token, self._loop, sync=sync, traced=self._traced)
        if self.exit_status is not None:
            self._loop.call_soon(self._finish, exchange, Ending.DIED)
        elif self._watch is not None:
            exchange.after("watch", self._watch.begin(), self._look, exchange)
        else:
            exchange.after("watch", _START_LIMIT_S, self._finish, exchange, Ending.BROKEN)
        return exchange

    def _type(self, line: bytes) -> None:
        self._pty.restore()
        if not self._pty.type(line) and self._exchange is not None and self.exit_status is None:
            self._loop.call_soon(self._finish, self._exchange, Ending.BROKEN)

    def _type_after_interrupt(self, line: bytes) -> None:
        """Type an empty line first: an interrupt that bash noted before a read costs the first byte it reads.

        Either way the empty line ends in one prompt record.
        """
        self._n_prompts_due += 1
        self._type(b"\n" + line)

    def _on_hang_up(self) -> None:
        self._hung_up = True
        if self._exchange is not None and self.exit_status is not None:
            self._finish(self._exchange, Ending.DIED)

    def _take(self, data: bytes) -> None:
        exchange = self._exchange
        if exchange is None:
            self.background.append(data)
            return
        self.background = exchange.take(data, self.background)
        if exchange.interrupt_due and exchange.begun:
            exchange.interrupt_due = False
            if not exchange.n_marks:
                self.interrupt()
        if exchange.draining:
            exchange.after("silence", _SILENCE_S, self._conclude, exchange)
        elif exchange.n_marks:
            self._read_records()
            self._check(exchange)
        elif exchange.n_records:  # the end mark is still on its way
            exchange.after("flush", _FLUSH_LIMIT_S, self._conclude, exchange)

    def _on_control(self) -> None:
        self._read_records()
        if self._exchange is not None:
            self._check(self._exchange)

    def _read_records(self) -> None:
        try:
            data = os.read(self._control_fd, 4096)
        except BlockingIOError:
            return
        if not data:  # the shell has closed it; the guardian will tell whether it is dead
            self._loop.remove_reader(self._control_fd)
            return
        records, self._records = driver.records(self._records + data)
        for kind, token, status in records:
            if kind == b"P":
                self._on_prompt(status)
                continue
            self._n_prompts_due += kind != b"T"
            if self._exchange is not None and token == self._exchange.token.text:
                self._on_record(self._exchange, kind, status)

    def _on_prompt(self, status: int) -> None:
        exchange = self._exchange
        if self._n_prompts_due:
            self._n_prompts_due -= 1
        elif exchange is not None and not (exchange.finished or exchange.synced or exchange.cured):
            # Either the line was aborted, or this prompt is older than the line. The answer to another
            # line tells: it comes alone, or after the record of the first.
            exchange.status = status
            exchange.aborted = exchange.sync_typed = True
            self._type_after_interrupt(driver.sync_line(exchange.token))

    def _on_record(self, exchange: Exchange, kind: bytes, status: int) -> None:
        if kind == b"L":
            self._finish(exchange, Ending.BROKEN)
            return
        if kind == b"T":
            self._traced = os.fstat(self._command_fd).st_size > self._command_bytes
            exchange.traced = self._traced
            exchange.redirected = status == 0
            return
        exchange.n_records += 1
        if kind == b"S":
            exchange.finished = True
            exchange.status = status
        else:
            exchange.synced = True
            if not exchange.finished and not exchange.aborted:
                exchange.status = status
        exchange.after("flush", _FLUSH_LIMIT_S, self._conclude, exchange)

    def _check(self, exchange: Exchange) -> None:
        """End the exchange if it is complete and nothing more can come."""
        if exchange.draining or not exchange.complete:
            return
        if exchange.redirected:
            # Output may still be on its way through another process: `exec > >(tee log)`.
            exchange.drain()
            exchange.after("silence", _SILENCE_S, self._conclude, exchange)
        else:
            self._conclude(exchange)

    def _conclude(self, exchange: Exchange) -> None:
        self._finish(exchange, Ending.FINISHED if exchange.finished else Ending.PROMPTED)

    def _finish(self, exchange: Exchange, ending: Ending) -> None:
        if exchange is self._exchange:
            self._exchange = None
            exchange.finish(ending, self.background)

    def _on_exit(self, exited: asyncio.Future[int]) -> None:
        self.exit_status = exited.result()
        exchange = self._exchange
        if exchange is None:
            return
        if self._hung_up:
            self._finish(exchange, Ending.DIED)
        else:
            exchange.after("flush", _FLUSH_LIMIT_S, self._finish, exchange, Ending.DIED)

    def _look(self, exchange: Exchange) -> None:
        if exchange is not self._exchange or self.exit_status is not None or self._watch is None:
            return
        sight, wait_s = self._watch.look(exchange, self._loop.time())
        match sight:
            case Sight.SILENT:
                exchange.sync_typed = exchange.cured = True
                self._type_after_interrupt(driver.CURE)
                self._type(driver.sync_line(exchange.token))
            case Sight.BROKEN:
                self._finish(exchange, Ending.BROKEN)
                return
            case Sight.WAITING:
                exchange.stop_waiting(Ending.WAITING)
        exchange.after("watch", wait_s, self._look, exchange)

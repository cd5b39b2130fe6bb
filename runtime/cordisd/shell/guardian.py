"""The daemon's side of the guardian, the small process that is parent and reaper of every shell.

It is forked before the daemon grows, so that starting a shell stays cheap and threads in the daemon are
safe, and it outlives the daemon by the moment it takes to kill what the daemon left (`process.py`).
This module is imported before the fork: light standard library only.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cordisd.errors import ShellError
from cordisd.shell.launch import Place, ShellSpec

if TYPE_CHECKING:
    import asyncio

_CLOSE_LIMIT_S = 2.0
_ANSWER_LIMIT_S = 3.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class SpawnedShell:
    """A shell on its own terminal. The receiver closes the descriptors; they do not block."""

    pid: int
    master_fd: int
    control_fd: int
    """Read end of the pipe whose write end is `driver.CONTROL_FD` in the shell; -1 unless it is driven."""
    command_fd: int
    """A memfd shared with the shell, whose end is `driver.COMMAND_FD`; -1 unless it is driven."""
    exited: asyncio.Future[int]
    """The wait status, once the shell and all that it had started are gone."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time that tells processes started before it from those after, as exactly as /proc can."""

    ticks: int
    """Clock ticks after boot, the unit of process start times."""
    last_pid: int
    """The newest pid then; decides within the tick."""

    @classmethod
    def now(cls) -> Moment:
        with open("/proc/loadavg", "rb", buffering=0) as file:
            last_pid = int(file.read(128).rpartition(b" ")[2])
        return cls(int(time.clock_gettime(time.CLOCK_BOOTTIME) * _TICKS_PER_S), last_pid)


class Guardian:
    """Starts shells and ends them. Made by `fork`; attaches to the running loop at first use."""

    def __init__(self, pid: int, connection: socket.socket) -> None:
        self.pid = pid
        self._connection = connection
        self._loop: asyncio.AbstractEventLoop | None = None
        self._replies: dict[int, Callable[[dict[str, Any], list[int]], None]] = {}
        self._exits: dict[int, asyncio.Future[int]] = {}
        self._last_id = 0
        self._outbox: deque[tuple[bytes, list[int]]] = deque()
        """Requests that are not sent yet, with the descriptors that go with them."""
        self._ending: asyncio.Task[None] | None = None
        self._lost: str | None = None
        """Why no request can be made any more."""

    @classmethod
    def fork(cls) -> Guardian:
        """Start the guardian now. Call it before heavy imports, threads and the event loop."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Blocked until the child has left the terminal's reach, which takes it some imports.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
        pid = os.fork()
        if pid == 0:
            try:
                os.setsid()
                ours.close()
                from cordisd.shell.process import serve  # ptyprocess and ctypes: only in the child

                serve(theirs)
            finally:
                os._exit(1)  # never run on as a second daemon
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        theirs.close()
        ours.setblocking(False)
        return cls(pid, ours)

    async def spawn(self, spec: ShellSpec) -> SpawnedShell:
        """A running shell. When the caller is cancelled meanwhile, the shell is ended at once.

        Raises:
            ShellError: it could not be started, or the guardian is gone.
        """
        import asyncio

        loop = self._attach()
        answer: asyncio.Future[SpawnedShell] = loop.create_future()

        def receive(message: dict[str, Any], fds: list[int]) -> None:
            if "error" in message:
                if not answer.done():
                    answer.set_exception(ShellError(f"cannot start a shell: {message['error']}"))
                return
            pid = message["pid"]
            if answer.done():  # cancelled
                for fd in fds:
                    os.close(fd)
                self._request({"op": "end", "pid": pid}, lambda *_: None)
                return
            if len(fds) != (3 if spec.driven else 1):
                for fd in fds:
                    os.close(fd)
                self._request({"op": "end", "pid": pid}, lambda *_: None)
                answer.set_exception(
                    ShellError("cannot start a shell: the daemon is out of file descriptors")
                )
                return
            for fd in fds:
                os.set_blocking(fd, False)
            exited = self._exits[pid] = loop.create_future()
            master_fd, control_fd, command_fd = fds if spec.driven else [*fds, -1, -1]
            answer.set_result(SpawnedShell(pid, master_fd, control_fd, command_fd, exited))

        # A memfd, because an environment may be larger than a packet.
        spec_fd = os.memfd_create("spec", os.MFD_CLOEXEC)
        try:
            with os.fdopen(spec_fd, "wb", closefd=False) as file:
                file.write(json.dumps(spec.as_json()).encode())
            self._request({"op": "spawn"}, receive, [spec_fd])
        finally:
            os.close(spec_fd)
        try:
            return await answer
        except asyncio.CancelledError:
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                self._discard(answer.result())  # reply and cancellation have met
            raise

    def _discard(self, spawned: SpawnedShell) -> None:
        for fd in {spawned.master_fd, spawned.control_fd, spawned.command_fd} - {-1}:
            os.close(fd)
        self._request({"op": "end", "pid": spawned.pid}, lambda *_: None)

    async def enter(self, realm: str, place: Place, *, main: str) -> socket.socket:
        """Our end of a socket to a new process that runs `main` ("module:function") in a place of `realm`.

        That is: in its namespaces, below its root, as its user. It belongs to `realm` and ends with the
        socket. The function gets the other end, and why the process could not get there, if it could not.

        Raises:
            ShellError: no process can be started, or the guardian is gone.
        """
        import asyncio

        ours, theirs = socket.socketpair()
        answer: asyncio.Future[None] = self._attach().create_future()

        def receive(message: dict[str, Any], _: list[int]) -> None:
            if answer.done():  # cancelled
                return
            if "error" in message:
                answer.set_exception(ShellError(f"cannot start a process: {message['error']}"))
            else:
                answer.set_result(None)

        try:
            with theirs:
                self._request(
                    {"op": "enter", "realm": realm, "place": place, "main": main}, receive, [theirs.fileno()]
                )
            async with asyncio.timeout(_ANSWER_LIMIT_S):
                await answer
        except TimeoutError as failure:
            ours.close()
            raise self._silent() from failure
        except BaseException:
            ours.close()
            raise
        ours.setblocking(False)
        return ours

    async def kill_since(self, shell_pid: int, moment: Moment) -> None:
        """End what a shell has started since `moment`, TERM first; the shell itself goes on."""
        await self._ask(
            {"op": "kill_since", "pid": shell_pid, "ticks": moment.ticks, "last_pid": moment.last_pid}
        )

    async def end_shell(self, shell_pid: int) -> None:
        """End one shell and everything that it started. Returns when they are gone, in about 1 s at most."""
        await self._ask({"op": "end", "pid": shell_pid})

    async def close_realm(self, realm: str) -> None:
        """End every shell of a realm and everything that they started, in about 1 s at most."""
        if self._loop is not None:
            await self._ask({"op": "end", "realm": realm})

    async def close(self) -> None:
        """End the guardian and every process below it. Calling it again does nothing."""
        import asyncio

        if self._lost is None:
            self._lose("it was closed")
        if self._ending is not None:
            await self._ending
            self.pid = 0
        if self.pid == 0:
            return
        pid, self.pid = self.pid, 0
        loop = asyncio.get_running_loop()
        gone = loop.create_future()
        handle = os.pidfd_open(pid)
        loop.add_reader(handle, _set, gone)
        try:
            async with asyncio.timeout(_CLOSE_LIMIT_S):
                await gone
            os.waitid(os.P_PIDFD, handle, os.WEXITED | os.WNOHANG)  # noqa: ASYNC222, it does not block
        except TimeoutError as failure:
            raise ShellError(f"the guardian (pid {pid}) did not end in {_CLOSE_LIMIT_S:g} s") from failure
        finally:
            loop.remove_reader(handle)
            os.close(handle)

    async def _ask(self, message: dict[str, Any]) -> None:
        """Have something ended. Without a guardian there is nothing left to end.

        Raises:
            ShellError: the guardian does not answer, because it was stopped for instance.
        """
        import asyncio

        if self._lost is None:
            answer: asyncio.Future[None] = self._attach().create_future()
            self._request(message, lambda *_: _set(answer))
            try:
                async with asyncio.timeout(_ANSWER_LIMIT_S):
                    await answer
            except TimeoutError as failure:
                raise self._silent() from failure

    def _silent(self) -> ShellError:
        return ShellError(f"the guardian (pid {self.pid}) did not answer in {_ANSWER_LIMIT_S:g} s")

    def _attach(self) -> asyncio.AbstractEventLoop:
        import asyncio

        if self._lost is not None:
            raise ShellError(self._lost)
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._connection, self._receive)
            self._loop.call_soon(_inherit)  # while the first shell starts
        return self._loop

    def _request(
        self,
        message: dict[str, Any],
        receive: Callable[[dict[str, Any], list[int]], None],
        fds: list[int] | None = None,
    ) -> None:
        self._last_id += 1
        self._replies[self._last_id] = receive
        # The caller closes its descriptors, and the guardian may be busy.
        kept = [os.dup(fd) for fd in fds or []]
        self._outbox.append((json.dumps({**message, "id": self._last_id}).encode(), kept))
        self._flush()

    def _flush(self) -> None:
        """Send what the guardian has room for, and the rest when it has."""
        loop = self._attach()
        try:
            while self._outbox:
                packet, fds = self._outbox[0]
                socket.send_fds(self._connection, [packet], fds)
                self._outbox.popleft()
                for fd in fds:
                    os.close(fd)
            loop.remove_writer(self._connection)
        except BlockingIOError:
            loop.add_writer(self._connection, self._flush)
        except OSError:
            self._lose("it is gone; the daemon must be restarted", unexpected=True)

    def _receive(self) -> None:
        while self._lost is None:
            try:
                packet, fds, _, _ = socket.recv_fds(self._connection, 65536, 3, socket.MSG_CMSG_CLOEXEC)
            except BlockingIOError:
                return
            except OSError:
                packet, fds = b"", []
            if not packet:
                self._lose("it is gone; the daemon must be restarted", unexpected=True)
                return
            message = json.loads(packet)
            if "exited" in message:
                exited = self._exits.pop(message["exited"], None)
                if exited is not None and not exited.done():
                    exited.set_result(message["status"])
            else:
                self._replies.pop(message["id"])(message, fds)

    def _lose(self, reason: str, *, unexpected: bool = False) -> None:
        self._lost = f"no shell can be started or ended: the guardian cannot be reached ({reason})"
        if self._loop is not None:
            self._loop.remove_reader(self._connection)
            self._loop.remove_writer(self._connection)
        self._connection.close()
        for _, fds in self._outbox:
            for fd in fds:
                os.close(fd)
        self._outbox.clear()
        if unexpected and self._loop is not None:
            from cordisd.shell.orphans import end_orphans

            self._ending = self._loop.create_task(end_orphans())
        for receive in self._replies.values():
            receive({"error": self._lost}, [])
        self._replies.clear()
        for exited in self._exits.values():
            if not exited.done():
                exited.set_result(9)  # as if killed: nothing else can be known any more
        self._exits.clear()


def _inherit() -> None:
    from cordisd.shell.prctl import become_subreaper

    become_subreaper()


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)

"""The guardian's own process: parent and subreaper of every shell, and the end of them all.

Runs in the child of `Guardian.fork`, single-threaded, without asyncio. One message per packet:

    {"op": "spawn", "id": 1} + a memfd with what `spawn.start` takes
    {"op": "enter", "id": 4, "realm": "s1", "place": [7, uid, gid, groups], "main": "module:function"} + a
    connected socket
    {"op": "end", "id": 2, "realm": "s1"} or {"op": "end", "id": 2, "pid": 7}
    {"op": "kill_since", "id": 3, "pid": 7, "ticks": 812, "last_pid": 900}

    {"id": 1, "pid": 7} + the PTY master and, if driven, the control pipe's read end and the command memfd
    {"id": 1, "error": "why no shell could start"}
    {"id": 4, "pid": 8} or an error: a process of ours that is where process 7 is
    {"id": 2} when done
    {"exited": 7, "status": wait status} once nothing that the shell had started is left

End of file on the socket means that the daemon is gone, however it died.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from cordisd.shell import prctl
from cordisd.shell.launch import Place
from cordisd.shell.reaper import Process, Sweep, children, descendants, process_of, send
from cordisd.shell.spawn import start
from cordisd.shell.world import start_inside

_TICK_MS = 3
_TERM_GRACE_S = 0.3
_SWEEP_LIMIT_S = 0.7
_STRAY_LIMIT_S = 0.3
_FINAL_LIMIT_S = 1.5


def serve(connection: socket.socket) -> NoReturn:
    """Be the guardian until the daemon is gone, then end every process below and exit."""
    try:
        _detach(connection.fileno())
        keeper = _Keeper(connection)
        try:
            keeper.run()
        finally:
            keeper.end_everything()
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)


def _detach(keep_fd: int) -> None:
    """No inherited descriptors but stderr, deaf to the signals of a terminal."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.closerange(3, keep_fd)
    os.closerange(keep_fd + 1, os.sysconf("SC_OPEN_MAX"))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # only the wake-up descriptor matters
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    prctl.become_subreaper()
    prctl.set_name(b"cordisd-guard")
    prctl.forbid_tracing()  # it has the daemon's environment
    # Somebody may have stopped this process; it must not sleep through the daemon's death.
    prctl.ask_for_signal_at_parents_death(signal.SIGCONT)


class _Keeper:
    """The shells, the sweeps in progress, and the socket to the daemon."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._shells: dict[int, str] = {}
        """Realm of each living shell or worker. Any other child of this process is a leftover."""
        self._workers: set[int] = set()
        """Those that are ours, and end with their connection."""
        self._ending: set[int] = set()
        self._dead: dict[int, int] = {}
        """Wait status of shells whose leftovers are being killed."""
        self._sweeps: list[tuple[Sweep, Callable[[], None]]] = []
        self._requests: list[tuple[int, set[int]]] = []
        """Ids of unanswered `end` requests, with the shells each still waits for."""
        self._wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)

    def run(self) -> None:
        """Serve requests until the daemon's end of the socket is closed."""
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        while True:
            for fd, _ in poll.poll(_TICK_MS if self._sweeps else None):
                if fd == self._wake_read:
                    os.read(fd, 4096)
                    self._reap()
                elif not self._serve_one():
                    return
            self._step()

    def end_everything(self) -> None:
        """Kill what is below this process, and return when it is gone (or cannot be killed)."""
        own = os.getpid()

        def others() -> list[Process]:
            # A worker may have a file half written; it is about to end by itself.
            return [process for process in descendants(own) if process.pid not in self._workers]

        _run_out(Sweep(others, set, time.monotonic(), 0, _FINAL_LIMIT_S))
        # TERM does nothing to a worker, but the CONT that comes with it wakes one that was stopped.
        _run_out(Sweep(lambda: descendants(own), set, time.monotonic(), _TERM_GRACE_S, _FINAL_LIMIT_S))

    def _serve_one(self) -> bool:
        try:
            packet, fds, _, _ = socket.recv_fds(self._connection, 65536, 1, socket.MSG_CMSG_CLOEXEC)
        except ConnectionError:
            return False
        if not packet:
            return False
        message = json.loads(packet)
        match message["op"]:
            case "spawn":
                self._spawn(message["id"], fds)
            case "enter":
                self._enter(message, fds)
            case "end":
                pid, realm = message.get("pid"), message.get("realm")
                alive = {shell for shell in self._shells if shell == pid or self._shells[shell] == realm}
                self._requests.append((message["id"], alive | ({pid} & self._dead.keys())))
                for shell in alive - self._ending:
                    self._end(shell)
                self._answer_requests()
            case "kill_since":
                since = (message["ticks"], message["last_pid"])
                self._sweep(
                    lambda: [one for one in descendants(message["pid"]) if _is_younger(one, *since)],
                    _TERM_GRACE_S,
                    lambda: self._send({"id": message["id"]}),
                    spared=lambda: _groups_of_older(message["pid"], since),
                )
        return True

    def _spawn(self, request: int, spec_fds: list[int]) -> None:
        try:
            with contextlib.ExitStack() as opened:
                for fd in spec_fds:
                    opened.callback(os.close, fd)
                pid, realm, fds = start(spec_fds[0], opened)
                self._shells[pid] = realm
                self._send({"id": request, "pid": pid}, fds)
        except Exception as failure:  # whatever it is, the daemon reports it, and the guardian lives
            self._send({"id": request, "error": str(failure)})

    def _enter(self, message: dict[str, Any], fds: list[int]) -> None:
        with contextlib.ExitStack() as opened:
            for fd in fds:
                opened.callback(os.close, fd)
            place = Place(*message["place"])
            try:
                if not self._owns(message["realm"], place.pid):
                    raise ProcessLookupError("the session's shell has ended")
                pid = start_inside(place, message["main"], fds[0])
            except OSError as failure:
                self._send({"id": message["id"], "error": str(failure)})
                return
        self._shells[pid] = message["realm"]
        self._workers.add(pid)
        self._send({"id": message["id"], "pid": pid})

    def _owns(self, realm: str, pid: int) -> bool:
        shells = [shell for shell, owner in self._shells.items() if owner == realm]
        return pid in shells or any(pid == below.pid for shell in shells for below in descendants(shell))

    def _end(self, shell: int) -> None:
        """Begin the end of a shell: stopped first so that it starts nothing more, its tree, then itself."""
        itself = process_of(shell)
        if itself is None:
            return  # a zombie: about to be reaped
        self._ending.add(shell)
        if shell in self._workers:  # it ends with its connection; it may have a file half written
            self._sweep(lambda: [itself] if process_of(shell) == itself else [], _TERM_GRACE_S, lambda: None)
            return
        send(itself, signal.SIGSTOP)
        self._sweep(
            lambda: descendants(shell),
            _TERM_GRACE_S,
            lambda: send(itself, signal.SIGKILL),
            spared=lambda: {itself.group},
        )

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid not in self._shells:
                continue
            if os.WIFSTOPPED(status):
                if pid not in self._ending:  # `suspend`, or `kill -STOP $$`: nobody else would wake it
                    os.kill(pid, signal.SIGCONT)
                continue
            self._bury(pid, status)

    def _bury(self, shell: int, status: int) -> None:
        """Report a dead shell once the orphans it left to us are gone."""
        del self._shells[shell]
        self._ending.discard(shell)
        self._workers.discard(shell)
        self._dead[shell] = status

        def report() -> None:
            del self._dead[shell]
            self._send({"exited": shell, "status": status})
            self._answer_requests()

        self._sweep(self._strays, 0, report, limit_s=_STRAY_LIMIT_S)

    def _strays(self) -> list[Process]:
        """What dead shells left to us: every child that is no shell, and the trees below."""
        found: list[Process] = []
        for pid in children(os.getpid()):
            if pid not in self._shells:
                stray = process_of(pid)
                found += [stray] if stray is not None else []
                found += descendants(pid)
        return found

    def _sweep(
        self,
        targets: Callable[[], list[Process]],
        grace_s: float,
        done: Callable[[], None],
        *,
        spared: Callable[[], set[int]] = set,
        limit_s: float = _SWEEP_LIMIT_S,
    ) -> None:
        self._sweeps.append((Sweep(targets, spared, time.monotonic(), grace_s, limit_s), done))

    def _step(self) -> None:
        if not self._sweeps:
            return
        now_s = time.monotonic()
        pending, self._sweeps = self._sweeps, []
        for sweep, done in pending:
            if sweep.step(now_s):
                done()
            else:
                self._sweeps.append((sweep, done))

    def _answer_requests(self) -> None:
        waiting = self._shells.keys() | self._dead.keys()
        for request in list(self._requests):
            if not request[1] & waiting:
                self._requests.remove(request)
                self._send({"id": request[0]})

    def _send(self, message: dict[str, Any], fds: list[int] | None = None) -> None:
        with suppress(ConnectionError):  # the daemon is gone; the loop will see the end of file
            socket.send_fds(self._connection, [json.dumps(message).encode()], fds or [])


def _run_out(sweep: Sweep) -> None:
    while not sweep.step(time.monotonic()):
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.002)


def _is_younger(process: Process, ticks: int, last_pid: int) -> bool:
    """Whether the process began after a moment; within its clock tick the pid decides."""
    return (process.start_ticks, process.pid) > (ticks, last_pid)


def _groups_of_older(shell: int, since: tuple[int, int]) -> set[int]:
    """Process groups of `shell` and of what it had started before a moment."""
    itself = process_of(shell)
    older = [process for process in descendants(shell) if not _is_younger(process, *since)]
    return {process.group for process in (*older, *([itself] if itself else []))}

"""What descends from a process, and its end: the /proc side of the guardian.

Every shell is a child subreaper, so whatever it started stays in the tree below it, `setsid` and double
forks included. A tree changes while it is read; therefore a `Sweep` looks again until nothing is left.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from typing import NamedTuple

_MAX_FREEZE_ROUNDS = 200
_N_EMPTY_LOOKS = 4
"""Looks in a row that must find nothing: one can miss a process that forks and ends all the time."""


class Process(NamedTuple):
    """A process, told apart from a later one of the same pid by its start."""

    pid: int
    start_ticks: int
    """Clock ticks after boot."""
    group: int
    """Its process group."""


def descendants(root: int) -> list[Process]:
    """Every living process below `root`, which itself is left out."""
    found: list[Process] = []
    seen = {root}
    pending = [root]
    while pending:
        for pid in children(pending.pop()):
            if pid not in seen:
                seen.add(pid)
                pending.append(pid)
                process = process_of(pid)
                if process is not None:
                    found.append(process)
    return found


def children(pid: int) -> Iterator[int]:
    """The pids whose parent is `pid`, zombies included."""
    if not _kernel_lists_children():
        yield from _children_by_scan(pid)
        return
    with suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with (
                suppress(FileNotFoundError, ProcessLookupError),
                open(f"/proc/{pid}/task/{thread}/children", "rb") as file,
            ):
                yield from map(int, file.read().split())


def process_of(pid: int) -> Process | None:
    """The living process of that pid; None when it is gone or a zombie."""
    fields = _stat(pid)
    if fields is None or fields[0] in (b"Z", b"X"):
        return None
    return Process(pid, int(fields[19]), int(fields[2]))


def send(process: Process, number: int) -> None:
    """Signal a process unless its pid belongs to another one by now.

    The pidfd is opened before the start is compared, so the check cannot be outrun.
    """
    with suppress(ProcessLookupError, PermissionError):
        handle = os.pidfd_open(process.pid)
        try:
            now = process_of(process.pid)
            if now is not None and now.start_ticks == process.start_ticks:
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


class Sweep:
    """The end of a changing set of processes: TERM, after a grace KILL, until none is found.

    `step` is called every few milliseconds by the owner of the clock. Process groups are killed whole, which
    none outruns by forking, but for those that `spared` names: they have members outside the set.
    """

    def __init__(
        self,
        targets: Callable[[], list[Process]],
        spared: Callable[[], set[int]],
        now_s: float,
        grace_s: float,
        limit_s: float,
    ) -> None:
        self._targets = targets
        self._spared = spared
        self._kill_at_s = now_s + grace_s
        self._give_up_at_s = now_s + limit_s
        self._asked: set[Process] = set()
        self._killed_before = False
        self._n_empty_looks = 0

    def step(self, now_s: float) -> bool:
        """Go on; True when nothing is left, or the limit has passed."""
        alive = self._targets()
        if not alive:
            self._n_empty_looks += 1
            return self._n_empty_looks == _N_EMPTY_LOOKS
        self._n_empty_looks = 0
        if now_s < self._kill_at_s:
            for process in alive:
                if process not in self._asked:
                    self._asked.add(process)
                    send(process, signal.SIGTERM)
                    send(process, signal.SIGCONT)  # a stopped process handles TERM only once it runs
            return False
        for group in {process.group for process in alive} - self._spared():
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
        for process in self._freeze(alive) if self._killed_before else alive:
            send(process, signal.SIGKILL)
        self._killed_before = True
        return now_s >= self._give_up_at_s

    def _freeze(self, alive: list[Process]) -> set[Process]:
        """Stop all that is there until a look finds nothing new: for what forks into new groups.

        Not for the first round, because a shell that is to live would report the stop of its job.
        """
        frozen: set[Process] = set()
        for _ in range(_MAX_FREEZE_ROUNDS):
            fresh = set(alive) - frozen
            if not fresh:
                break
            for process in fresh:
                send(process, signal.SIGSTOP)
            frozen |= fresh
            alive = self._targets()
        return frozen


@cache
def _kernel_lists_children() -> bool:
    return os.path.exists(f"/proc/self/task/{os.getpid()}/children")


def _children_by_scan(parent: int) -> Iterator[int]:
    """For kernels without CONFIG_PROC_CHILDREN."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = _stat(int(name))
            if fields is not None and int(fields[1]) == parent:
                yield int(name)


def _stat(pid: int) -> list[bytes] | None:
    """Fields of /proc/PID/stat from the state on; the name before it may hold anything."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None

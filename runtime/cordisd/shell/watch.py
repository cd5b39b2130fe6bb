"""What no record of a shell tells: that it sits idle at its prompt, or that a command waits for input."""

from __future__ import annotations

import os
from collections.abc import Collection
from enum import Enum

from cordisd.shell.driver import CONTROL_FD
from cordisd.shell.exchange import Exchange
from cordisd.shell.pty import Pty
from cordisd.shell.syscall import waits_to_read

_FIRST_LOOK_S, _LONGEST_LOOK_S, _QUICK_LOOK_S = 0.25, 4.0, 0.1
_CURE_AT_LOOK, _BROKEN_AT_LOOK = 2, 5


class Sight(Enum):
    """What one look at a shell found."""

    NORMAL = "normal"
    SILENT = "idle at its prompt without a record of it"
    BROKEN = "still so after a cure"
    WAITING = "in a read from the terminal, for long"


class Watch:
    """Looks at one shell while an exchange goes on, seldom and ever more seldom."""

    def __init__(self, pid: int, pty: Pty, terminals: Collection[str], input_wait_s: float) -> None:
        self._pid = pid
        self._pty = pty
        self._terminals = terminals
        self._input_wait_s = input_wait_s
        self._n_idle = 0
        self._n_bytes = 0
        self._silent_since_s = 0.0
        self._wait_s = _FIRST_LOOK_S

    def begin(self) -> float:
        """Start anew for an exchange; the seconds until the first look."""
        self._n_idle = 0
        self._n_bytes = -1
        self._wait_s = _FIRST_LOOK_S
        return self._wait_s

    def look(self, exchange: Exchange, now_s: float) -> tuple[Sight, float]:
        """What there is to see, and the seconds until the next look."""
        if self._is_idle_at_prompt():
            self._n_idle += 1
            if self._n_idle == _CURE_AT_LOOK:
                return Sight.SILENT, _QUICK_LOOK_S
            return Sight.BROKEN if self._n_idle == _BROKEN_AT_LOOK else Sight.NORMAL, _QUICK_LOOK_S
        self._n_idle = 0
        self._wait_s = min(self._wait_s * 2, _LONGEST_LOOK_S)
        return Sight.WAITING if self._waits_long(exchange, now_s) else Sight.NORMAL, self._wait_s

    def _is_idle_at_prompt(self) -> bool:
        if not target_of(self._pid, CONTROL_FD).startswith("pipe:"):
            return False  # it is closed while bash evaluates a command
        waits = reads_from(self._pid, self._terminals)
        return _sleeps(self._pid) and self._foreground() == self._pid if waits is None else waits

    def _waits_long(self, exchange: Exchange, now_s: float) -> bool:
        n_bytes = exchange.capture.n_bytes
        if n_bytes != self._n_bytes or not reads_from(self._foreground(), self._terminals):
            self._n_bytes = n_bytes
            self._silent_since_s = now_s
        if now_s - self._silent_since_s < self._input_wait_s:
            return False
        self._silent_since_s = now_s
        return True

    def _foreground(self) -> int:
        return self._pty.foreground() or self._pid


def target_of(pid: int, fd: int) -> str:
    """Where a descriptor of another process leads, as /proc names it; empty if it is closed."""
    try:
        return os.readlink(f"/proc/{pid}/fd/{fd}")
    except OSError:
        return ""


def cwd_of(pid: int) -> str:
    """Where a process is, by the name that it knows."""
    root, place = os.readlink(f"/proc/{pid}/root"), os.readlink(f"/proc/{pid}/cwd")
    return place if root == "/" else place.removeprefix(root) or "/"


def reads_from(pid: int, terminals: Collection[str]) -> bool | None:
    """Whether the main thread of `pid` waits for input from one of `terminals` (as /proc names them).

    None where the kernel, or a ptrace restriction, does not tell.
    """
    descriptors = waits_to_read(pid)
    if descriptors is None:
        return None
    return any(target_of(pid, descriptor) in terminals for descriptor in descriptors)


def _sleeps(pid: int) -> bool:
    """Whether a process waits for something, rather than runs or waits for a processor."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] == b"S"
    except (FileNotFoundError, ProcessLookupError):
        return False

"""Starts a process of ours where another one is: in its namespaces, below its root, as its user.

Runs in the guardian, which is single-threaded and small enough to be forked.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
from contextlib import suppress
from importlib import import_module
from typing import NoReturn

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
_libc = ctypes.CDLL(None, use_errno=True)


def start_inside(pid: int, main: str, connection_fd: int) -> int:
    """The pid of a new process that runs `main` ("module:function") with a socket, where process `pid` is.

    If it cannot get there, it sends why as plain text and ends.
    """
    child = os.fork()
    if child:
        return child
    try:
        _run(pid, main, connection_fd)
    finally:
        os._exit(1)  # never run on as a second guardian


def _run(pid: int, main: str, connection_fd: int) -> NoReturn:
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.closerange(3, connection_fd)
    os.closerange(connection_fd + 1, os.sysconf("SC_OPEN_MAX"))
    connection = socket.socket(fileno=connection_fd)
    try:
        module, _, name = main.partition(":")
        function = getattr(import_module(module), name)  # inside, its file may not exist
        _enter(pid)
    except OSError as failure:
        with suppress(OSError):
            connection.sendall(f"cannot get to where the session's shell is: {failure.strerror}".encode())
        os._exit(1)
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # The session's user may not look into it: it has the daemon's environment in its memory.
    _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    try:
        function(connection)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)


def _enter(pid: int) -> None:
    uid, gid, groups = _identity(pid)
    spaces = [
        os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)
        for kind in ("user", "mnt")  # a user namespace first: it may be what permits the other
        if os.readlink(f"/proc/{pid}/ns/{kind}") != os.readlink(f"/proc/self/ns/{kind}")
    ]
    in_same_users = os.readlink(f"/proc/{pid}/ns/user") == os.readlink("/proc/self/ns/user")
    root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    for space in spaces:
        if _libc.setns(space, 0) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    if not os.path.samestat(os.fstat(root), os.stat("/")):
        os.fchdir(root)
        os.chroot(".")
    os.chdir("/")
    for handle in (root, *spaces):
        os.close(handle)
    if in_same_users and uid != os.geteuid():
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)


def _identity(pid: int) -> tuple[int, int, list[int]]:
    """Effective user and group of a process, and its supplementary groups."""
    with open(f"/proc/{pid}/status") as file:
        fields = dict(line.split(":", 1) for line in file)
    return int(fields["Uid"].split()[1]), int(fields["Gid"].split()[1]), [*map(int, fields["Groups"].split())]

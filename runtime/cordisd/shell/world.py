"""Starts a process of ours where another one is: in its namespaces, below its root, as its user.

Runs in the guardian, which is single-threaded and small enough to be forked.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from importlib import import_module
from typing import NoReturn

from cordisd.shell import prctl
from cordisd.shell.launch import Place


def start_inside(place: Place, main: str, connection_fd: int) -> int:
    """The pid of a new process that runs `main` ("module:function") with a socket, in a place.

    The second argument of the function is empty, or why the process could not get there.
    """
    child = os.fork()
    if child:
        return child
    try:
        _run(place, main, connection_fd)
    finally:
        os._exit(1)  # never run on as a second guardian


def _run(place: Place, main: str, connection_fd: int) -> NoReturn:
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends with its connection
    os.closerange(3, connection_fd)
    os.closerange(connection_fd + 1, os.sysconf("SC_OPEN_MAX"))
    connection = socket.socket(fileno=connection_fd)
    module, _, name = main.partition(":")
    function = getattr(import_module(module), name)  # inside, its file may not exist
    reason = ""
    try:
        _enter(place)
    except OSError as failure:
        reason = f"cannot get to where the session's shell is: {failure.strerror}"
    prctl.ask_for_signal_at_parents_death(signal.SIGKILL)
    prctl.forbid_tracing()  # it has the daemon's environment in its memory
    try:
        function(connection, reason)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)


def _enter(place: Place) -> None:
    there = f"/proc/{place.pid}"
    spaces = [
        os.open(f"{there}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)
        for kind in ("user", "mnt")  # a user namespace first: it is what permits the other
        if os.readlink(f"{there}/ns/{kind}") != os.readlink(f"/proc/self/ns/{kind}")
    ]
    in_same_users = os.readlink(f"{there}/ns/user") == os.readlink("/proc/self/ns/user")
    root = os.open(f"{there}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    if not in_same_users:
        # Before it is entered: in there, root of the outside would keep its rights on files.
        _become(place)
    for space in spaces:
        prctl.enter_namespace(space)
    if not os.path.samestat(os.fstat(root), os.stat("/")):
        os.fchdir(root)
        os.chroot(".")
    os.chdir("/")
    for handle in (root, *spaces):
        os.close(handle)
    if in_same_users:
        _become(place)
    os.umask(place.umask)
    prctl.keep_capabilities(place.capabilities)


def _become(place: Place) -> None:
    if (place.uid, place.gid) != (os.geteuid(), os.getegid()):
        os.setgroups(place.groups)
        os.setresgid(place.gid, place.gid, place.gid)
        os.setresuid(place.uid, place.uid, place.uid)

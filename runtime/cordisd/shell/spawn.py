"""Starts one program on a terminal of its own. Runs in the guardian."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import termios
from typing import Any

from ptyprocess import PtyProcess

from cordisd.shell import prctl
from cordisd.shell.driver import COMMAND_FD, CONTROL_FD

_IUTF8 = 0o40000
"""Of the input modes; the module termios lacks it."""


def start(spec_fd: int, opened: contextlib.ExitStack) -> tuple[int, str, list[int]]:
    """The pid, the realm and the daemon's descriptors of what the JSON in the memfd `spec_fd` describes.

    {"realm", "argv", "env", "rows", "columns", "driven", "user", "rlimits"}; a user is [uid, gid, groups] or
    null. The descriptors, the PTY master first, are closed with `opened`.

    Raises:
        Exception: of any kind, with words that tell why it could not be started.
    """
    with open(spec_fd, "rb", closefd=False) as file:
        file.seek(0)
        spec: dict[str, Any] = json.loads(file.read())
    passed: dict[int, int] = {}
    kept: list[int] = []
    if spec["driven"]:
        control_read, control_write = os.pipe2(os.O_CLOEXEC)
        command = os.memfd_create("command", os.MFD_CLOEXEC)
        for fd in (control_read, control_write, command):
            opened.callback(os.close, fd)
        passed = {command: COMMAND_FD, control_write: CONTROL_FD}
        kept = [control_read, command]

    def before_exec() -> None:
        # By the child, or bash might see the modes of before, and restore them after a killed job.
        (make_plain if spec["driven"] else make_utf8)(0)
        for fd, number in passed.items():
            os.dup2(fd, number)
        _become(spec["user"], spec["rlimits"])

    guardian = os.getpid()
    try:
        program = PtyProcess.spawn(
            spec["argv"],
            env=spec["env"],
            preexec_fn=before_exec,
            dimensions=(spec["rows"], spec["columns"]),
            pass_fds=tuple(passed),
        )
    finally:
        if os.getpid() != guardian:  # what the child could not become, it must not go on as
            os._exit(127)
    program.closed = True  # or its destructor would wait for the program
    opened.callback(program.fileobj.close)
    return program.pid, spec["realm"], [program.fd, *kept]


def make_plain(terminal: int) -> None:
    """No echo, no output processing: what a program writes is what the daemon reads."""
    modes = termios.tcgetattr(terminal)
    modes[1] &= ~termios.OPOST
    modes[3] &= ~(termios.ECHO | termios.ECHOCTL)
    termios.tcsetattr(terminal, termios.TCSANOW, modes)


def make_utf8(terminal: int) -> None:
    """A usual terminal, whose line editor erases characters and not bytes."""
    modes = termios.tcgetattr(terminal)
    modes[0] |= _IUTF8
    termios.tcsetattr(terminal, termios.TCSANOW, modes)


def _become(user: tuple[int, int, list[int]] | None, rlimits: dict[str, int]) -> None:
    """Default signals, subreaper of the tree to come, limits, user, and dead with the guardian."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    prctl.become_subreaper()
    for name, limit in rlimits.items():
        try:
            resource.setrlimit(getattr(resource, f"RLIMIT_{name.upper()}"), (limit, limit))
        except ValueError as failure:
            raise ValueError(f"rlimits.{name}: {failure}") from failure
    if user:
        uid, gid, groups = user
        os.fchown(0, uid, -1)  # the terminal: what reopens it must be allowed to
        if os.geteuid() == 0:
            os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    prctl.ask_for_signal_at_parents_death(signal.SIGKILL)

"""A daemon that many clients share: found at its socket, or started there by the first who misses it."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import select
import signal
import stat
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

from cordisd_sdk.address import UnixAddress
from cordisd_sdk.errors import ConnectionClosedError, NotListeningError, RequestTimeoutError, SdkError
from cordisd_sdk.launch import DaemonOptions, shared_command_line, shared_environment
from cordisd_sdk.process import MAX_TAIL_LINES

POLL_S: Final = 0.02
READY: Final = b"cordisd: listening on "
"""Begins the line with which a daemon says that it serves."""
MAX_LOG_BYTES: Final = 2**20
LAUNCHER: Final = """\
import os, sys
child = os.fork()
if child:
    print(child)
else:
    os.dup2(2, 1)
    os.execv(sys.argv[1], sys.argv[1:])
"""
"""Makes the daemon nobody's child: whoever started it has neither to wait for it nor to live as long."""


async def connect_or_spawn(
    connect: Callable[[], Awaitable[None]], address: UnixAddress, options: DaemonOptions, deadline_s: float
) -> None:
    """`connect` to the daemon that listens at `address`; if there is none, start it, and only once.

    Of the clients that do so together one has its turn, and the others connect to what it has started.
    `deadline_s`: by the clock of the event loop.

    Raises:
        ConnectionClosedError: the daemon ended before it served; `stderr_tail` says why.
        RequestTimeoutError: none was ready in time; what was started for it is gone.
        SdkError: what `connect` raises, or it cannot be started.
    """
    while not await _connects(connect):
        with _turn(address) as log:
            if log is not None:
                if await _connects(connect):  # whoever had the turn before has started it
                    return
                failure = await _start(address, options, log, deadline_s)
                if await _connects(connect):  # or to one that was started by hand, and was quicker
                    return
                if failure is not None:
                    raise failure
        if asyncio.get_running_loop().time() > deadline_s:
            raise RequestTimeoutError(f"{address.url}: no daemon has come up there in time")
        await asyncio.sleep(POLL_S)


async def _connects(connect: Callable[[], Awaitable[None]]) -> bool:
    try:
        await connect()
    except NotListeningError:
        return False
    return True


async def _start(
    address: UnixAddress, options: DaemonOptions, log: int, deadline_s: float
) -> ConnectionClosedError | None:
    """Start a daemon and wait until it serves; the error, if it has ended instead.

    Raises:
        RequestTimeoutError: it does neither in time; it is gone then. So it is when this is cancelled.
    """
    os.ftruncate(log, 0)
    stderr = _open_log(address)  # not `log`, for then the daemon would hold its lock
    try:
        launcher = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", "-c", LAUNCHER),
            *shared_command_line(options, address.path),
            env=shared_environment(options),
            cwd=os.path.dirname(address.path),  # not ours, which may go before it does
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=stderr,
            start_new_session=True,
        )
    except OSError as error:
        raise SdkError(f"{address.url}: cannot start {sys.executable!r}: {error.strerror}") from error
    finally:
        os.close(stderr)
    try:
        printed, _ = await launcher.communicate()
        with _ending_of(int(printed)) as has_ended:
            while not _is_ready(log):
                if has_ended():
                    return ConnectionClosedError(
                        f"{address.url}: the daemon that was started there ended", stderr_tail=_tail(log)
                    )
                if asyncio.get_running_loop().time() > deadline_s:
                    raise RequestTimeoutError(
                        f"{address.url}: the daemon that was started there was not ready in time",
                        stderr_tail=_tail(log),
                    )
                await asyncio.sleep(POLL_S)
    except BaseException:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(launcher.pid, signal.SIGKILL)  # the daemon has kept its group
        raise
    return None


@contextmanager
def _turn(address: UnixAddress) -> Iterator[int | None]:
    """The log of the daemon, for the one client that may start it now; None for the others."""
    log = _open_log(address)
    try:
        try:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield log
    finally:
        os.close(log)


def _open_log(address: UnixAddress) -> int:
    path = f"{address.path}.log"
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        log = os.open(path, flags, 0o600)
    except OSError as error:
        raise SdkError(f"{address.url}: cannot open {path}: {error.strerror}") from error
    found = os.fstat(log)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        os.close(log)
        raise SdkError(f"{address.url}: {path} is no file of yours")
    return log


@contextmanager
def _ending_of(pid: int) -> Iterator[Callable[[], bool]]:
    """A function that tells whether that process, which is no child of ours, has ended."""
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        yield lambda: True
        return
    try:
        poll = select.poll()
        poll.register(watched, select.POLLIN)
        yield lambda: bool(poll.poll(0))
    finally:
        os.close(watched)


def _is_ready(log: int) -> bool:
    return any(line.startswith(READY) for line in os.pread(log, MAX_LOG_BYTES, 0).splitlines())


def _tail(log: int) -> str:
    start = max(0, os.fstat(log).st_size - MAX_LOG_BYTES)
    text = os.pread(log, MAX_LOG_BYTES, start).decode("utf-8", "replace")
    return "\n".join(text.splitlines()[-MAX_TAIL_LINES:])

"""The system calls by which a session log reaches the disk, and the lock that keeps a second writer away."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

PAUSES_S: Final = (0.001, 0.004, 0.02)
"""Between tries to lock a log."""

_unsupported = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK}


class DiskCalls(NamedTuple):
    """The calls that can fail on a bad disk. Tests of such disks pass their own."""

    write: Callable[[int, memoryview], int] = os.write
    truncate: Callable[[int, int], None] = os.ftruncate
    fsync: Callable[[int], None] = os.fsync

    def write_all(self, fd: int, data: bytes) -> None:
        """Write all of `data`, in one call unless the system takes less.

        Raises:
            OSError: as the call gave it; part of `data` may have been written.
        """
        rest = memoryview(data)
        while rest:
            taken = self.write(fd, rest)
            if taken <= 0:
                raise OSError(errno.EIO, "the disk took no bytes")
            rest = rest[taken:]


def open_file(path: Path | str, flags: int = os.O_RDONLY) -> int:
    """As `os.open`, for what must be a file: whoever opens a pipe in its place would wait for ever.

    Raises:
        OSError: as `os.open`, or it is no file.
    """
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "Not a regular file")
    return fd


def lock(fd: int, path: Path) -> bool:
    """True once this open file holds the log's lock; False when another one does. Closing `fd` frees it.

    On a file system without locks (some cluster mounts) nobody can be kept away: a warning says so.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as problem:
        if problem.errno not in _unsupported:
            raise
        logging.getLogger(__name__).warning("%s: this file system has no locks (%s)", path, problem.strerror)
    return True


def lock_patiently(fd: int, path: Path) -> bool:
    """As `lock`, for a log that others may be looking at: they hold its lock for an instant (`is_locked`)."""
    for pause_s in PAUSES_S:
        if lock(fd, path):
            return True
        time.sleep(pause_s)
    return lock(fd, path)


def make_private_folders(folder: Path) -> list[Path]:
    """Make `folder` and its missing parents with mode 0700; returns those it made, outermost first."""
    missing: list[Path] = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    made: list[Path] = []
    for path in reversed(missing):
        with contextlib.suppress(FileExistsError):  # another process may be making the same one
            path.mkdir(mode=0o700)
            made.append(path)
    return made


def cause_of(problem: OSError) -> str:
    """The reason in words with its name: `No space left on device (ENOSPC)`."""
    return f"{problem.strerror} ({errno.errorcode.get(problem.errno or 0, problem.errno)})"

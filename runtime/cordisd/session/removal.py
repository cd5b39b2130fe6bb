"""Removes a stored session: its folder with the log and what a repair has cut off it, and nothing else."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cordisd.errors import LogError, SessionBusyError, SessionNotFoundError
from cordisd.session.disk import cause_of, lock
from cordisd.session.layout import check_place
from cordisd.session.names import CUT_SUFFIX, LOG_NAME, TEMPORARY_SUFFIX
from cordisd.session.reading import read_header

_beside = re.compile(
    rf"{re.escape(LOG_NAME)}\.(\d+{re.escape(CUT_SUFFIX)}|[0-9a-f]{{12}}{re.escape(TEMPORARY_SUFFIX)})"
)
"""Names of the files that a store leaves beside a log."""
_folder_flags: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove(path: Path, written_ns: int, *, dry_run: bool = False) -> None:
    """Remove the session whose log lies at `path`, if it was last written at `written_ns`.

    Folders are opened one below the other and never by following a link, so that nothing outside the root can
    be reached. The log goes last: a removal that is cut short leaves a session that opens. `dry_run` stops
    before the first change.

    Raises:
        SessionBusyError: a process has it open, or has written to it meanwhile.
        SessionNotFoundError: it is gone.
        LogError: the folder holds something else, or a link is in the way; or it cannot be removed.
    """
    folder = path.parent
    try:
        with (
            _opened(folder.parent.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) as root,
            _opened(folder.parent.name, _folder_flags, root) as project,
            _opened(folder.name, _folder_flags, project) as own,
            _opened(LOG_NAME, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, own) as log,
        ):
            names = os.listdir(own)
            for name in names:
                _check_ours(name, own, folder)
            if not lock(log, path) or os.fstat(log).st_mtime_ns != written_ns:
                raise SessionBusyError(f"a process has it open: {path}")
            with open(log, "rb", closefd=False) as stream:
                check_place(read_header(stream.readline(), path), path)
            if dry_run:
                return
            for name in sorted(names, key=LOG_NAME.__eq__):
                os.unlink(name, dir_fd=own)
            os.rmdir(folder.name, dir_fd=project)
            with contextlib.suppress(OSError):  # others are in it, as a rule
                os.rmdir(folder.parent.name, dir_fd=root)
    except FileNotFoundError as problem:
        raise SessionNotFoundError(f"somebody else has removed it: {folder}") from problem
    except OSError as problem:
        raise LogError(f"cannot remove {folder}: {cause_of(problem)}") from problem


def _check_ours(name: str, folder_fd: int, folder: Path) -> None:
    is_file = stat.S_ISREG(os.stat(name, dir_fd=folder_fd, follow_symlinks=False).st_mode)
    if not is_file or (name != LOG_NAME and not _beside.fullmatch(name)):
        raise LogError(f"{folder} is not removed: it holds {name!r}, which is not of the session's log")


@contextlib.contextmanager
def _opened(name: str | Path, flags: int, folder_fd: int | None = None) -> Iterator[int]:
    fd = os.open(name, flags, dir_fd=folder_fd)
    try:
        yield fd
    finally:
        os.close(fd)

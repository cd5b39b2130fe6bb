"""Finds logs under a root folder, and refuses what lies there in a way that could be misread.

<root>/<project of the working directory>/<session id>/session.jsonl
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from cordisd.errors import LogCorruptError, LogError, LogRefusedError, SessionNotFoundError
from cordisd.session.disk import cause_of, open_file
from cordisd.session.header import SessionHeader
from cordisd.session.names import LOG_NAME, TEMPORARY_SUFFIX, encode_segment, project_key

_compressed_name = LOG_NAME + ".zstd"
FLAT_SUFFIXES: Final = (".jsonl", ".jsonl.zstd")


def check_root(root: Path) -> None:
    """Find out whether logs can be stored under `root`. One that is missing is made with the first log.

    Raises:
        LogError: the root is, or lies below, something that is not a folder, or cannot be written to.
    """
    existing = root
    while not os.path.lexists(existing):
        existing = existing.parent
    if not existing.is_dir():
        raise LogError(f"session root {root}: {existing} is not a folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise LogError(f"session root {root}: {existing} is not writable")


def find_folders(root: Path, session_id: str) -> Iterator[Path]:
    """Every folder that holds a log of the session, in whatever format.

    A folder with nothing but temporary files is not one: its writer was killed before the log existed.

    Raises:
        LogError: a folder cannot be read.
    """
    yield from folders_named(root, encode_segment(session_id))


def folders_named(root: Path, segment: str) -> Iterator[Path]:
    """As `find_folders`, by the name of the folder."""
    for project in _projects_with(root, segment):
        folder = project / segment
        if any(not name.endswith(TEMPORARY_SUFFIX) for name in _names(folder)):
            yield folder


def refuse_old_layout(project: Path, session_id: str) -> None:
    """Raise `LogRefusedError` when a log of the session lies in `project` as an older layout had it."""
    for suffix in FLAT_SUFFIXES:
        flat = project / (encode_segment(session_id) + suffix)
        if os.path.isfile(flat):  # a folder of that name belongs to another session
            raise old_layout(flat)


def locate(root: Path, session_id: str) -> Path:
    """The log file of a stored session.

    Raises:
        SessionNotFoundError: nothing is stored under this id.
        LogCorruptError: it is stored twice.
        LogRefusedError: it is of a format or layout that this version does not read.
        LogError: a folder cannot be read.
    """
    folders = list(find_folders(root, session_id))
    if not folders:
        for suffix in FLAT_SUFFIXES:
            for project in _projects_with(root, encode_segment(session_id) + suffix):
                refuse_old_layout(project, session_id)
        raise SessionNotFoundError(f'no session "{session_id}" is stored under {root}')
    if len(folders) > 1:
        raise stored_twice(session_id, folders)
    return log_in(folders[0])


def log_in(folder: Path) -> Path:
    """The log file of the session that is stored in `folder`.

    Raises:
        LogRefusedError: it is of a format that this version does not read.
        LogError: the folder cannot be read.
    """
    names = _names(folder)
    _refuse_compressed(folder, names)
    if LOG_NAME not in names:
        raise LogRefusedError(
            f"the session is stored in another format ({', '.join(sorted(names))}), this version reads "
            f"{LOG_NAME}: {folder}"
        )
    return folder / LOG_NAME


def all_logs(root: Path) -> Iterator[Path]:
    """The log file of every stored session, in no order. Logs of newer formats only are left out.

    Raises:
        LogRefusedError: a log is compressed, or lies where an older layout had it.
        LogError: a folder cannot be read.
    """
    for project in _projects_with(root, "."):
        for name in _names(project):
            folder = project / name
            if name.endswith(FLAT_SUFFIXES) and folder.is_file():
                raise old_layout(folder)
            inside = _names(folder)
            _refuse_compressed(folder, inside)
            if LOG_NAME in inside:
                yield folder / LOG_NAME


def check_place(header: SessionHeader, path: Path) -> None:
    """Raise `LogCorruptError` when the log at `path` says that it belongs elsewhere."""
    segment, project = encode_segment(header.id), project_key(header.cwd)
    if path.parent.name != segment:
        raise LogCorruptError(f'the log of session "{header.id}" must lie in a folder {segment}: {path}')
    if path.parent.parent.name != project:
        raise LogCorruptError(
            f'the log of session "{header.id}", working directory {header.cwd}, must lie below a folder '
            f"{project}: {path}"
        )


def is_locked(path: Path) -> bool:
    """True if some process has the log at `path` open for writing."""
    try:
        fd = open_file(path)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(fd)
    return False


def stored_twice(session_id: str, folders: Sequence[Path]) -> LogCorruptError:
    """The error for one id in several project folders."""
    places = ", ".join(sorted(map(str, folders)))
    return LogCorruptError(f'session "{session_id}" is stored more than once, keep one of: {places}')


def _projects_with(root: Path, name: str) -> list[Path]:
    """The folders directly below `root` that have an entry `name`.

    One system call for each: a root may hold as many projects as sessions, and every new session looks here.
    """
    try:
        fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            projects = os.listdir(fd)
            return [root / one for one in projects if os.access(f"{one}/{name}", os.F_OK, dir_fd=fd)]
        finally:
            os.close(fd)
    except FileNotFoundError:
        return []
    except OSError as problem:
        raise LogError(f"cannot read the session root {root}: {cause_of(problem)}") from problem


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as problem:
        raise LogError(f"cannot read the folder {folder}: {cause_of(problem)}") from problem


def _refuse_compressed(folder: Path, names: Sequence[str]) -> None:
    if _compressed_name in names:
        raise LogRefusedError(
            f"the log is compressed, and logs are plain here; decompress it (zstd -d --rm) or choose another "
            f"session root: {folder / _compressed_name}"
        )


def old_layout(path: Path) -> LogRefusedError:
    """The error for a log that lies directly in a project's folder."""
    return LogRefusedError(
        f"the log lies where an older layout had it; move it to <project>/<session id>/{LOG_NAME} "
        f"or choose another session root: {path}"
    )

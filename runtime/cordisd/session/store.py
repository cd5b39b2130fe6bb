"""The session logs under one root folder: made, opened, repaired, listed and read (`protocol.md` 4)."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cordisd.errors import (
    LogCorruptError,
    LogError,
    LogRefusedError,
    SessionBusyError,
    SessionExistsError,
    SessionNotFoundError,
)
from cordisd.events import Event
from cordisd.session.disk import DiskCalls, cause_of, lock_patiently, open_file
from cordisd.session.file import FsyncPolicy, SessionLogFile
from cordisd.session.header import SessionHeader
from cordisd.session.layout import (
    all_logs,
    check_place,
    check_root,
    find_folders,
    is_locked,
    locate,
    refuse_old_layout,
    stored_twice,
)
from cordisd.session.names import LOG_NAME, encode_segment, project_key
from cordisd.session.reading import read_header, read_log
from cordisd.session.repair import cut_tail, ending_of, remove_temporary

if TYPE_CHECKING:
    from cordisd.session.pages import LogPages

Events = list[Event]
Headers = list[SessionHeader]


class StoredSession(NamedTuple):
    """A log read back, repaired, and open for appending. `damage` says why its end was cut off, if it was."""

    header: SessionHeader
    events: Events
    file: SessionLogFile
    damage: str | None


class SessionStore:
    """All logs under `root`; a relative one is resolved against the process's directory, once.

    `fsync` is for the owners of the logs, who await `SessionLogFile.sync` per step or turn accordingly.
    """

    def __init__(
        self,
        root: Path,
        *,
        pack_chunks: bool = True,
        fsync: FsyncPolicy = "turn",
        disk: DiskCalls | None = None,
    ) -> None:
        self.root = Path(os.path.abspath(root))
        self.fsync: FsyncPolicy = fsync
        self._pack_chunks = pack_chunks
        self._disk = disk or DiskCalls()
        self._live: set[str] = set()
        self._executor: Executor | None = None
        self._pages: LogPages | None = None

    @property
    def pages(self) -> LogPages:
        """What reads these logs page by page."""
        if self._pages is None:
            from cordisd.session.pages import LogPages  # not needed at the start

            self._pages = LogPages()
        return self._pages

    def check(self) -> None:
        """Find out whether logs can be stored here. A root that is missing is made with the first log.

        Raises:
            LogError: the root is, or lies below, something that is not a folder, or cannot be written to.
        """
        check_root(self.root)

    def create(self, header: SessionHeader) -> SessionLogFile:
        """A log for a new session. Nothing is on disk before its first append.

        Raises:
            InvalidParamsError: the id or the working directory cannot be a folder name.
            SessionBusyError: a session of this id is open, here or in another process.
            SessionExistsError: a session of this id is stored already.
            LogError: the root cannot be read, or holds the session in an older layout.
        """
        project = self.root / project_key(header.cwd)
        path = project / encode_segment(header.id) / LOG_NAME
        self._check_idle(header.id)
        refuse_old_layout(project, header.id)
        for folder in find_folders(self.root, header.id):
            if is_locked(folder / LOG_NAME):
                raise _busy_elsewhere(header.id, folder)
            raise SessionExistsError(
                f'session "{header.id}" already exists: {folder}; session/resume goes on with it'
            )
        return self._file(path, header)

    def header(self, session_id: str) -> SessionHeader | None:
        """The header of a stored session; None when it cannot be read: `open` says why. Changes nothing.

        Raises:
            InvalidParamsError, SessionNotFoundError, LogError: as `open`.
        """
        path = locate(self.root, session_id)
        try:
            with open(path, "rb", opener=open_file) as stream:
                return read_header(stream.readline(), path)
        except (OSError, LogCorruptError, LogRefusedError):
            return None

    def open(self, session_id: str) -> StoredSession:
        """The stored session, repaired where its writer was stopped, and locked until its file is closed.

        Raises:
            InvalidParamsError: the id cannot be a folder name.
            SessionNotFoundError: nothing is stored under this id.
            SessionBusyError: it is open, here or in another process.
            LogCorruptError: it is damaged inside committed data, or stored twice, or in the wrong folder.
            LogRefusedError: it is of a format that this version does not read.
            LogWriteError: the repair could not be written.
            LogError: the file cannot be opened or read.
        """
        self._check_idle(session_id)
        path = locate(self.root, session_id)
        try:
            fd = open_file(path, os.O_RDWR | os.O_APPEND)
        except OSError as problem:
            raise LogError(f"cannot open the session log {path}: {cause_of(problem)}") from problem
        try:
            if not lock_patiently(fd, path):
                raise _busy_elsewhere(session_id, path.parent)
            if not os.fstat(fd).st_nlink:
                raise SessionNotFoundError(f'session "{session_id}" was removed just now: {path}')
            with os.fdopen(fd, "rb", closefd=False) as stream:
                content = read_log(stream, path)
            check_place(content.header, path)
            added = _with_end_seed(content.events, ending_of(content.events, path).closers)
            remove_temporary(path)
            cut_tail(fd, path, content.good_bytes, self._disk)
        except OSError as problem:
            os.close(fd)
            raise LogError(f"cannot read or repair the session log {path}: {cause_of(problem)}") from problem
        except BaseException:
            os.close(fd)
            raise
        file = self._file(path, content.header, fd=fd, next_seq=len(content.events))
        try:
            file.append(added)
        except BaseException:
            file.close()
            raise
        content.events.extend(added)
        return StoredSession(content.header, content.events, file, content.damage)

    def list(self) -> Headers:
        """The headers of all stored sessions, oldest first. Only header lines are read.

        A log without a whole header, or of another format, is left out; the latter with a warning.

        Raises:
            LogCorruptError: an id is stored twice, or a log is in the wrong folder.
            LogRefusedError: a log is compressed, or lies where an older layout had it.
            LogError: a folder cannot be read.
        """
        found: dict[str, tuple[SessionHeader, Path]] = {}
        for path in all_logs(self.root):
            header = _peek(path)
            if header is None:
                continue
            check_place(header, path)
            if header.id in found:
                raise stored_twice(header.id, [found[header.id][1].parent, path.parent])
            found[header.id] = (header, path)
        headers = [header for header, _ in found.values()]
        return sorted(headers, key=lambda header: (header.created_at, header.id))

    def read(self, path: Path) -> tuple[SessionHeader, Events]:
        """The header and the sound events of the log at `path`, whoever is writing it. Changes nothing.

        Raises:
            OSError: the file cannot be read.
            LogCorruptError: no header, or damage inside committed data.
            LogRefusedError: it is of a format that this version does not read.
        """
        with open(path, "rb", opener=open_file) as stream:
            content = read_log(stream, path)
        return content.header, content.events

    def close(self) -> None:
        """End the thread that syncs, once it has; a disk that hangs is not waited for.

        The files are closed by their owners.
        """
        if self._executor is not None:
            self._executor.shutdown(wait=False)
            self._executor = None

    def _check_idle(self, session_id: str) -> None:
        if session_id in self._live:
            raise SessionBusyError(f'session "{session_id}" is open in this process')

    def _file(
        self, path: Path, header: SessionHeader, *, fd: int | None = None, next_seq: int = 0
    ) -> SessionLogFile:
        self._live.add(header.id)
        return SessionLogFile(
            path,
            header,
            fsync=self.fsync,
            pack_chunks=self._pack_chunks,
            disk=self._disk,
            executor=self._syncing,
            confirm=partial(self._confirm_only, header.id, path.parent),
            released=partial(self._live.discard, header.id),
            fd=fd,
            next_seq=next_seq,
        )

    def _syncing(self) -> Executor:
        """The one thread for all logs: syncs of many sessions queue up instead of fighting for the disk."""
        if self._executor is None:
            from concurrent.futures import ThreadPoolExecutor

            self._executor = ThreadPoolExecutor(1, thread_name_prefix="cordisd-fsync")
        return self._executor

    def _confirm_only(self, session_id: str, own: Path) -> None:
        for folder in find_folders(self.root, session_id):
            if folder != own:
                raise SessionExistsError(f'session "{session_id}" was stored meanwhile: {folder}')


def _busy_elsewhere(session_id: str, folder: Path) -> SessionBusyError:
    return SessionBusyError(f'session "{session_id}" is open in another process: {folder}')


def _with_end_seed(events: Sequence[Event], closers: Events) -> Events:
    """What a resumed log goes on with: the closers of what is open, and the mark that ends the old part."""
    if not closers and events and events[-1].type == "session/end-seed":
        return []
    now = time.time_ns() // 1_000_000
    return [*closers, Event("session/end-seed", len(events) + len(closers), now, {})]


def _peek(path: Path) -> SessionHeader | None:
    try:
        with open(path, "rb", opener=open_file) as stream:
            return read_header(stream.readline(), path)
    except LogCorruptError:
        return None
    except LogRefusedError as refusal:
        logging.getLogger(__name__).warning("left out of the list: %s", refusal)
        return None
    except OSError as problem:
        raise LogError(f"cannot read the session log {path}: {cause_of(problem)}") from problem

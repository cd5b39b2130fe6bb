"""One session's log, open for appending: every batch is one write, and a failed write is the last."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import secrets
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from itertools import chain
from pathlib import Path
from typing import Final, Literal

from cordisd.errors import CordisError, LogTakenError, LogWriteError, SessionExistsError
from cordisd.events import Event, encode_json
from cordisd.session.disk import DiskCalls, cause_of, lock, make_private_folders
from cordisd.session.header import SessionHeader
from cordisd.session.names import TEMPORARY_SUFFIX
from cordisd.session.rows import pack

logger = logging.getLogger(__name__)

FsyncPolicy = Literal["step", "turn", "never"]
REMOVED: Final = "the file was removed while the session ran"


class SessionLogFile:
    """Appends events to one log. It appears on disk with its first batch, whole or not at all.

    `fsync` tells the owner when to await `sync`. Made by `SessionStore`; the owner closes it.
    """

    def __init__(
        self,
        path: Path,
        header: SessionHeader,
        *,
        fsync: FsyncPolicy,
        pack_chunks: bool,
        disk: DiskCalls,
        executor: Callable[[], Executor],
        confirm: Callable[[], None],
        released: Callable[[], None],
        fd: int | None = None,
        next_seq: int = 0,
    ) -> None:
        self.path = path
        self.header = header
        self.fsync: FsyncPolicy = fsync
        self._pack_chunks = pack_chunks
        self._disk = disk
        self._executor = executor
        self._confirm = confirm
        self._released: Callable[[], None] | None = released
        self._fd = fd
        self.size_bytes = 0 if fd is None else os.fstat(fd).st_size
        """Of what has been appended: where the next line begins."""
        self._next_seq = next_seq
        self._unsynced_folders: list[Path] = []
        self._synced_seq = next_seq
        self._failure: str | None = None
        self._syncing: asyncio.Task[None] | None = None

    def append(self, events: Sequence[Event]) -> None:
        """Write `events` in one go; once this returns, a killed process loses none of them.

        Raises:
            LogTakenError: this is the first batch, and another process was first.
            LogWriteError: nothing of this batch is in the log, and nothing can be appended any more.
        """
        self._check_usable()
        if not events:
            return
        try:
            lines = self._lines(events, self._next_seq)
        except (TypeError, ValueError, RecursionError) as problem:
            raise self._fail(f"an event cannot be written as JSON: {problem}") from problem
        if self._fd is None:
            self._create([encode_json(self.header.as_dict()) + b"\n" + lines])
        else:
            self._extend(self._fd, lines)
        self._next_seq += len(events)

    def begin(self, seed: Iterable[bytes], seed_length: int, events: Sequence[Event]) -> None:
        """Make the log with the lines `seed`, which hold `seed_length` events, and then `events`.

        Takes as long as the disk does: call it in a thread, and do nothing else with the file meanwhile.

        Raises:
            LogWriteError: there is no log, and none can be made with this object any more.
        """
        self._check_usable()
        header = encode_json(self.header.as_dict()) + b"\n"
        self._create(chain([header], seed, [self._lines(events, seed_length)]))
        self._next_seq = seed_length + len(events)

    async def sync(self) -> None:
        """Return once what was appended would survive a power cut; at once when `fsync` is "never".

        Cancellation stops the waiting, not the disk; the next call, or the next append, hears how it went.

        Raises:
            LogWriteError: the disk could not promise it. What it holds is unknown, so this log is over.
        """
        if self.fsync == "never":
            return
        while self._synced_seq < self._next_seq:
            self._check_usable()
            if self._syncing is None:
                self._syncing = asyncio.get_running_loop().create_task(self._sync())
            await asyncio.shield(self._syncing)
        self._check_usable()

    async def _sync(self) -> None:
        """Wait for the disk; a failure is left in `_failure`."""
        assert self._fd is not None
        written = self._next_seq
        folders, self._unsynced_folders = self._unsynced_folders, []
        loop = asyncio.get_running_loop()
        try:
            fd = os.dup(self._fd)  # the log may be closed while the disk works
            await loop.run_in_executor(self._executor(), _sync_all, self._disk, fd, folders)
            self._synced_seq = written
        except OSError as problem:
            safe = f"of its {written} events only the first {self._synced_seq} are known to be safe"
            logger.error("%s", self._fail(cause_of(problem), safe))
        finally:
            self._syncing = None

    def read(self, n_bytes: int, offset: int) -> bytes:
        """At most `n_bytes` of the file from there, also when it has been removed; nothing beyond its end.

        Raises:
            OSError: as the call gave it.
        """
        return b"" if self._fd is None else os.pread(self._fd, n_bytes, offset)

    def reopen(self) -> int | None:
        """A descriptor of the file for who reads on when this is closed; None before the first append.

        Not a duplicate, which would share the lock, and not by its path, where it may be no longer.

        Raises:
            OSError: there is none left.
        """
        return None if self._fd is None else os.open(f"/proc/self/fd/{self._fd}", os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Let go of the file and its lock. Closing twice is harmless."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
        if self._released is not None:
            self._released()
            self._released = None

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise LogWriteError(self._failure)
        if self._released is None:
            raise LogWriteError(f"the session log is closed: {self.path}")

    def _lines(self, events: Sequence[Event], first_seq: int) -> bytes:
        for expected, event in enumerate(events, first_seq):
            if event.seq != expected:
                raise ValueError(f"event {event.type} has seq {event.seq}, but {expected} is next")
        lines = list(pack(events)) if self._pack_chunks else [event.json for event in events]
        lines.append(b"")
        return b"\n".join(lines)

    def _extend(self, fd: int, lines: bytes) -> None:
        self._check_unchanged(fd)
        try:
            self._disk.write_all(fd, lines)
        except OSError as problem:
            cause = cause_of(problem)
            try:
                self._disk.truncate(fd, self.size_bytes)
            except OSError as second:
                cause += f"; and the part that was written could not be taken back: {cause_of(second)}"
            raise self._fail(cause) from problem
        self.size_bytes += len(lines)

    def _check_unchanged(self, fd: int) -> None:
        """Find out whether the log is still what was written: not every file system has locks.

        Raises:
            LogWriteError: it is not.
        """
        found = os.fstat(fd)
        if found.st_nlink == 0:
            raise self._fail(REMOVED, "its log is gone")
        if found.st_size != self.size_bytes:
            raise self._fail(
                f"another process has changed it: {self.size_bytes} bytes were written, and it has "
                f"{found.st_size}",
                f"what has become of its first {self._next_seq} events is unknown",
            )

    def _create(self, content: Iterable[bytes]) -> None:
        """Make the file under a temporary name, then link it: nobody ever sees half a log.

        The disk is not waited for here, where it would stop every session: the next `sync` does, folders too.
        """
        folder = self.path.parent
        made: list[Path] = []
        temporary = folder / f"{self.path.name}.{secrets.token_hex(6)}{TEMPORARY_SUFFIX}"
        fd: int | None = None
        try:
            fd = _make_file(temporary, made)
            try:
                lock(fd, self.path)
                for part in content:
                    self._disk.write_all(fd, part)
                os.link(temporary, self.path)
            finally:
                os.unlink(temporary)
            self._confirm_own()
        except (OSError, CordisError) as problem:
            if fd is not None:
                os.close(fd)
            for path in reversed(made):
                with contextlib.suppress(OSError):  # others may have put something there meanwhile
                    path.rmdir()
            if isinstance(problem, FileExistsError | SessionExistsError):
                taken = "another process stored a session of this id meanwhile"
                raise self._fail(taken, kind=LogTakenError) from problem
            raise self._fail(cause_of(problem) if isinstance(problem, OSError) else str(problem)) from problem
        self._fd = fd
        self.size_bytes = os.fstat(fd).st_size
        self._unsynced_folders = [folder, *(path.parent for path in reversed(made))]

    def _confirm_own(self) -> None:
        """Withdraw when the id was stored under another project folder at the same time."""
        try:
            self._confirm()
        except BaseException:
            os.unlink(self.path)
            raise

    def _fail(
        self, cause: str, safe: str | None = None, kind: type[LogWriteError] = LogWriteError
    ) -> LogWriteError:
        safe = safe or f"the {self._next_seq} events before this are safe"
        self._failure = f"cannot write the session log {self.path}: {cause}; the session ends, and {safe}"
        return kind(self._failure)


def _make_file(path: Path, made: list[Path], n_tries: int = 3) -> int:
    """A new private file, open for appending. Adds to `made` the folders that had to be made for it."""
    try:
        made += make_private_folders(path.parent)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:  # an empty folder was removed under our hands, by `sessions prune` as a rule
        if n_tries == 1:
            raise
        return _make_file(path, made, n_tries - 1)


def _sync_all(disk: DiskCalls, fd: int, folders: Sequence[Path]) -> None:
    try:
        if os.fstat(fd).st_nlink == 0:
            raise FileNotFoundError(errno.ENOENT, REMOVED)
        disk.fsync(fd)
    finally:
        os.close(fd)
    for folder in folders:
        folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            disk.fsync(folder_fd)
        finally:
            os.close(folder_fd)

"""The files of this machine."""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar
from weakref import WeakValueDictionary

from cordisd.editor.failures import failed, not_regular, shown
from cordisd.editor.files import MAX_EDIT_BYTES, Kind, Listing, Rewritten
from cordisd.editor.listing import scan_directory
from cordisd.editor.publish import create_file, remove_file, replace_file
from cordisd.errors import ToolError

T = TypeVar("T")

_MAX_INLINE_BYTES = 256 * 1024
"""Up to here, work on the event loop costs less than the hop to a thread (0.2 ms of CPU time)."""

_SLOW_DISK_S = 0.005
_BLOCK_BYTES = 256 * 1024
_MAX_VIEW_BYTES = 1 << 30

# One lock per file for the whole process: the sessions of a daemon share a disk, not a scope.
_path_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()


class LocalFiles:
    """`FileAccess` to the files that this process sees, with its rights.

    `apart`: what must be overwritten in place is so by a process that outlives this one.
    """

    def __init__(self, *, apart: bool = True) -> None:
        self._apart = apart
        self._last_write_s = 0.0

    async def kind(self, path: str) -> Kind:
        try:
            mode = os.stat(path).st_mode
        except OSError as failure:
            raise failed(failure, "view", path) from failure
        if stat.S_ISDIR(mode):
            return "directory"
        return "file" if stat.S_ISREG(mode) else "special"

    async def feed(self, path: str, sink: Callable[[bytes], None]) -> None:
        # Size 0 is also what the files of /proc have, some of them long and slow.
        if 0 < _status(path, "view").st_size <= _MAX_INLINE_BYTES:
            _feed(path, sink)
        else:
            await asyncio.to_thread(_feed, path, sink)

    async def listing(self, path: str) -> Listing:
        try:
            return await asyncio.to_thread(scan_directory, path)
        except OSError as failure:
            raise failed(failure, "view", path) from failure

    async def create(self, path: str, content: bytes) -> None:
        async with lock_of(await self.lock_name(path)):
            await self._write(len(content) <= _MAX_INLINE_BYTES, lambda: _create(path, content))

    async def rewrite(self, path: str, change: Callable[[bytes], tuple[bytes, str]]) -> Rewritten:
        target = os.path.realpath(path)
        status = _status(path, "edit")
        linked = status.st_nlink > 1
        async with lock_of(_lock_name(target, status)):
            quick = status.st_size <= _MAX_INLINE_BYTES and not linked
            return await self._write(quick, lambda: _rewrite(path, target, change, self._apart))

    async def resolve(self, path: str) -> str:
        return os.path.realpath(path)

    async def lock_name(self, path: str) -> str:
        """What all names of a file have in common, below whatever root they are looked at."""
        target = os.path.realpath(path)
        status = None
        with suppress(OSError):
            status = os.stat(target)
        return _lock_name(target, status)

    async def remove(self, path: str, check: Callable[[bytes], None]) -> None:
        target = os.path.realpath(path)
        async with lock_of(await self.lock_name(path)):
            await self._write(
                _status(path, "remove").st_size <= _MAX_INLINE_BYTES, lambda: _remove(path, target, check)
            )

    async def _write(self, quick: bool, work: Callable[[], T]) -> T:
        """What `work` returns. It writes, and waits for the disk: on a slow one it moves to a thread."""
        started = time.monotonic()
        if quick and self._last_write_s < _SLOW_DISK_S:
            done = work()
        else:
            done = await _to_its_end(work)
        self._last_write_s = time.monotonic() - started
        return done


def _lock_name(target: str, status: os.stat_result | None) -> str:
    # What has two names is one file by both; it is overwritten by a process that takes its time.
    if status is not None and status.st_nlink > 1:
        return f"{status.st_dev}:{status.st_ino}"
    folder, _, name = target.rpartition("/")
    with suppress(OSError):  # the file itself may be replaced meanwhile, its folder not
        found = os.stat(folder or "/")
        return f"{found.st_dev}:{found.st_ino}/{name}"
    return target


def lock_of(target: str) -> asyncio.Lock:
    """The lock of a file, by its `lock_name`: the same for all sessions."""
    lock = _path_locks.get(target)
    if lock is None:
        lock = _path_locks[target] = asyncio.Lock()
    return lock


async def _to_its_end(work: Callable[[], T]) -> T:
    """`work` in a thread. Cancellation waits for it: the lock must outlive the writing."""
    job = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(job)
    except asyncio.CancelledError:
        while not job.done():
            try:
                await asyncio.wait([job])
            except asyncio.CancelledError:
                continue  # raised below, once
        if not job.cancelled():
            job.exception()  # seen; the cancellation is what the caller gets
        raise


def _status(path: str, action: str) -> os.stat_result:
    try:
        return os.stat(path)
    except OSError as failure:
        raise failed(failure, action, path) from failure


def _open_regular(path: str) -> tuple[int, os.stat_result]:
    """A descriptor for reading, and its status. The caller closes it.

    Raises:
        ToolError: not a regular file.
    """
    # Looked at before it is opened: opening alone wakes the writer of a pipe or rewinds a tape.
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        raise not_regular(path, mode)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise not_regular(path, status.st_mode)
    return descriptor, status


def _read_size(status: os.stat_result) -> int:
    """Enough for the whole of a small file, and no more: a large buffer costs page faults."""
    return min(max(status.st_size + 1, 4096), _BLOCK_BYTES)


def _feed(path: str, sink: Callable[[bytes], None]) -> None:
    try:
        descriptor, status = _open_regular(path)
        try:
            n_left = _MAX_VIEW_BYTES
            if status.st_size > n_left:
                raise ToolError(
                    f"{shown(path)} has {status.st_size} bytes, too many to view here. "
                    f"Use bash, for example sed -n."
                )
            while n_left > 0 and (block := os.read(descriptor, _read_size(status))):
                sink(block)
                n_left -= len(block)
        finally:
            os.close(descriptor)
    except OSError as failure:
        raise failed(failure, "view", path) from failure


def _read(path: str) -> tuple[bytes, os.stat_result]:
    descriptor, status = _open_regular(path)
    try:
        blocks = []
        n_bytes = 0
        while max(n_bytes, status.st_size) <= MAX_EDIT_BYTES and (
            block := os.read(descriptor, _read_size(status))
        ):
            blocks.append(block)
            n_bytes += len(block)
    finally:
        os.close(descriptor)
    if max(n_bytes, status.st_size) > MAX_EDIT_BYTES:
        raise ToolError(
            f"{shown(path)} has {max(n_bytes, status.st_size)} bytes; the editor changes files of up to "
            f"{MAX_EDIT_BYTES} bytes. Use bash, for example sed -i."
        )
    return b"".join(blocks), status


def _rewrite(path: str, target: str, change: Callable[[bytes], tuple[bytes, str]], apart: bool) -> Rewritten:
    try:
        content, status = _read(target)
        new, report = change(content)
        if new != content:
            replace_file(target, status, content, new, apart=apart)
    except OSError as failure:
        raise failed(failure, "edit", path) from failure
    return Rewritten(report, read_only=not status.st_mode & 0o222)


def _remove(path: str, target: str, check: Callable[[bytes], None]) -> None:
    try:
        content, status = _read(target)
        check(content)
        remove_file(target, status)
    except OSError as failure:
        raise failed(failure, "remove", path) from failure


def _new_target(path: str) -> str:
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def _create(path: str, content: bytes) -> None:
    if os.path.lexists(path):
        raise _exists(path)
    try:
        create_file(_new_target(path), content)
    except FileExistsError as failure:
        raise _exists(path) from failure
    except OSError as failure:
        raise failed(failure, "create", path) from failure


def _exists(path: str) -> ToolError:
    if os.path.islink(path):
        what = "a symbolic link"
    elif os.path.isdir(path):
        what = "a directory"
    else:
        what = "a file"
    return ToolError(
        f"{shown(path)} already exists ({what}); `create` never overwrites. "
        f"Use `str_replace` or `insert` to change a file, or choose another path."
    )

"""Putting content on disk so that a reader, a crash or a full disk never meets half a file. Blocking."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from cordisd.editor.failures import shown
from cordisd.errors import ToolError

# A folder or a mount that cannot take the new file, or an owner or attribute that cannot be given to it.
_CANNOT_REPLACE = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.EXDEV, errno.ENOTSUP, errno.EINVAL}
)
_CANNOT_LINK = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})


def replace_file(target: str, before: os.stat_result, old: bytes, new: bytes) -> None:
    """Make `new` the content of the regular file `target`, which was `old` when its status was `before`.

    A rename over `target` where that keeps everything else of the file (mode, owner, extended attributes,
    hard links); otherwise the file is overwritten in place, and restored if that fails.

    Raises:
        ToolError: the file was changed by somebody else since `before`.
        OSError: the file still has its old content.
    """
    if before.st_nlink == 1 and _replace_by_rename(target, before, new):
        return
    _overwrite(target, before, old, new)


def create_file(target: str, content: bytes) -> None:
    """Make the new file `target`, mode 0666 without the umask, and the parents that are missing.

    Raises:
        FileExistsError: there is something at `target`.
        OSError: nothing was left behind, neither a file nor parents.
    """
    with _parents(os.path.dirname(target)):
        with _staged(target, 0o666, content) as (staged, _):
            try:
                os.link(staged, target)
                return
            except OSError as failure:
                if failure.errno not in _CANNOT_LINK:
                    raise
        _create_directly(target, content)


def _replace_by_rename(target: str, before: os.stat_result, new: bytes) -> bool:
    """False if the directory or the owner forbids it; nothing has happened then."""
    try:
        with _staged(target, 0o600, new) as (staged, descriptor):
            _copy_identity(target, before, descriptor)
            _check_unchanged(target, before, os.stat(target, follow_symlinks=False))
            os.rename(staged, target)
            return True
    except OSError as failure:
        if failure.errno in _CANNOT_REPLACE:
            return False
        raise


@contextmanager
def _staged(target: str, mode: int, content: bytes) -> Iterator[tuple[str, int]]:
    """A synced temporary file beside `target`; gone at the end unless it was renamed.

    Its name is short, so that a target with the longest possible name can be staged too.
    """
    staged = os.path.join(os.path.dirname(target), f".cordisd-{secrets.token_hex(6)}")
    descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        try:
            _write_at(descriptor, content, 0)
            _sync(descriptor)
            yield staged, descriptor
        finally:
            os.close(descriptor)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(staged)


def _copy_identity(target: str, before: os.stat_result, descriptor: int) -> None:
    now = os.fstat(descriptor)
    if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
        os.fchown(descriptor, before.st_uid, before.st_gid)
    os.fchmod(descriptor, before.st_mode & 0o7777)  # after fchown, which clears the setuid and setgid bits
    try:
        names = os.listxattr(target, follow_symlinks=False)
    except OSError as failure:
        if failure.errno == errno.ENOTSUP:
            return
        raise
    for name in names:
        os.setxattr(descriptor, name, os.getxattr(target, name, follow_symlinks=False))


def _check_unchanged(target: str, before: os.stat_result, now: os.stat_result) -> None:
    if _version(before) != _version(now):
        raise ToolError(
            f"{shown(target)} was changed by another program during the edit, so nothing was written. "
            f"View it again."
        )


def _version(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _overwrite(target: str, before: os.stat_result, old: bytes, new: bytes) -> None:
    descriptor = os.open(target, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        _check_unchanged(target, before, os.fstat(descriptor))
        try:
            # What lies behind the old end goes first: a full disk shows while the old bytes are whole.
            _write_at(descriptor, new[len(old) :], len(old))
            _write_at(descriptor, new[: len(old)], 0)
            os.ftruncate(descriptor, len(new))
            _sync(descriptor)
        except BaseException:
            _write_at(descriptor, old, 0)
            os.ftruncate(descriptor, len(old))
            raise
        if os.fstat(descriptor).st_mode != before.st_mode:  # writing cleared the setuid bit
            with contextlib.suppress(PermissionError):
                os.fchmod(descriptor, before.st_mode & 0o7777)
    finally:
        os.close(descriptor)


@contextmanager
def _parents(directory: str) -> Iterator[None]:
    """Makes the missing ones of `directory` and its parents, and removes them again if the body fails."""
    missing = []
    while not os.path.lexists(directory):
        missing.append(directory)
        directory = os.path.dirname(directory)
    made: list[str] = []
    try:
        for parent in reversed(missing):
            with contextlib.suppress(FileExistsError):  # another session makes it at the same time
                os.mkdir(parent)
                made.append(parent)
        yield
    except BaseException:
        with contextlib.suppress(OSError):  # not empty: somebody else uses it by now
            for parent in reversed(made):
                os.rmdir(parent)
        raise


def _create_directly(target: str, content: bytes) -> None:
    """For file systems without hard links: a crash in the middle can leave a part."""
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    try:
        _write_at(descriptor, content, 0)
        _sync(descriptor)
    except BaseException:
        os.unlink(target)
        raise
    finally:
        os.close(descriptor)


def _write_at(descriptor: int, content: bytes, offset: int) -> None:
    rest = memoryview(content)
    while rest:
        n_written = os.pwrite(descriptor, rest, offset)
        rest = rest[n_written:]
        offset += n_written


def _sync(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    except OSError as failure:
        if failure.errno != errno.EINVAL:  # some file systems have no fsync
            raise

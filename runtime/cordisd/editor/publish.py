"""Putting content on disk so that neither a full disk nor SIGKILL of the daemon leaves half a file. Blocking.

A rename shows every reader the old or the new file, also after a loss of power. Where the file itself has to
be overwritten (hard links, an owner or a folder that is not ours), a process of its own does it, and outlives
the daemon by some milliseconds. For that time a reader can meet half a file, and a loss of power, or of the
whole container, can leave it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from cordisd.editor import overwrite
from cordisd.editor.failures import shown
from cordisd.editor.staging import staged_file
from cordisd.errors import ToolError

# A folder or a mount that cannot take the new file, or an owner or attribute that cannot be given to it.
_CANNOT_REPLACE = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.EXDEV, errno.ENOTSUP, errno.EINVAL}
)
_CANNOT_LINK = frozenset({errno.EACCES, errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})


def replace_file(target: str, before: os.stat_result, old: bytes, new: bytes, *, apart: bool = True) -> None:
    """Make `new` the content of the regular file `target`, which was `old` when its status was `before`.

    A rename over `target` where that keeps everything else of the file (mode, owner, extended attributes,
    hard links); otherwise the file is overwritten in place, and restored if that fails. `apart`: by a process
    that goes on when this one is killed.

    Raises:
        ToolError: the file was changed by somebody else since `before`.
        OSError: the file still has its old content.
    """
    if before.st_nlink == 1 and _replace_by_rename(target, before, new):
        return
    _overwrite(target, before, old, new, apart)


def create_file(target: str, content: bytes) -> None:
    """Make the new file `target`, mode 0666 without the umask, and the parents that are missing.

    Raises:
        FileExistsError: there is something at `target`.
        OSError: nothing was left behind, neither a file nor parents.
    """
    folder = os.path.dirname(target)
    with _parents(folder):
        with staged_file(folder, 0o666, content) as staged:
            try:
                staged.link(target)
                return
            except OSError as failure:
                if failure.errno not in _CANNOT_LINK:
                    raise
        _create_without_links(target, content)


def remove_file(target: str, before: os.stat_result) -> None:
    """Remove the file `target`, whose status was `before`.

    Raises:
        ToolError: the file was changed by somebody else since `before`.
    """
    _check_unchanged(target, before, os.stat(target, follow_symlinks=False))
    os.unlink(target)


def _replace_by_rename(target: str, before: os.stat_result, new: bytes) -> bool:
    """False if the directory or the owner forbids it; nothing has happened then."""
    try:
        with staged_file(os.path.dirname(target), 0o600, new) as staged:
            _copy_identity(target, before, staged.descriptor)
            _check_unchanged(target, before, os.stat(target, follow_symlinks=False))
            staged.rename(target)
            return True
    except OSError as failure:
        if failure.errno in _CANNOT_REPLACE:
            return False
        raise


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
        raise _changed_meanwhile(target)


def _changed_meanwhile(target: str) -> ToolError:
    return ToolError(
        f"{shown(target)} was changed by another program during the edit, so nothing was written. "
        f"View it again."
    )


def _version(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _overwrite(target: str, before: os.stat_result, old: bytes, new: bytes, apart: bool) -> None:
    # Looked at first: on an overlay, opening for writing makes another file of it. The writer compares `old`.
    _check_unchanged(target, before, os.stat(target, follow_symlinks=False))
    descriptor = os.open(target, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        write = _answer_of_writer if apart else _answer_of_our_own
        answer = write(target, descriptor, old, new)
        if not answer.isdigit():  # it was killed; we were not
            overwrite.put_back(descriptor, old)
            raise ToolError(
                f"Cannot edit {shown(target)}: the process that had to overwrite it was killed. "
                f"The file has its old content."
            )
    finally:
        os.close(descriptor)
    match int(answer):
        case 0:
            return
        case errno.ESTALE:
            raise _changed_meanwhile(target)
        case errno.EUCLEAN:
            raise ToolError(
                f"{shown(target)} is damaged: the disk failed while it was overwritten in place, and its old "
                f"content could not be put back either."
            )
        case number:
            raise OSError(number, os.strerror(number))


def _answer_of_writer(target: str, descriptor: int, old: bytes, new: bytes) -> str:
    """What `overwrite.py` printed, run in a process that neither the daemon nor its group takes along."""
    contents = os.memfd_create("cordisd-edit")
    try:
        overwrite.write_at(contents, old, 0)
        overwrite.write_at(contents, new, len(old))
        numbers = map(str, (descriptor, contents, len(old)))
        try:
            writer = subprocess.Popen(
                [sys.executable, "-I", "-S", overwrite.__file__, *numbers],
                executable="/proc/self/exe",  # runs, whatever became of the path and of our rights on it
                pass_fds=(descriptor, contents),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                text=True,
            )
        except OSError as failure:
            raise ToolError(
                f"Cannot edit {shown(target)}: it has to be overwritten in place, and no process could be "
                f"started for that. Nothing was changed."
            ) from failure
        return writer.communicate()[0].strip()
    finally:
        os.close(contents)


def _answer_of_our_own(target: str, descriptor: int, old: bytes, new: bytes) -> str:
    try:
        overwrite.overwrite(descriptor, old, new)
    except OSError as failure:
        return str(failure.errno or errno.EIO)
    return "0"


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


def _create_without_links(target: str, content: bytes) -> None:
    """For file systems without hard links: a kill between two system calls leaves an empty file."""
    with staged_file(os.path.dirname(target), 0o666, content, named=True) as staged:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666))
        try:
            staged.rename(target)
        except BaseException:
            os.unlink(target)
            raise

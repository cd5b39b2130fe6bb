"""A complete file in the right folder that is not in its place yet. Blocking."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from cordisd.editor.overwrite import sync, write_at

_NO_UNNAMED_FILES = frozenset({errno.ENOTSUP, errno.EISDIR, errno.EINVAL, errno.ENOSYS})


class StagedFile:
    """Content on disk that `link` or `rename` puts in its place. `name`: its private name, if it has one."""

    def __init__(self, descriptor: int, folder: str, name: str | None) -> None:
        self.descriptor = descriptor
        self.name = name
        self._folder = folder

    def link(self, path: str) -> None:
        """Give the file the name `path`.

        Raises:
            FileExistsError: there is something at `path`.
        """
        source = self.name or f"/proc/self/fd/{self.descriptor}"
        # A folder for the source, unused because `source` is absolute, makes Python follow the link in /proc.
        os.link(source, path, src_dir_fd=self.descriptor, follow_symlinks=True)

    def rename(self, path: str) -> None:
        """Put the file in the place of the one at `path`."""
        if self.name is None:  # a kill between these two system calls leaves a complete file with this name
            name = _short_name(self._folder)
            self.link(name)
            self.name = name
        os.rename(self.name, path)
        self.name = None


@contextmanager
def staged_file(folder: str, mode: int, content: bytes, *, named: bool = False) -> Iterator[StagedFile]:
    """A synced file in `folder`; gone at the end unless it was put in its place.

    It has no name unless it must or the file system wants it: what has no name cannot be left behind.
    """
    staged = _with_name(folder, mode) if named else _without_name(folder, mode)
    try:
        write_at(staged.descriptor, content, 0)
        sync(staged.descriptor)
        yield staged
    finally:
        os.close(staged.descriptor)
        if staged.name is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(staged.name)


def _without_name(folder: str, mode: int) -> StagedFile:
    if not os.path.exists("/proc/self"):  # in a mount namespace with the /proc of other processes
        return _with_name(folder, mode)
    try:
        return StagedFile(os.open(folder, os.O_WRONLY | os.O_TMPFILE, mode), folder, None)
    except OSError as failure:
        if failure.errno not in _NO_UNNAMED_FILES:
            raise
        return _with_name(folder, mode)


def _with_name(folder: str, mode: int) -> StagedFile:
    name = _short_name(folder)
    return StagedFile(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode), folder, name)


def _short_name(folder: str) -> str:
    """A new name in `folder`, not made from a target's name, which may be the longest possible."""
    return os.path.join(folder, f".cordisd-{secrets.token_hex(6)}")

"""Whole copies of outputs that are too long to show, in files that the model can search."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from contextlib import suppress
from typing import Final

from cordisd.shell.launch import User

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]")
_MAX_LABEL_CHARS: Final = 64


class SpillFolder:
    """The copies of one session, together at most `quota_bytes`; `close` removes them.

    Readable for the daemon's user and, through its group, for `reader`, who may rename what is around it:
    so everything is reached through a descriptor of the folder. Nothing is on disk before the first copy.
    The folder is called after the session as far as its id, which a client has chosen, makes a plain name.
    """

    def __init__(self, parent: str, session_id: str, quota_bytes: int, reader: User | None) -> None:
        self.left_bytes = quota_bytes
        self._parent = parent
        self._label = _UNSAFE.sub("_", session_id)[:_MAX_LABEL_CHARS]
        self._reader = reader
        self._path = ""
        self._folder = -1
        self._names: list[str] = []

    def open(self) -> tuple[int, str]:
        """A new file: its descriptor and its path.

        Raises:
            OSError: the folder or the file cannot be made.
        """
        if not self._path:
            _make_folders(self._parent)
            path = tempfile.mkdtemp(prefix=f"{self._label}-", dir=self._parent)
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            if os.fstat(folder).st_uid != os.geteuid():
                os.close(folder)
                raise PermissionError(errno.EPERM, "somebody else has replaced the folder")
            self._folder, self._path = folder, path
            self._share(self._folder, 0o750)
        name = f"{len(self._names) + 1}.txt"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name, flags, 0o600, dir_fd=self._folder)
        self._names.append(name)
        self._share(descriptor, 0o640)
        return descriptor, f"{self._path}/{name}"

    def remove(self, path: str) -> None:
        """Remove one copy."""
        with suppress(OSError):
            os.unlink(os.path.basename(path), dir_fd=self._folder)

    def close(self) -> None:
        """Remove every copy."""
        if self._folder < 0:
            return
        for name in self._names:
            self.remove(name)
        os.close(self._folder)
        self._folder = -1
        with suppress(OSError):
            os.rmdir(self._path)  # if it is another one by now, it is empty or stays

    def _share(self, descriptor: int, mode: int) -> None:
        if self._reader is not None:
            os.fchown(descriptor, -1, self._reader.gid)
            os.fchmod(descriptor, mode)


def _make_folders(path: str) -> None:
    """Those that are missing, open to all whatever the umask is: the folders in them are not."""
    if not os.path.isdir(path):
        _make_folders(os.path.dirname(path))
        os.mkdir(path)
        os.chmod(path, 0o755)


class Spill:
    """The copy of one output. Its file is made with the first byte, and removed again without `locate`."""

    def __init__(self, folder: SpillFolder) -> None:
        self._folder = folder
        self._descriptor = -1
        self._path = ""
        self._n_bytes = 0
        self._failure = ""
        self._wanted = False

    def append(self, data: bytes | bytearray) -> None:
        """Take the next bytes of the output, as far as the quota and the disk allow."""
        if self._failure:
            return
        try:
            if self._descriptor < 0:
                self._descriptor, self._path = self._folder.open()
            if len(data) > self._folder.left_bytes:
                self._failure = "the session's quota of copies is used up"
            rest = memoryview(data)[: self._folder.left_bytes]
            while rest:
                n_written = os.write(self._descriptor, rest)
                self._n_bytes += n_written
                self._folder.left_bytes -= n_written
                rest = rest[n_written:]
        except OSError as failure:
            self._failure = (failure.strerror or "the disk refused it").lower()

    def locate(self) -> str:
        """Where the copy is, in words, and how much of the output it holds if not all. It stays there."""
        self._wanted = True
        if not self._failure:
            return f"the whole output is in {self._path}"
        if self._n_bytes:
            return f"its first {self._n_bytes:,} bytes are in {self._path} ({self._failure})"
        return f"there is no copy of it ({self._failure})"

    def close(self) -> None:
        """No more is taken."""
        self._failure = self._failure or "it was closed"
        if self._descriptor < 0:
            return
        os.close(self._descriptor)
        self._descriptor = -1
        if not self._wanted:
            self._folder.left_bytes += self._n_bytes
            self._folder.remove(self._path)

"""A session store whose disk fails on demand: `bad_disk:BadDiskEntry`, in the place of the entry `sessions`.

The file that BAD_DISK names says what fails, and is read before each call: a JSON object of session ids, each
with the calls that fail and how. `"EIO"` raises that error; `17` (of `write`) takes so many bytes more and
then kills the daemon. Each call that was made is noted in the same place with `.calls` at its end.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from cordisd.kernel.entry import Entry
from cordisd.kernel.scope import Scope
from cordisd.session.disk import DiskCalls
from cordisd.session.file import FsyncPolicy
from cordisd.session.root import default_root
from cordisd.session.store import SessionStore
from cordisd.settings import EntryConfig

TESTS = Path(__file__).parent


class BadDisk:
    """The calls of a disk, each of which first looks whether it is to fail."""

    def __init__(self, control: Path) -> None:
        self._control = control
        self._calls = open(f"{control}.calls", "a", buffering=1)

    def calls(self) -> DiskCalls:
        return DiskCalls(self._write, self._truncate, self._fsync)

    def close(self) -> None:
        self._calls.close()

    def _write(self, fd: int, data: memoryview) -> int:
        room = self._look("write", fd)
        if room is None:
            return os.write(fd, data)
        os.write(fd, data[:room])
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("killed")

    def _truncate(self, fd: int, size: int) -> None:
        self._look("truncate", fd)
        os.ftruncate(fd, size)

    def _fsync(self, fd: int) -> None:
        self._look("fsync", fd)
        os.fsync(fd)

    def _look(self, call: str, fd: int) -> int | None:
        """Fail if `call` is to fail for the session whose file `fd` is; else the room it is to have left."""
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        session = path.parent.name if path.name.startswith("session.jsonl") else f"folder {path.name}"
        self._calls.write(f"{session} {call}\n")
        try:
            faults: dict[str, Any] = json.loads(self._control.read_text())
        except (FileNotFoundError, ValueError):
            return None
        how = faults.get(session, {}).get(call)
        if isinstance(how, str):
            raise OSError(getattr(errno, how), os.strerror(getattr(errno, how)))
        return how


class BadDiskConfig(EntryConfig):
    fsync: FsyncPolicy = "turn"


class BadDiskEntry(Entry):
    """Provides the `SessionStore` on a `BadDisk`."""

    Config = BadDiskConfig

    @asynccontextmanager
    async def mount(self, scope: Scope) -> AsyncIterator[None]:
        config: BadDiskConfig = self.config
        disk = BadDisk(Path(os.environ["BAD_DISK"]))
        store = SessionStore(default_root(), fsync=config.fsync, disk=disk.calls())
        scope.provide(SessionStore, store)
        try:
            yield
        finally:
            store.close()
            disk.close()


def composition(folder: Path, fsync: FsyncPolicy = "turn") -> list[str]:
    """The command of a daemon that is `minimal` on a bad disk; its files lie in `folder`."""
    patch = folder / f"bad-disk-{fsync}.yml"
    patch.write_text(
        "- {id: sessions, disabled: true}\n"
        f"- insert: [{{id: store, name: 'bad_disk:BadDiskEntry', config: {{fsync: {fsync}}}}}]\n"
    )
    return [sys.executable, "-m", "cordisd", "serve", "--stdio", "minimal", "--patch", str(patch)]

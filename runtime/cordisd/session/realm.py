"""A realm: all that one session owns outside the daemon's memory. Closing it leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable

from cordisd.shell.guardian import Guardian


class Realm:
    """The working directory, processes and private folder of one session.

    `cwd` is where the session's tools start; it changes by `move` only. `guardian` is the parent of every
    process started for the session; None where the daemon was started without one (no shell can run then).
    """

    def __init__(self, session_id: str, cwd: str, guardian: Guardian | None) -> None:
        self.session_id = session_id
        self.cwd = cwd
        self.guardian = guardian
        self.restored = False
        """True when the session was resumed: its first shell has lost the state of the last one."""
        self._folder: str | None = None
        self._followers: list[Callable[[str], Awaitable[None]]] = []

    def folder(self) -> str:
        """The session's private folder (mode 0700), made at first use and removed with the realm."""
        if self._folder is None:
            self._folder = tempfile.mkdtemp(prefix="cordisd-")
        return self._folder

    def on_move(self, follow: Callable[[str], Awaitable[None]]) -> Callable[[], None]:
        """Have `follow(cwd)` awaited whenever the session moves; the returned function stops that."""
        self._followers.append(follow)
        return lambda: self._followers.remove(follow)

    async def move(self, cwd: str) -> None:
        """Make the absolute path `cwd` the session's directory, for live shells too."""
        self.cwd = os.path.normpath(cwd)
        for follow in list(self._followers):
            await follow(self.cwd)

    async def close(self) -> None:
        """End every process of the session and remove its folder."""
        if self.guardian is not None:
            await self.guardian.close_realm(self.session_id)
        if self._folder is not None:
            with contextlib.suppress(OSError):
                shutil.rmtree(self._folder)
            self._folder = None

"""A realm: all that one session owns outside the daemon's memory. Closing it leaves nothing behind."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import ClassVar

from cordisd.kernel.scope import Scope
from cordisd.shell.guardian import Guardian
from cordisd.shell.launch import Launch, Place


class Realm:
    """The working directory and the processes of one session, or those of a private realm within it.

    `cwd` is where the session's tools start; it changes by `move` only. `guardian` is the parent of every
    process started for the session; None where the daemon was started without one (no shell can run then).
    `session_id` is also what the guardian knows its processes by; a private realm has one of its own.
    """

    service_names: ClassVar[tuple[str, ...]] = ("terminals", "terminal", "subprocess", "fs")
    """The published services whose part it plays: whoever isolates one has a realm of its own."""

    def __init__(
        self, session_id: str, cwd: str, guardian: Guardian | None, *, within: Realm | None = None
    ) -> None:
        self.session_id = session_id
        self.cwd = cwd
        self.guardian = guardian
        self.restored = False
        """True when the session was resumed: its first shell has lost the state of the last one."""
        self._followers: list[Callable[[str], None]] = []
        self._session = within or self
        self._launch = Launch()
        self._place: Callable[[], Awaitable[Place]] | None = None
        self._homes: list[Realm] = []
        """Of the session's realm: all those in which a shell is offered."""

    @property
    def home(self) -> Realm:
        """The realm whose shell decides where files are and who reaches them.

        That is this one if a shell is offered in it, else the session's, else the first private one that
        has a shell: no tool escapes from a container, or from the shell's user, by being isolated from it.
        """
        homes = self._session._homes
        return next((realm for realm in (self, self._session, *homes) if realm in homes), self)

    @property
    def launch(self) -> Launch:
        """How processes are started; set by the entry that offers the shell."""
        return self.home._launch

    @launch.setter
    def launch(self, launch: Launch) -> None:
        self._launch = launch
        if self not in self._session._homes:
            self._session._homes.append(self)

    @property
    def place(self) -> Callable[[], Awaitable[Place]] | None:
        """Where the tools are, if that is not where the daemon is or not as its user; set with `launch`."""
        return self.home._place

    @place.setter
    def place(self, place: Callable[[], Awaitable[Place]] | None) -> None:
        self._place = place

    def on_move(self, follow: Callable[[str], None]) -> Callable[[], None]:
        """Have `follow(cwd)` called whenever the session moves; the returned function stops that."""
        self._followers.append(follow)
        return lambda: self._followers.remove(follow)

    def move(self, cwd: str) -> None:
        """Make the absolute path `cwd` the session's directory, for live shells too."""
        self.cwd = os.path.normpath(cwd)
        for follow in list(self._followers):
            follow(self.cwd)

    def private(self, scope: Scope) -> Realm:
        """A realm within the session: it has its own shells, in the session's directory.

        It follows the session when that moves, and its processes end when `scope` closes.
        """
        # Unguessable: a session that a client has given the same id would end its processes.
        realm = Realm(f"{self.session_id}.{os.urandom(8).hex()}", self.cwd, self.guardian, within=self)
        realm.restored = self.restored
        scope.defer(self.on_move(realm.move))
        scope.defer(realm.close)
        scope.defer(realm._leave)
        return realm

    def _leave(self) -> None:
        if self in self._session._homes:
            self._session._homes.remove(self)

    async def close(self) -> None:
        """End every process of the session."""
        if self.guardian is not None:
            await self.guardian.close_realm(self.session_id)

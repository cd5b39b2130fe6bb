"""What one connection hears: a feed for each of its sessions, and the turns that they take to catch up."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from cordisd.rpc.feed import Feed
from cordisd.rpc.transports import FdTransport

if TYPE_CHECKING:
    from cordisd.agent.live import Live

logger = logging.getLogger(__name__)


class Turns:
    """Has one of those who ask do its piece of work in each turn of the event loop, in order."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()

    def ask(self, work: Callable[[], None]) -> None:
        """Call `work` when its turn comes."""
        self._waiting.append(work)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._take_turn)

    def _take_turn(self) -> None:
        work = self._waiting.popleft()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._take_turn)
        work()


class Feeds:
    """The feeds to `transport`. Call `catch_up_soon` whenever it has room again. The owner closes them."""

    def __init__(self, transport: FdTransport, turns: Turns) -> None:
        self._transport = transport
        self._turns = turns
        self._feeds: dict[str, Feed] = {}
        """The one that has last sent a slice comes last."""
        self._ending: list[Feed] = []
        """Feeds of closed sessions that still have something to send, oldest first."""
        self._catching_up = False

    def __contains__(self, session_id: str) -> bool:
        """Whether the events of that live session are sent."""
        return session_id in self._feeds

    @property
    def is_catching_up(self) -> bool:
        """Whether a slice is about to be sent."""
        return self._catching_up

    def attach(self, live: Live, from_seq: int | None = None) -> None:
        """Send the session's events from `from_seq` on, by default from its next one."""
        session = live.session
        self._drop(session.id)
        waits = any(feed.session_id == session.id for feed in self._ending)
        feed = Feed(session.id, session.log, self._transport, from_seq=from_seq, waits=waits)
        self._feeds[session.id] = feed
        if feed.is_behind:
            self.catch_up_soon()

    def detach(self, session_id: str) -> None:
        """Send no more of that session, whatever is still to be sent, of an earlier life of it too."""
        for feed in [feed for feed in self._ending if feed.session_id == session_id]:
            self._ending.remove(feed)
            feed.close()
        self._drop(session_id)

    def see_off(self, session_id: str) -> None:
        """The session has been closed: send what it has logged, however late that is read, and no more."""
        feed = self._feeds.pop(session_id, None)
        if feed is None:
            return
        feed.end()
        if feed.is_behind:
            self._ending.append(feed)
        else:
            feed.close()

    def close(self) -> None:
        """Send nothing more. Closing twice is harmless."""
        for feed in (*self._ending, *self._feeds.values()):
            feed.close()

    def catch_up_soon(self) -> None:
        """When it is this connection's turn send a slice for one feed that is behind, if there is one."""
        if not self._catching_up:
            self._catching_up = True
            self._turns.ask(self._catch_up)

    def _catch_up(self) -> None:
        """Send one slice for the first feed that is behind, and come back for the next."""
        self._catching_up = False
        if self._transport.is_behind or self._transport.is_broken:
            return  # when it has room we are called again
        feed = next((feed for feed in (*self._ending, *self._feeds.values()) if feed.is_behind), None)
        if feed is None:
            return
        try:
            feed.catch_up()
        except Exception as error:  # one connection's log must not stop the others
            logger.error("session %s: a connection is ended: %s", feed.session_id, error)
            self._transport.give_up()
            return
        if feed in self._ending:
            if not feed.is_behind:
                feed.close()
                self._ending.remove(feed)
        else:
            self._feeds[feed.session_id] = self._feeds.pop(feed.session_id)
        self.catch_up_soon()

    def _drop(self, session_id: str) -> None:
        feed = self._feeds.pop(session_id, None)
        if feed is not None:
            feed.close()

"""Every connection of a daemon: who hears which session, and what becomes of the sessions of who goes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from cordisd.agent.host import Host
from cordisd.rpc.feeds import Turns
from cordisd.rpc.peer import Peer

if TYPE_CHECKING:
    import socket

    from cordisd.agent.live import Live
    from cordisd.rpc.listen import Listener

logger = logging.getLogger(__name__)

LAST_ANSWERS_S: Final = 5.0
"""How long what was asked by a client that asks no more is still worked on and answered."""


class Connections:
    """The connections of `host`. `on_shutdown` is called when a client has asked for it and is answered."""

    def __init__(self, host: Host, on_shutdown: Callable[[], None]) -> None:
        self.turns = Turns()
        """For connections that catch up, so that many of them hold the event loop up no more than one."""
        self._host = host
        self._on_shutdown = on_shutdown
        self._peers: dict[Peer, None] = {}
        self._going: dict[Peer, asyncio.Task[None]] = {}
        self.last_used_s = time.monotonic()
        """When a client has last come or gone."""
        host.on_open = self._opened
        host.on_close = self._closed

    def __len__(self) -> int:
        return len(self._peers) + len(self._going)

    def add_stdio(self, reader: int, writer: int, on_end: Callable[[], None]) -> None:
        """Serve the client at the other end of two pipes, who hears every session; `on_end`: it is done."""
        self._add(reader, writer, on_end=lambda _: on_end(), hears_all=True)

    def accept(self, listener: Listener, token: str | None) -> None:
        """Serve whoever connects there; `token` has to be shown where the kernel does not tell who it is."""
        needed = None if listener.is_local else token

        def connect(connection: socket.socket) -> None:
            try:
                writer = connection.dup().detach()
            except OSError as error:
                logger.error("%s: a connection is refused: %s", listener.url, error.strerror)
                connection.close()
                return
            self._add(connection.detach(), writer, on_end=self._gone, token=needed)

        listener.start(connect)

    def hide_daemon(self) -> None:
        """Make the daemon's memory, environment and descriptors unreadable to its own user's programs."""
        from cordisd.shell.prctl import forbid_tracing  # ctypes: after the first answer

        forbid_tracing()

    def hearers(self, session_id: str) -> list[Peer]:
        """The connections to which that live session's events are sent."""
        return [peer for peer in self._peers if session_id in peer.feeds]

    async def close(self, timeout_s: float) -> None:
        """End every connection, as `Peer.close`."""
        reason = "the daemon is shutting down"
        going = list(self._going.values())
        closing = [peer.close(timeout_s, reason) for peer in (*self._peers, *self._going)]
        self._peers.clear()
        await asyncio.gather(*closing)
        await asyncio.gather(*going)

    def _add(
        self,
        reader: int,
        writer: int,
        *,
        on_end: Callable[[Peer], None],
        token: str | None = None,
        hears_all: bool = False,
    ) -> None:
        peer = Peer(
            self._host,
            self,
            reader,
            writer,
            on_end=on_end,
            on_shutdown=self._on_shutdown,
            token=token,
            hears_all=hears_all,
        )
        self._peers[peer] = None
        self.last_used_s = time.monotonic()
        for live in self._host.live.values():
            if hears_all:
                peer.feeds.attach(live)

    def _gone(self, peer: Peer) -> None:
        """A client has gone, or has said its last: its sessions go on without an owner."""
        if peer not in self._peers:
            return
        del self._peers[peer]
        self._disown(peer)
        task = asyncio.ensure_future(peer.close(LAST_ANSWERS_S, "the connection has ended"))
        self._going[peer] = task
        task.add_done_callback(lambda _: self._forget(peer))

    def _forget(self, peer: Peer) -> None:
        """A client that has gone is answered; what it had asked for at last may have made it an owner."""
        del self._going[peer]
        self._disown(peer)
        self.last_used_s = time.monotonic()

    def _disown(self, peer: Peer) -> None:
        for live in self._host.live.values():
            if live.owner is peer:
                live.owner = None

    def _opened(self, live: Live) -> None:
        for peer in self._peers:
            if peer.hears_all or live.owner is peer:
                peer.feeds.attach(live)

    def _closed(self, live: Live) -> None:
        for peer in self._peers:
            peer.feeds.see_off(live.session.id)

"""The events of a session, whoever prompts it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from cordisd import wire
from cordisd.events import JsonObject
from cordisd_sdk.connect import Notification
from cordisd_sdk.errors import SdkError

if TYPE_CHECKING:
    from cordisd_sdk.session import AsyncSession


class AsyncAttachment:
    """The events of one session, from any of them on, as they come. Made by `AsyncClient.attach`.

        async with await client.attach("s", from_seq=0) as attachment:
            async for event in attachment:
                print(event["seq"], event["type"])

    Each event is given once, whoever iterates; those that nobody has taken yet are kept in memory. The
    iteration ends with `detach`, or when the session is closed, whoever closes it. A client whose connection
    was lost goes on with `attach(id, from_seq=event["seq"] + 1)`: nothing is missing, nothing comes twice.
    """

    def __init__(self, session: AsyncSession, from_seq: int | None) -> None:
        self.session = session
        """The session; prompts are for whoever owns it."""
        self.last_seq = -1
        """Seq of its last event when it was attached; those up to it come from the log."""
        self.next_seq = from_seq
        """Seq of the event that comes next; None: whichever."""
        self._events: deque[JsonObject] = deque()
        self._news = asyncio.Event()
        self._is_over = False
        self._error: Callable[[], SdkError] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.detach()

    async def more(self) -> list[JsonObject]:
        """The events that have come since the last call, at least one; empty when it is over.

        Raises:
            ConnectionClosedError, ProtocolError: the connection is lost; after the last event.
        """
        await self._arrival()
        batch = list(self._events)
        self._events.clear()
        return batch

    async def __aiter__(self) -> AsyncIterator[JsonObject]:
        while True:
            await self._arrival()
            if not self._events:
                return
            while self._events:
                yield self._events.popleft()

    async def detach(self) -> None:
        """Hear no more of the session. Harmless when the connection is lost."""
        await self.session.detach(self)

    def hear(self, notification: Notification) -> None:
        """Take a notification of the session."""
        if notification.params.get("sessionId") != self.session.id:
            return
        if notification.method == wire.SESSION_STATUS and notification.params["status"] == "closed":
            self.end()
        if notification.method != wire.SESSION_EVENT:
            return
        event = notification.params["event"]
        if notification.params.get("stored", True):
            if self.next_seq not in (None, event["seq"]):
                return  # sent again for another listener of this session
            self.next_seq = event["seq"] + 1
        self._events.append(event)
        self._news.set()

    def end(self) -> None:
        """Give what has come, and then no more."""
        self._is_over = True
        self._news.set()

    def lose(self, make_error: Callable[[], SdkError]) -> None:
        """Give what has come, and then raise."""
        if not self._is_over:
            self._error = make_error
            self.end()

    async def _arrival(self) -> None:
        while not self._events and not self._is_over:
            self._news.clear()
            await self._news.wait()
        if not self._events and self._error is not None:
            raise self._error()

"""A session's event log: gives each event its place and time, and makes it durable before anyone sees it.

Everything appended in one turn of the event loop is written with one `write` and then handed to the
subscribers in order. The log keeps no event: the disk does.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from cordisd.errors import LogWriteError
from cordisd.events import Event, JsonObject, SurfaceOp

logger = logging.getLogger(__name__)


class Notice(NamedTuple):
    """A notification that is no event, with its place among the events: a status, an outcome."""

    method: str
    params: JsonObject


class Subscriber(Protocol):
    """Whoever listens to a log. Called on the event loop; must not block."""

    def take(self, batch: Sequence[Event | Notice]) -> None:
        """What was logged in one loop turn, in order; the events of it are on disk."""

    def drop(self) -> None:
        """It has failed in `take`, so it gets nothing more."""

    def end(self) -> None:
        """The log closes: its file can be read no longer, and nothing more will come."""


class EventSink(Protocol):
    """Where events become durable; `session/store.py` has the real one."""

    @property
    def path(self) -> Path: ...

    @property
    def fsync(self) -> Literal["step", "turn", "never"]: ...

    @property
    def size_bytes(self) -> int:
        """Of what has been appended: where the next line begins."""
        ...

    def append(self, events: Sequence[Event]) -> None: ...

    async def sync(self) -> None: ...

    def read(self, n_bytes: int, offset: int) -> bytes: ...

    def reopen(self) -> int | None: ...

    def close(self) -> None: ...


class SessionLog:
    """Appends events for one session. Not thread-safe: it belongs to the event loop.

    `sink` None: nothing is kept on disk (a composition without persistence). `on_failure` is called once when
    a write fails; from then on events still reach the subscribers, so that a client sees the end, but are
    kept nowhere.
    """

    def __init__(
        self,
        sink: EventSink | None,
        *,
        next_seq: int = 0,
        on_failure: Callable[[LogWriteError], None],
    ) -> None:
        self.next_seq = next_seq
        self.stored_end = next_seq if sink is not None else 0
        """The sink holds every event before this one."""
        self.failure: LogWriteError | None = None
        self._sink = sink
        self._on_failure = on_failure
        self._pending: list[Event | Notice] = []
        self._subscribers: list[Subscriber] = []

    @property
    def path(self) -> Path | None:
        """The file behind this log, or None when nothing is kept; it exists from the first event on."""
        return self._sink.path if self._sink is not None else None

    @property
    def sink(self) -> EventSink | None:
        """Where the events are kept, for who reads them back."""
        return self._sink

    @property
    def has_begun(self) -> bool:
        """Whether there is an event that will still be there when this object is not."""
        return self.last_seq >= 0

    @property
    def last_seq(self) -> int:
        """Seq of the last event that is kept, or about to be; -1 when there is none."""
        return (self.next_seq if self.failure is None else self.stored_end) - 1

    def append(
        self,
        type: str,
        data: JsonObject,
        *,
        sources: Sequence[int] | None = None,
        surface_op: SurfaceOp | None = None,
        ignorable: bool = False,
    ) -> Event:
        """The new event, numbered and timed; written and delivered at the end of this loop turn."""
        event = Event(
            type,
            self.next_seq,
            time.time_ns() // 1_000_000,
            data,
            sources=sources,
            surface_op=surface_op,
            ignorable=ignorable,
        )
        self.next_seq += 1
        self._push(event)
        return event

    def announce(self, method: str, params: JsonObject) -> None:
        """Deliver a notification in order with the events around it; it is not part of the log."""
        self._push(Notice(method, params))

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Hand every later batch to `subscriber`; the returned function stops that."""
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber) if subscriber in self._subscribers else None

    def commit(self) -> None:
        """Have everything logged so far on disk, so that it may have consequences.

        Raises:
            LogWriteError: the log cannot be written.
        """
        self.flush()
        if self.failure is not None:
            raise self.failure

    def flush(self) -> None:
        """Write and deliver what is pending now, instead of at the end of the loop turn."""
        if not self._pending:
            return
        batch, self._pending = self._pending, []
        if self._sink is not None and self.failure is None:
            events = [item for item in batch if isinstance(item, Event)]
            try:
                if events:
                    self._sink.append(events)
                    self.stored_end += len(events)
            except LogWriteError as failure:
                # No event of this batch is on disk, so no client may see it; what follows takes its place.
                self.next_seq = events[0].seq
                self._deliver([item for item in batch if isinstance(item, Notice)])
                self._fail(failure)
                return
        self._deliver(batch)

    async def end_step(self) -> None:
        """Wait for the disk where the store's policy is to do so after every step."""
        if self._sink is not None and self._sink.fsync == "step":
            await self.sync()

    async def sync(self) -> None:
        """Flush, and return once the disk has what was written (at once where the policy is `never`)."""
        self.flush()
        if self._sink is not None and self.failure is None:
            try:
                await self._sink.sync()
            except LogWriteError as failure:
                self._fail(failure)

    def close(self) -> None:
        """Flush and let go of the file and the subscribers."""
        self.flush()
        for subscriber in list(self._subscribers):
            subscriber.end()
        self._subscribers.clear()
        self._on_failure = lambda _: None  # it knows the session, whose history would outlive it in the cycle
        if self._sink is not None:
            self._sink.close()

    def _deliver(self, batch: Sequence[Event | Notice]) -> None:
        for subscriber in list(self._subscribers):
            try:
                subscriber.take(batch)
            except Exception:  # whoever listens must not stop the session, nor the others
                logger.exception("a subscriber of the session log failed; it gets nothing more")
                self._subscribers.remove(subscriber)
                subscriber.drop()

    def _fail(self, failure: LogWriteError) -> None:
        self.failure = failure
        self._on_failure(failure)

    def _push(self, item: Event | Notice) -> None:
        if not self._pending:
            asyncio.get_running_loop().call_soon(self.flush)
        self._pending.append(item)

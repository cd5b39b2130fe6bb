"""Sends one session's events to one connection: from memory while it keeps up, from the log when it does not.

A session never waits for a reader, and a reader that is behind costs no memory: its feed forgets the events,
notes the place, and reads them back from disk when the connection has room again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from cordisd.events import Event, decode_json, encode_json
from cordisd.rpc.frames import notification_frame
from cordisd.rpc.transports import FdTransport
from cordisd.session.log import Notice, SessionLog
from cordisd.session.reading import events_of


class Feed:
    """Delivers the session `session_id` to `transport`, in order, without gaps.

    `is_behind` True: something has to be sent before, so wait for `catch_up`.
    """

    def __init__(
        self, session_id: str, log: SessionLog, transport: FdTransport, *, is_behind: bool = False
    ) -> None:
        self.session_id = session_id
        self.is_behind = False
        self._session_json = encode_json(session_id)
        self._log = log
        self._transport = transport
        self._next_seq = log.next_seq  # of the next event to send
        self._seen_seq = log.next_seq  # of the next event that the log will hand over
        # What the log on disk does not hold, each with the seq of the event that it precedes.
        self._held: deque[tuple[int, Event | Notice]] = deque()
        self._stored: BinaryIO | None = None
        self._unsubscribe = log.subscribe(self._deliver)
        if is_behind and log.path is not None:
            self._fall_behind()

    def end(self) -> None:
        """Take nothing more from the session; what is held back is still sent by `catch_up`."""
        self._unsubscribe()
        if not self.is_behind:
            self.close()

    def close(self) -> None:
        """Send nothing more."""
        self._unsubscribe()
        if self._stored is not None:
            self._stored.close()
            self._stored = None

    def catch_up(self) -> None:
        """Send what was held back, as far as the connection has room for it."""
        if not self.is_behind or self._transport.is_behind:
            return
        for item in self._held_back():
            self._send(item)
            if self._transport.is_behind:
                return
        self.is_behind = False

    def _deliver(self, batch: Sequence[Event | Notice]) -> None:
        if self._transport.is_behind and self._log.path is not None and not self.is_behind:
            self._fall_behind()
        for item in batch:
            if isinstance(item, Event):
                self._seen_seq = item.seq + 1
            if not self.is_behind:
                self._send(item)
            elif isinstance(item, Notice) or self._log.failure is not None:
                self._held.append((self._seen_seq, item))

    def _fall_behind(self) -> None:
        self.is_behind = True
        if self._stored is None and self._log.path is not None and self._log.path.exists():
            self._stored = self._log.path.open("rb")  # now: what is unlinked later can still be read
            self._stored.readline()  # the header

    def _send(self, item: Event | Notice) -> None:
        if isinstance(item, Event):
            self._next_seq = item.seq + 1
        self._transport.write(notification_frame(item, self._session_json))

    def _held_back(self) -> Iterator[Event | Notice]:
        for event in self._read():
            while self._held and self._held[0][0] <= event.seq:
                yield self._held.popleft()[1]
            yield event
        while self._held:
            yield self._held.popleft()[1]

    def _read(self) -> Iterator[Event]:
        """Stored events from the next one to send on; goes on from where it stopped last time."""
        if self._stored is None:
            self._fall_behind()
        if self._stored is None:  # nothing has been logged yet
            return
        position = self._stored.tell()
        while (line := self._stored.readline()).endswith(b"\n"):
            try:
                for event in events_of(decode_json(line)):
                    if event.seq >= self._seen_seq:  # a later life of the session: another feed's
                        self._stored.seek(position)
                        return
                    if event.seq >= self._next_seq:
                        yield event
            except GeneratorExit:
                self._stored.seek(position)  # the rest of a packed row is still to be sent
                raise
            position = self._stored.tell()
        self._stored.seek(position)

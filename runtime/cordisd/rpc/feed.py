"""Sends one session's events to one connection: from memory while it keeps up, from the log when it does not.

A session never waits for a reader, and a reader that is behind costs no memory: its feed forgets the events,
notes the place, and reads them back from disk, a slice at a time, when the connection has room again.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from cordisd.errors import LogError
from cordisd.events import Event, decode_json, encode_json
from cordisd.rpc.frames import event_frame, notification_frame
from cordisd.rpc.transports import FdTransport
from cordisd.session.log import Notice, SessionLog
from cordisd.session.reading import events_of
from cordisd.session.skim import before, event_on

logger = logging.getLogger(__name__)

SLICE_BYTES: Final = 1 << 17
SLICE_EVENTS: Final = 500
"""Read back in one turn of the event loop, so that a reader that catches up is no burden to others: as many
bytes, or, where rows hold many events, no further line after so many of these."""
MAX_HELD: Final = 10_000
"""Most notices, some three of each turn, that are kept in memory for a reader that is behind."""


class Feed:
    """Delivers the session `session_id` to `transport`, in order, without gaps, repetitions or changes.

    `from_seq` is the first event to send, by default the next one. `waits`: something else has to be sent
    before, so nothing is until `catch_up` is called. A feed that fails ends its connection, which would miss
    something. `next_seq` is that of the next event to send.
    """

    def __init__(
        self,
        session_id: str,
        log: SessionLog,
        transport: FdTransport,
        *,
        from_seq: int | None = None,
        waits: bool = False,
    ) -> None:
        log.flush()  # what is pending has its place before us
        self.session_id = session_id
        self.next_seq = log.next_seq if from_seq is None else from_seq
        self._session_json = encode_json(session_id)
        self._log = log
        self._transport = transport
        self._stored_end = log.stored_end  # the disk holds every event before this one
        self._offset = 0 if self.next_seq < self._stored_end else self._file_end
        """In the file: of the first line that is not sent completely, or of one before."""
        self._held: deque[tuple[int, Event | Notice]] = deque()
        """What the disk does not hold, each with the seq of the event that it precedes."""
        self._kept_fd: int | None = None
        """The file, once the log has let go of it."""
        self.is_behind = waits or self.next_seq < self._stored_end
        self._unsubscribe = log.subscribe(self)

    def take(self, batch: Sequence[Event | Notice]) -> None:
        """Send what the session has just logged, or note that it is still to be sent."""
        if self._log.sink is None and self._transport.is_full:
            self._fail("its client does not read, and no event is stored that could be sent later")
            return
        self.is_behind |= self._transport.is_behind and self._log.sink is not None
        stores = self._log.sink is not None and self._log.failure is None
        for item in batch:
            is_stored = stores and isinstance(item, Event)
            self._stored_end += is_stored
            if not self.is_behind:
                self._send(item, is_lost=not is_stored and self._log.sink is not None)
            elif not is_stored:
                self._held.append((self._stored_end, item))
        if not self.is_behind:
            self._offset = self._file_end
        if len(self._held) > MAX_HELD:
            self._fail(f"its client has left {MAX_HELD} notices unread")

    def drop(self) -> None:
        """End the connection."""
        self._transport.give_up()

    def end(self) -> None:
        """Take nothing more from the session; what is held back is still sent by `catch_up`."""
        self._unsubscribe()
        if not self.is_behind or self._kept_fd is not None or self._log.sink is None:
            return
        try:
            self._kept_fd = self._log.sink.reopen()
        except OSError as error:
            self._fail(f"its client is behind, and the log cannot be kept open: {error.strerror}")

    def _fail(self, reason: str) -> None:
        logger.error("session %s: a connection is ended: %s", self.session_id, reason)
        self.drop()

    def close(self) -> None:
        """Send nothing more."""
        self._unsubscribe()
        if self._kept_fd is not None:
            os.close(self._kept_fd)
            self._kept_fd = None

    def catch_up(self) -> None:
        """Send a slice of what was held back, as far as the connection has room for it.

        Raises:
            LogError, ValueError, OSError: what was stored cannot be read back.
        """
        if not self.is_behind or self._transport.is_behind:
            return
        if self.next_seq < self._stored_end:
            for seq, event_json in self._stored_slice():
                while self._held and self._held[0][0] <= seq:
                    self._send(self._held.popleft()[1], is_lost=True)
                self.next_seq = seq + 1
                self._transport.write(event_frame(event_json, self._session_json))
                if self._transport.is_behind:
                    return
            if self.next_seq < self._stored_end:
                return
        while self._held:
            self._send(self._held.popleft()[1], is_lost=True)
        self.is_behind = False

    @property
    def _file_end(self) -> int:
        return 0 if self._log.sink is None else self._log.sink.size_bytes

    def _send(self, item: Event | Notice, *, is_lost: bool) -> None:
        if isinstance(item, Event):
            self.next_seq = item.seq + 1
        self._transport.write(notification_frame(item, self._session_json, is_lost=is_lost))

    def _stored_slice(self) -> Iterator[tuple[int, bytes]]:
        """Seq and JSON of each event of the next slice of the file; `_offset` moves on line by line."""
        n_events = 0
        is_sent = before(self.next_seq)
        for line in self._next_lines():
            if self.next_seq >= self._stored_end:  # what follows is of a later life of the session
                return
            if self._offset > 0 and is_sent(line) is None:  # nor is it the header
                for seq, event_json in _events_on(line):
                    n_events += 1
                    if seq > self.next_seq:
                        raise self._gap(seq)
                    if seq == self.next_seq:
                        yield seq, event_json
            self._offset += len(line) + 1
            if n_events >= SLICE_EVENTS:
                return

    def _next_lines(self) -> list[bytes]:
        """The whole lines of the next slice, at least one; without their newlines."""
        n_bytes = SLICE_BYTES
        while True:
            data = self._read(n_bytes)
            end = data.rfind(b"\n")
            if end >= 0:
                return data[:end].split(b"\n")
            if len(data) < n_bytes:
                raise self._gap(self._stored_end)
            n_bytes *= 2

    def _gap(self, found: int) -> LogError:
        return LogError(f"events {self.next_seq} to {found - 1} are gone: {self._log.path}")

    def _read(self, n_bytes: int) -> bytes:
        if self._kept_fd is not None:
            return os.pread(self._kept_fd, n_bytes, self._offset)
        assert self._log.sink is not None
        return self._log.sink.read(n_bytes, self._offset)


def _events_on(line: bytes) -> Iterator[tuple[int, bytes]]:
    """Seq and JSON of each event on a line of a log, which only packed rows are decoded for."""
    seq = event_on(line)
    if seq is not None:
        yield seq, line
        return
    for event in events_of(decode_json(line)):
        yield event.seq, event.json

"""Gives a log out a page at a time, to whoever reads it from the start or asks again for what is new.

Where a page ended is remembered, so the next one is read from there; any other place is found by the `seq` at
the beginning of each line, without decoding what is skipped.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from cordisd.errors import LogCorruptError, LogError
from cordisd.session import skim
from cordisd.session.disk import cause_of, open_file
from cordisd.session.reading import LogReading
from cordisd.wire import MAX_FRAME_BYTES

MAX_PAGE_BYTES: Final = 4 * 2**20
MAX_PLACES: Final = 1024
_ROOM_BYTES: Final = 4096
"""What a frame has besides its events."""


class Page(NamedTuple):
    """The JSON of each event, as on the wire; `next_seq` is the one to ask for next."""

    events: list[bytes]
    next_seq: int


class _Place(NamedTuple):
    """The beginning of a line, and the first event on it."""

    byte: int
    seq: int


_Key = tuple[int, int, int]
"""Device and inode of a log, and the seq that is asked for."""


class LogPages:
    """Reads pages of any logs. May be used from several threads at once."""

    def __init__(self) -> None:
        self._places: dict[_Key, _Place] = {}
        self._lock = threading.Lock()

    def read(self, path: Path, start: int, *, limit: int, end: int | None = None) -> Page:
        """The events from seq `start` on, before `end`; at most `limit`, and `MAX_PAGE_BYTES` of JSON.

        An event that is larger than that is a page by itself. No events: there are none yet.

        Raises:
            LogError: the log cannot be read, or an event is too large for a frame.
            LogCorruptError: no header; or damage before a committed turn end, where the sound part ends.
            LogRefusedError: a newer format, or an event of an unknown type.
        """
        try:
            with os.fdopen(open_file(path), "rb") as stream:
                reading = LogReading(stream, path, skip=skim.before(start))
                status = os.fstat(stream.fileno())
                key = status.st_dev, status.st_ino, start
                self._approach(reading, stream, key)
                page, place = _collect(reading, start, limit, end)
        except OSError as problem:
            raise LogError(f"cannot read the session log {path}: {cause_of(problem)}") from problem
        damage = reading.damage
        if damage is not None and damage.is_committed and not page.events:
            raise LogCorruptError(
                f"corrupt session log: damage behind event {reading.n_events - 1}, at byte "
                f"{reading.good_bytes}, in its committed region: {path}"
            )
        self._remember((*key[:2], page.next_seq), place)
        return page

    def _approach(self, reading: LogReading, stream: BinaryIO, key: _Key) -> None:
        """Stand before the line that holds the event, if that is known."""
        with self._lock:
            place = self._places.get(key)
        # The log may be another one than when its place was noted, or have been cut by a repair.
        if place is not None and _is_line_start(stream, place.byte):
            reading.good_bytes, reading.n_events = place
        stream.seek(reading.good_bytes)

    def _remember(self, key: _Key, place: _Place) -> None:
        with self._lock:
            self._places.pop(key, None)
            self._places[key] = place
            if len(self._places) > MAX_PLACES:
                del self._places[next(iter(self._places))]


def _collect(reading: LogReading, start: int, limit: int, end: int | None) -> tuple[Page, _Place]:
    """A page, and the line on which the next one begins."""
    events: list[bytes] = []
    n_bytes, next_seq = 0, start
    place = _Place(reading.good_bytes, reading.n_events)
    for _, line in reading.lines():
        for event in line:
            if event.seq < start:
                continue
            if len(events) == limit or (end is not None and event.seq >= end):
                return Page(events, next_seq), place
            n_bytes += len(event.json)  # encoded here, off the event loop
            if events and n_bytes > MAX_PAGE_BYTES:
                return Page(events, next_seq), place
            if n_bytes > MAX_FRAME_BYTES - _ROOM_BYTES:
                raise LogError(
                    f"event {event.seq} has {n_bytes} bytes, more than fit into a frame; "
                    f"the next one is {event.seq + 1}"
                )
            events.append(event.json)
            next_seq = event.seq + 1
        place = _Place(reading.good_bytes, reading.n_events)
        if len(events) == limit:
            break
    return Page(events, next_seq), _Place(reading.good_bytes, reading.n_events)


def _is_line_start(stream: BinaryIO, byte: int) -> bool:
    stream.seek(byte - 1)
    return stream.read(1) == b"\n"

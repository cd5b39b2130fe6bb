"""The part of a log that a fork begins with, and how it comes into the fork's own log.

It is copied, so that the fork's log is a whole one for every reader. Of the 0.2 s that it takes to fork a
session of 1,000 steps (88,000 events, 5.6 MB) the copy is 18 ms; most of the rest goes into reading what the
fork has to know. A hard link (0.05 ms) would share the first line and what comes later; ext4 has no reflinks.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from cordisd.errors import CordisError, InvalidParamsError, LogCorruptError, LogError, SessionNotBegunError
from cordisd.events import Event, JsonObject
from cordisd.session import skim
from cordisd.session.disk import cause_of, open_file
from cordisd.session.header import SessionHeader
from cordisd.session.reading import LogReading
from cordisd.session.restore import apply_splice

_BLOCK_BYTES: Final = 2**20


class Seed(NamedTuple):
    """The first `n_events` events of a log, and the bytes of the file that hold them."""

    header: SessionHeader
    n_events: int
    events: list[Event]
    """All but the deltas of packed rows, which nobody needs who goes on from here."""
    marks: list[Event]
    """What stands behind them in a fork: that they end, and that prompts waiting in them are not its own."""
    path: Path
    inode: int
    start_byte: int
    end_byte: int

    def lines(self) -> Iterator[bytes]:
        """The lines of the events, byte for byte, in pieces of any size.

        Raises:
            LogError: the log is not what it was, or cannot be read.
        """
        try:
            with os.fdopen(open_file(self.path), "rb", buffering=0) as file:
                if os.fstat(file.fileno()).st_ino != self.inode:
                    raise LogError(f"the log was replaced while it was copied: {self.path}")
                file.seek(self.start_byte)
                left = self.end_byte - self.start_byte
                while left:
                    block = file.read(min(left, _BLOCK_BYTES))
                    if not block:
                        raise LogError(f"the log became shorter while it was copied: {self.path}")
                    left -= len(block)
                    yield block
        except OSError as problem:
            raise LogError(f"cannot read the session log {self.path}: {cause_of(problem)}") from problem


class _Cut(NamedTuple):
    """A place at which a log can be cut: what is before it."""

    n_kept: int
    n_events: int
    byte: int


def read_seed(path: Path, *, at_turn: int | None, end: int | None = None, settled: bool = True) -> Seed:
    """What a fork takes from the log at `path`: all of it or, if a turn is open, up to the last end of one.

    `at_turn`: up to the end of that turn. `end`: nothing from this seq on. `settled` False: somebody else may
    be writing the log, so nothing counts that comes after the last end of a turn.

    Raises:
        InvalidParamsError: `at_turn` is no turn that has ended.
        SessionNotBegunError: there is no event, or no turn has ended where one has to.
        LogCorruptError, LogRefusedError: as `read_log`.
        LogError: the log cannot be read.
    """
    try:
        with os.fdopen(open_file(path), "rb") as stream:
            inode = os.fstat(stream.fileno()).st_ino
            reading = LogReading(stream, path, skip=skim.rows)
            header, start_byte = reading.header, reading.good_bytes
            events, cut = _read(reading, at_turn, end, settled)
        damage = reading.damage
        if damage is not None and damage.is_committed:
            raise LogCorruptError(f"corrupt session log: {damage.what}, in its committed region: {path}")
        if cut is None:
            raise _refusal(header.id, events, at_turn)
        del events[cut.n_kept :]
        return Seed(
            header, cut.n_events, events, _marks(events, cut.n_events), path, inode, start_byte, cut.byte
        )
    except OSError as problem:
        raise LogError(f"cannot read the session log {path}: {cause_of(problem)}") from problem
    except (AttributeError, KeyError, TypeError) as problem:
        raise LogCorruptError(f"corrupt session log: the data of an event is malformed: {path}") from problem


def _read(
    reading: LogReading, at_turn: int | None, end: int | None, settled: bool
) -> tuple[list[Event], _Cut | None]:
    """The events read, and where the seed ends; None: nowhere."""
    events: list[Event] = []
    last_end: _Cut | None = None
    here: _Cut | None = None
    in_turn = False
    for event in reading.events():
        if end is not None and event.seq >= end:
            break
        events.append(event)
        here = _Cut(len(events), reading.n_events, reading.good_bytes)
        if event.type == "turn/start":
            in_turn = True
        elif event.type == "turn/end":
            in_turn, last_end = False, here
            if event.data["turn"] == at_turn:
                return events, here
    if at_turn is not None:
        return events, None
    return events, last_end if in_turn or not settled else here


def _refusal(session_id: str, events: Sequence[Event], at_turn: int | None) -> CordisError:
    ended = [event.data["turn"] for event in events if event.type == "turn/end"]
    if at_turn is not None:
        allowed = f"{min(ended)} to {max(ended)} have" if ended else "none has yet"
        return InvalidParamsError(
            f"session/fork: atTurn must be a turn that has ended ({allowed}), not {at_turn}"
        )
    return SessionNotBegunError(f'session "{session_id}" cannot be forked: no turn of it has ended yet')


def _marks(events: Sequence[Event], seq: int) -> list[Event]:
    waiting: dict[str, list[JsonObject]] = {"next-turn": [], "next-step": []}
    for event in events:
        if event.type == "agent/inbox/spliced":
            apply_splice(waiting[event.data["target"]], event.data)
    now = time.time_ns() // 1_000_000
    marks = [Event("session/end-seed", seq, now, {})]
    if prompts := waiting["next-turn"]:
        data = {"target": "next-turn", "start": 0, "removedCount": len(prompts), "inserted": []}
        marks.append(Event("agent/inbox/spliced", seq + 1, now, {**data, "outcome": "canceled"}))
    return marks

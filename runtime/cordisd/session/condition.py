"""The condition of a stored log: what a resume would find, do or refuse; and the repair that it would do."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from cordisd.errors import LogCorruptError, LogError, LogWriteError
from cordisd.events import Event
from cordisd.session.disk import DiskCalls, cause_of, lock_patiently, open_file
from cordisd.session.header import SessionHeader
from cordisd.session.layout import check_place, is_locked
from cordisd.session.reading import Damage, LogReading
from cordisd.session.repair import Ending, cut_tail, ending_of, remove_temporary
from cordisd.session.survey import Found

Status = Literal["ok", "open", "torn", "interrupted", "damaged", "refused"]
"""`open`: some process has it, so its end may not be the end. `torn`: its tail is to be cut. `interrupted`: a
turn is open. `damaged`: inside what was committed. `refused`: not a log of this format, or not to be read."""


@dataclass(slots=True)
class Condition:
    """What is known of one log. Its first `good_bytes` bytes, `n_events` events, are sound."""

    path: Path
    status: Status = "ok"
    problem: str | None = None
    """Why its sound part ends before the file does, or nothing can be done with it."""
    header: SessionHeader | None = None
    n_events: int = 0
    n_turns: int = 0
    n_waiting: int = 0
    """Messages that wait for a turn or a step."""
    good_bytes: int = 0
    cut_bytes: int = 0
    """Of the tail that a repair sets aside."""
    closers: list[Event] = field(default_factory=list)
    """What a repair adds."""
    kept: Path | None = None
    """The file that holds what a repair has cut."""

    @property
    def is_repairable(self) -> bool:
        """Whether a repair would change it."""
        return self.status in ("torn", "interrupted")


def examine(found: Found) -> Condition:
    """The condition of a log. Changes nothing, and keeps no writer away for more than an instant."""
    was_open = is_locked(found.path)
    condition = _read(found)
    return _opened(condition) if was_open or is_locked(found.path) else condition


def mend(found: Found, disk: DiskCalls | None = None) -> Condition:
    """Cut the tail of a log and close what is open, as a resume does; returns how it was before.

    One that is open, damaged or refused is left as it is.

    Raises:
        LogWriteError: the repair could not be written.
    """
    if found.problem is not None:
        return _read(found)
    try:
        fd = open_file(found.path, os.O_RDWR | os.O_APPEND)
    except OSError as problem:
        return Condition(found.path, "refused", f"cannot be opened for writing: {cause_of(problem)}")
    try:
        if not lock_patiently(fd, found.path):
            return _opened(_read(found))
        condition = _read(found)
        if condition.is_repairable:
            _mend(fd, condition, disk or DiskCalls())
        return condition
    except OSError as problem:
        raise LogWriteError(f"cannot repair {found.path}: {cause_of(problem)}") from problem
    finally:
        os.close(fd)


def _mend(fd: int, condition: Condition, disk: DiskCalls) -> None:
    remove_temporary(condition.path)
    condition.kept = cut_tail(fd, condition.path, condition.good_bytes, disk)
    lines = b"".join(event.json + b"\n" for event in condition.closers)
    try:
        disk.write_all(fd, lines)
        disk.fsync(fd)
    except OSError:
        disk.truncate(fd, condition.good_bytes)
        raise


def _opened(condition: Condition) -> Condition:
    """The same of a log that a process writes: what looks torn may be a write under way."""
    if condition.is_repairable or condition.status == "ok":
        condition.status, condition.problem = "open", None
        condition.cut_bytes, condition.closers = 0, []
    return condition


def _read(found: Found) -> Condition:
    """The condition of a log that nobody writes."""
    condition = Condition(found.path)
    try:
        if found.problem is not None:
            raise found.problem
        with open(found.path, "rb", opener=open_file) as stream:
            reading = LogReading(stream, found.path)
            condition.header = reading.header
            if found.is_placed:
                check_place(reading.header, found.path)
            try:
                ending = ending_of(reading.events(), found.path)
            finally:
                condition.n_events, condition.good_bytes = reading.n_events, reading.good_bytes
            _conclude(condition, ending, reading.damage, os.fstat(stream.fileno()).st_size)
    except LogCorruptError as damage:
        condition.status, condition.problem = "damaged", str(damage)
    except LogError as refusal:
        condition.status, condition.problem = "refused", str(refusal)
    except OSError as problem:
        condition.status, condition.problem = "refused", f"cannot be read: {cause_of(problem)}"
    return condition


def _conclude(condition: Condition, ending: Ending, damage: Damage | None, size_bytes: int) -> None:
    memory = ending.memory
    condition.n_turns = memory.turn
    condition.n_waiting = sum(len(messages) for messages in memory.inbox.values())
    condition.problem = None if damage is None else damage.what
    if damage is not None and damage.is_committed:
        condition.status, condition.problem = "damaged", f"{damage.what}, before the end of a turn"
        return
    condition.closers = ending.closers
    if damage is not None:
        condition.status, condition.cut_bytes = "torn", size_bytes - condition.good_bytes
    elif ending.closers:
        condition.status = "interrupted"

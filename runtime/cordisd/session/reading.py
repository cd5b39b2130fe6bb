"""Reads a session log: its events up to the first damage, and what the damage is (`protocol.md` 4.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from json import JSONDecodeError
from pathlib import Path
from typing import BinaryIO, NamedTuple

from cordisd.errors import LogCorruptError, LogRefusedError, nearest
from cordisd.events import KNOWN_TYPES, Event, JsonObject, decode_json
from cordisd.session.header import FORMAT_VERSION, SessionHeader
from cordisd.session.rows import ROW_TYPES, expand


class UnknownEventError(ValueError):
    """An event of a type that this version does not know, and must not skip."""


class Damage(NamedTuple):
    """Why the sound part of a log ends before its file does."""

    what: str
    """With the number of the line."""
    is_committed: bool
    """Whether a turn was ended after it: then nothing may be cut."""


class LogContent(NamedTuple):
    """What a log holds. The first `good_bytes` of the file are sound; `damage` says why it ends there."""

    header: SessionHeader
    events: list[Event]
    good_bytes: int
    damage: str | None


class Span(NamedTuple):
    """Which events a line holds: from `seq` on, and before `next_seq`."""

    seq: int
    next_seq: int


Skip = Callable[[bytes], Span | None]


class LogReading:
    """A log that is read line by line, up to its first damage. Changes nothing, and keeps no event.

    The counts and `damage` are those of what has been read. With `skip_repeats`, lines that repeat an earlier
    one to the byte are no damage, and left out. `skip` is asked about each line: one whose `Span` it gives is
    left out too, without being decoded.

    Raises:
        LogCorruptError: there is no header.
        LogRefusedError: it is of another format.
    """

    def __init__(
        self, stream: BinaryIO, path: Path, *, skip_repeats: bool = False, skip: Skip = lambda line: None
    ) -> None:
        self.header_line = stream.readline()
        self.header = read_header(self.header_line, path)
        self.good_bytes = len(self.header_line)
        self.n_events = 0
        self.n_repeats = 0
        self.damage: Damage | None = None
        self._stream = stream
        self._path = path
        self._skips_repeats = skip_repeats
        self._skip = skip

    def events(self) -> Iterator[Event]:
        """Every sound event.

        Raises:
            LogRefusedError: one is of an unknown type.
        """
        for _, events in self.lines():
            yield from events

    def lines(self) -> Iterator[tuple[bytes, list[Event]]]:
        """Every sound line with the events that it stands for.

        Raises:
            LogRefusedError: one is of an unknown type.
        """
        seen: set[int] = set()
        for number, line in enumerate(self._stream, 2):
            if not line.endswith(b"\n"):
                self.damage = Damage(_torn(number, line), is_committed=False)
                return
            span = self._skip(line)
            if span is not None and span.seq == self.n_events:
                self._count(line, span.next_seq)
                seen.add(hash(line))
                continue
            try:
                events = events_of(decode_json(line))
            except UnknownEventError as unknown:
                raise LogRefusedError(
                    f"{unknown}: the log is of a newer harness: {self._path}:{number}"
                ) from unknown
            except (ValueError, RecursionError) as problem:
                what = f"unparsable event at line {number} ({_why(problem)})"
            else:
                first, expected = events[0].seq, self.n_events
                if first == expected:
                    self._count(line, first + len(events))
                    seen.add(hash(line))
                    yield line, events
                    continue
                if first > expected:
                    what = f"seq gap at line {number}: expected {expected}, found {first}"
                elif hash(line) not in seen:
                    what = f"second event {first} at line {number}, of another writer: expected {expected}"
                elif self._skips_repeats:
                    self.n_repeats += 1
                    continue
                else:
                    what = f"repeated event {first} at line {number}: expected {expected}"
            self.damage = Damage(what, _ends_a_turn(self._stream))
            return

    def _count(self, line: bytes, n_events: int) -> None:
        self.n_events = n_events
        self.good_bytes += len(line)


def read_log(stream: BinaryIO, path: Path) -> LogContent:
    """The header and every sound event of the log that `stream` stands at the start of. Changes nothing.

    Raises:
        LogCorruptError: no header, or damage before a committed turn end.
        LogRefusedError: a newer format, or an event of an unknown type.
    """
    reading = LogReading(stream, path)
    events = list(reading.events())
    damage = reading.damage
    if damage is not None and damage.is_committed:
        raise LogCorruptError(f"corrupt session log: {damage.what}, in its committed region: {path}")
    return LogContent(reading.header, events, reading.good_bytes, None if damage is None else damage.what)


def read_header(line: bytes, path: Path) -> SessionHeader:
    """The header on the first line of the log at `path`.

    Raises:
        LogCorruptError: the line is no header, or is not ended by a newline.
        LogRefusedError: it is one of another format.
    """
    if not line.endswith(b"\n"):
        what = f"has a header line that is torn: {_torn(1, line)}" if line else "is empty"
        raise LogCorruptError(f"corrupt session log: the file {what}: {path}")
    try:
        raw = decode_json(line)
        if not isinstance(raw, dict):
            raise ValueError("the first line is not an object")
        _check_version(raw, path)
        if b"-0" in line and _has_negative_zero(line):
            raise ValueError("a number of the header is negative zero")
        return SessionHeader.from_dict(raw)
    except (ValueError, RecursionError) as problem:
        raise LogCorruptError(f"corrupt session log: line 1: {problem}: {path}") from problem


def _check_version(raw: JsonObject, path: Path) -> None:
    version = raw.get("version")
    if raw.get("type") != "session" or type(version) is not int or version == FORMAT_VERSION:
        return
    age = "written by a newer harness" if version > FORMAT_VERSION else "older, and there is no upgrade path"
    raise LogRefusedError(
        f"session log format {version} is not supported (this version reads {FORMAT_VERSION}; the log is "
        f"{age}): {path}"
    )


def _has_negative_zero(line: bytes) -> bool:
    """True if a number in the JSON text `line` is -0, which Python's own decoder turns into 0."""
    import json  # only a header that may hold one comes here

    found: list[str] = []
    json.JSONDecoder(parse_int=found.append).decode(line.decode())
    return "-0" in found


def events_of(raw: object) -> list[Event]:
    """The events that one decoded line stands for: one, or those of a packed row.

    Raises:
        UnknownEventError: an event of an unknown type that is not marked ignorable.
        ValueError: the line is malformed.
    """
    if not isinstance(raw, dict) or not isinstance(raw.get("type"), str):
        raise ValueError("an event must be an object with a type")
    kind: str = raw["type"]
    if kind in ROW_TYPES:
        return expand(raw)
    if kind == "session":
        raise ValueError("a second header: two logs were put together")
    if kind not in KNOWN_TYPES and raw.get("ignorable") is not True:
        raise UnknownEventError(
            f'unknown event type "{kind}"{nearest(kind, KNOWN_TYPES)}, not marked ignorable'
        )
    return [Event.from_dict(raw)]


def _why(problem: Exception) -> str:
    match problem:
        case JSONDecodeError():
            return f"not JSON at column {problem.colno}: {problem.msg.removesuffix(' at')}"
        case UnicodeDecodeError():
            return f"not UTF-8 at byte {problem.start + 1}"
        case RecursionError():
            return "nested too deeply"
        case _:
            return str(problem)


def _torn(number: int, line: bytes) -> str:
    if not line.strip(b"\0"):
        return f"line {number} is {len(line)} NUL bytes, as a power cut leaves them"
    return f"line {number} is torn"


def _ends_a_turn(stream: BinaryIO) -> bool:
    """True if one of the remaining whole lines is a `turn/end`."""
    for line in stream:
        if not line.endswith(b"\n"):
            return False
        try:
            raw = decode_json(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(raw, dict) and raw.get("type") == "turn/end":
            return True
    return False

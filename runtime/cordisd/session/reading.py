"""Reads a session log: its events up to the first damage, and what the damage is (`protocol.md` 4.5)."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO, NamedTuple

from cordisd.errors import LogCorruptError, LogRefusedError, nearest
from cordisd.events import KNOWN_TYPES, Event, JsonObject, decode_json
from cordisd.session.header import FORMAT_VERSION, SessionHeader
from cordisd.session.rows import ROW_TYPES, expand


class UnknownEventError(ValueError):
    """An event of a type that this version does not know, and must not skip."""


class LogContent(NamedTuple):
    """What a log holds. The first `good_bytes` of the file are sound; `damage` says why it ends there."""

    header: SessionHeader
    events: list[Event]
    good_bytes: int
    damage: str | None


def read_log(stream: BinaryIO, path: Path) -> LogContent:
    """The header and every sound event of the log that `stream` stands at the start of. Changes nothing.

    Raises:
        LogCorruptError: no header, or damage before a committed turn end.
        LogRefusedError: a newer format, or an event of an unknown type.
    """
    first = stream.readline()
    header = read_header(first, path)
    good_bytes = len(first)
    events: list[Event] = []
    line_number = 1
    for line in stream:
        line_number += 1
        if not line.endswith(b"\n"):
            return LogContent(header, events, good_bytes, f"line {line_number} is torn")
        try:
            added = events_of(decode_json(line))
        except UnknownEventError as unknown:
            raise LogRefusedError(
                f"{unknown}: the log is of a newer harness: {path}:{line_number}"
            ) from unknown
        except (ValueError, RecursionError):
            damage = f"unparsable event at line {line_number}"
        else:
            if added[0].seq == len(events):
                events += added
                good_bytes += len(line)
                continue
            damage = f"seq gap at line {line_number}: expected {len(events)}, found {added[0].seq}"
        if _ends_a_turn(stream):
            raise LogCorruptError(f"corrupt session log: {damage}, in its committed region: {path}")
        return LogContent(header, events, good_bytes, damage)
    return LogContent(header, events, good_bytes, None)


def read_header(line: bytes, path: Path) -> SessionHeader:
    """The header on the first line of the log at `path`.

    Raises:
        LogCorruptError: the line is no header, or is not ended by a newline.
        LogRefusedError: it is one of another format.
    """
    if not line.endswith(b"\n"):
        what = "has a torn header line" if line else "is empty"
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
    if kind not in KNOWN_TYPES and raw.get("ignorable") is not True:
        raise UnknownEventError(
            f'unknown event type "{kind}"{nearest(kind, KNOWN_TYPES)}, not marked ignorable'
        )
    return [Event.from_dict(raw)]


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

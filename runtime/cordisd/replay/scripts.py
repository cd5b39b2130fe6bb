"""Model calls to replay, derived from recorded logs: one script per session (`protocol.md` 7.2, 7.3).

A fixture is a log, whole or *projected*: without `seq` and `time` (packed rows without `seq0` and `time0`),
and with `{{cwd}}` in the place of the working directory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from json import JSONDecodeError
from pathlib import Path
from typing import Any, NamedTuple

from cordisd.errors import CompositionError, LogError, Problem
from cordisd.events import Event, Failure, JsonObject, decode_json
from cordisd.replay.tokens import check_tokens
from cordisd.session.header import SessionHeader
from cordisd.session.reading import events_of, read_header
from cordisd.session.rows import ROW_TYPES

Chunk = dict[str, Any]


class Play(NamedTuple):
    """A call that streams `chunks` and then, if there is a `failure`, fails. Strings may hold tokens."""

    chunks: Sequence[Chunk]
    failure: Failure | None = None


class Hang(NamedTuple):
    """A call that touches `ready_file`, if any, and then answers nothing until it is cancelled."""

    ready_file: str | None


class Unfinished(NamedTuple):
    """A recorded call whose chunks end without a `finish`; it cannot be played."""

    where: str


Call = Play | Hang


@dataclass(slots=True)
class Script:
    """The model calls of one recorded session in order, and the providers that it asked."""

    path: Path
    header: SessionHeader
    calls: list[Call | Unfinished] = field(default_factory=list)
    providers: set[str] = field(default_factory=set)


def read_script(path: Path, *, is_child: bool = False) -> Script:
    """The script that the fixture at `path` records. What a child copied from its parent is left out.

    Raises:
        CompositionError: the file cannot be read or is no fixture; with file and line.
    """
    try:
        with open(path, "rb") as stream:
            first = stream.readline()
            try:
                header = read_header(first, path)
            except LogError as problem:
                raise _error(path, 1, str(problem)) from problem
            script = Script(path, header)
            n_seed = (header.seed_length or 0) if is_child else 0
            _derive(script, ((line, event) for line, event in _events(path, stream) if event.seq >= n_seed))
    except OSError as problem:
        raise CompositionError(
            [Problem(str(path), f"cannot read the fixture: {problem.strerror}")]
        ) from problem
    return script


def playable(calls: Sequence[Call | Unfinished]) -> list[Call]:
    """The same calls, once it is known that each can be played.

    Raises:
        CompositionError: some have no `finish`; names each.
    """
    problems = [
        Problem(
            call.where, "this model call has no finish chunk; re-record the scenario, or override the call"
        )
        for call in calls
        if isinstance(call, Unfinished)
    ]
    if problems:
        raise CompositionError(problems)
    return [call for call in calls if not isinstance(call, Unfinished)]


def _events(path: Path, lines: Iterator[bytes]) -> Iterator[tuple[int, Event]]:
    """The events with their line numbers; those of a projected fixture are numbered here."""
    seq = 0
    whole: bool | None = None
    for number, line in enumerate(lines, 2):
        try:
            raw = _decoded(line)
            numbered, is_whole = _numbered(raw, seq)
            if whole is not None and is_whole != whole:
                raise ValueError("a fixture must have seq and time on every line, or on none")
            whole = is_whole
            events = events_of(numbered)
            if events[0].seq != seq:
                raise ValueError(f"seq gap: expected {seq}, found {events[0].seq}")
        except (ValueError, RecursionError) as problem:
            raise _error(path, number, str(problem)) from problem
        for event in events:
            yield number, event
        seq += len(events)


def _decoded(line: bytes) -> object:
    try:
        return decode_json(line.rstrip(b"\n"))
    except JSONDecodeError as problem:
        raise ValueError(f"not JSON: {problem.msg} at column {problem.colno}") from problem


def _numbered(raw: object, seq: int) -> tuple[JsonObject, bool]:
    """The line with `seq` and `time`, and whether it had them."""
    if not isinstance(raw, dict):
        raise ValueError("an event must be an object with a type")
    kind = raw.get("type")
    suffix = "0" if isinstance(kind, str) and kind in ROW_TYPES else ""
    names = ("seq" + suffix, "time" + suffix)
    match [name for name in names if name in raw]:
        case [only]:
            raise ValueError(f"the line has {only} but not both of {' and '.join(names)}")
        case []:
            # Sources may name events that were edited out of a fixture; nothing is replayed from them.
            bare = {key: value for key, value in raw.items() if key != "sourceEventSeqs"}
            return {**bare, names[0]: seq, names[1]: 0}, False
    return raw, True


def _derive(script: Script, events: Iterator[tuple[int, Event]]) -> None:
    """Cut the recorded chunks into calls, at each `finish`."""
    chunks: list[Chunk] = []
    step: tuple[object, object] | None = None
    where = ""
    for line, event in events:
        data = event.data
        if event.type == "assistant/chunk":
            chunk = _chunk(data, script.path, line)
            if chunks and step != (data.get("turn"), data.get("step")):
                script.calls.append(Unfinished(where))
                chunks = []
            if not chunks:
                step, where = (data.get("turn"), data.get("step")), f"{script.path}:{line}"
            chunks.append(chunk)
            if chunk.get("type") == "finish":
                script.calls.append(Play(chunks))
                chunks = []
        elif event.type == "request/header":
            script.providers.update(_providers(data))
        elif event.type == "compaction/summary" and data.get("llmStreamCall") is True:
            summary = data.get("rawOutput")
            if isinstance(summary, str):
                script.calls.append(Play(_text_stream(summary)))
    if chunks:
        script.calls.append(Unfinished(where))


def _chunk(data: JsonObject, path: Path, line: int) -> Chunk:
    chunk = data.get("chunk")
    if not isinstance(chunk, dict):
        raise _error(path, line, "an assistant/chunk event must have a chunk object")
    try:
        check_tokens(chunk)
    except ValueError as problem:
        raise _error(path, line, str(problem)) from problem
    return chunk


def _providers(data: JsonObject) -> set[str]:
    header = data.get("header")
    config = header.get("config") if isinstance(header, dict) else None
    provider = config.get("provider") if isinstance(config, dict) else None
    return {provider} if isinstance(provider, str) else set()


def _text_stream(text: str) -> list[Chunk]:
    return [
        {"type": "block-start", "index": 0, "blockType": "text"},
        {"type": "text-delta", "index": 0, "text": text},
        {"type": "block-end", "index": 0, "block": {"type": "text", "text": text}},
        {"type": "finish", "reason": {"kind": "stop"}},
    ]


def _error(path: Path, line: int, message: str) -> CompositionError:
    return CompositionError([Problem(f"{path}:{line}", message)])

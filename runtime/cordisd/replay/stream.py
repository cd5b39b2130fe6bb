"""Tokens in the bytes of an answer: a stream may cut a path anywhere, between events and within them.

Before a path is replaced, the pieces of it are put together in the event that has the first of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, NamedTuple

from cordisd.replay.paths import Workspace
from cordisd.replay.turns import Chunk

_DATA: Final = re.compile(rb"^(?:\xef\xbb\xbf)?data: ?(\{[^\r\n]*(?:\r?\ndata:[^\r\n]*)*)\r?$", re.MULTILINE)
_NEXT_LINE: Final = re.compile(rb"\r?\ndata: ?")


def hide_in_stream(workspace: Workspace, chunks: Sequence[Chunk]) -> list[Chunk]:
    """The chunks of one answer with tokens in them.

    They are cut where they were, but what has become a token is not cut, nor an event that was put together:
    it comes whole, with its beginning.
    """
    whole = b"".join(chunk.data for chunk in chunks)
    places = [(match.start(1), match.end(1), match[1]) for match in _DATA.finditer(whole)]
    if not places and whole.lstrip()[:1] == b"{":  # an answer that is no stream
        places = [(0, len(whole), whole)]
    values = _decoded([_NEXT_LINE.sub(b"\n", data) if b"\n" in data else data for *_, data in places])
    events = [
        _Event(start, end, b"\\" in data, value)
        for (start, end, data), value in zip(places, values, strict=True)
    ]
    _gather(workspace, events)
    edits = _edits(workspace, whole, events)
    if not edits:
        return list(chunks)
    done, ends = _rewrite(whole, edits, list(accumulate(len(chunk.data) for chunk in chunks)))
    cut = [
        Chunk(chunk.at_ms, done[start:end])
        for chunk, start, end in zip(chunks, [0, *ends], ends, strict=False)
    ]
    return [chunk for chunk in cut if chunk.data]


class _Edit(NamedTuple):
    """Bytes `start` to `end` of a stream become `new`."""

    start: int
    end: int
    new: bytes


@dataclass(slots=True)
class _Event:
    """The JSON of one event, and where it stands."""

    start: int
    end: int
    is_escaped: bool
    """Whether its texts may be others than its bytes."""
    value: Any
    is_changed: bool = False

    def written(self) -> bytes:
        """Its JSON, always written in the same way."""
        return json.dumps(self.value, separators=(",", ":")).encode()


class _Piece(NamedTuple):
    """One string of an event that continues what earlier events have at the same place."""

    event: _Event
    holder: dict[str, Any]
    key: str

    @property
    def text(self) -> str:
        return str(self.holder[self.key])

    def change(self, text: str) -> None:
        if text != self.text:
            self.holder[self.key] = text
            self.event.is_changed = True


def _decoded(texts: Sequence[bytes]) -> list[Any]:
    """The value of each JSON text; None for what is none."""
    try:
        values: list[Any] = json.loads(b"[%b]" % b",".join(texts))  # many at once: it takes half the time
        if len(values) == len(texts):
            return values
    except (ValueError, RecursionError):
        pass
    return [_decoded_alone(text) for text in texts]


def _decoded_alone(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _gather(workspace: Workspace, events: Sequence[_Event]) -> None:
    """Put each path and secret into one event, where several have a piece of it."""
    rows: dict[tuple[str, ...], list[_Piece]] = {}
    for event in events:
        for place, holder, key in _continued(event.value):
            rows.setdefault(place, []).append(_Piece(event, holder, key))
    for row in rows.values():
        text = "".join(piece.text for piece in row)
        matches = list(workspace.found_in(text))
        if not matches:
            continue
        cuts: list[int] = []
        n = 0
        for end in accumulate(len(piece.text) for piece in row):
            while n < len(matches) and matches[n].end() < end:
                n += 1
            inside = n < len(matches) and matches[n].start() < end
            cuts.append(matches[n].end() if inside else end)
        for piece, start, end in zip(row, [0, *cuts], cuts, strict=False):
            piece.change(text[start:end])


def _edits(workspace: Workspace, whole: bytes, events: Sequence[_Event]) -> list[_Edit]:
    """Changed events, and those whose texts have what their bytes may not show; elsewhere, each match."""
    edits: list[_Edit] = []
    for event in events:
        if event.is_changed or (event.is_escaped and event.value is not None):
            written = event.written()
            hidden = workspace.hide_bytes(written)
            if event.is_changed or hidden != written:
                edits.append(_Edit(event.start, event.end, hidden))
    ends = [0, *(edit.end for edit in edits)]
    starts = [*(edit.start for edit in edits), len(whole)]
    for match in workspace.found_in_bytes(whole, zip(ends, starts, strict=True)):
        edits.append(_Edit(match.start(), match.end(), workspace.token_of(match[0])))
    return sorted(edits)


def _continued(value: Any) -> Iterator[tuple[tuple[str, ...], dict[str, Any], str]]:
    """The strings of a chat-completions chunk that are continued from event to event, each with its place."""
    choices = value.get("choices") if isinstance(value, dict) else None
    for choice in choices if isinstance(choices, list) else ():
        delta = choice.get("delta") if isinstance(choice, dict) else None
        if not isinstance(delta, dict):
            continue
        number = str(choice.get("index", 0))
        for key, text in delta.items():
            if isinstance(text, str) and key != "role":
                yield (number, key), delta, key
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict) and isinstance(function.get("arguments"), str):
                yield (number, "call", str(call.get("index", 0))), function, "arguments"


def _rewrite(whole: bytes, edits: Sequence[_Edit], ends: Sequence[int]) -> tuple[bytes, list[int]]:
    """`whole` with the edits made, and where its chunks end then; one that ends in an edit has all of it."""
    parts: list[bytes] = []
    moved: list[int] = []
    at = size = n = 0
    for edit in edits:
        while n < len(ends) and ends[n] <= edit.start:
            moved.append(size + ends[n] - at)
            n += 1
        parts += [whole[at : edit.start], edit.new]
        size += edit.start - at + len(edit.new)
        at = edit.end
        while n < len(ends) and ends[n] < at:
            moved.append(size)
            n += 1
    moved += [size + end - at for end in ends[n:]]
    return b"".join([*parts, whole[at:]]), moved

"""The working directory in recorded traffic: written as `{{cwd}}`, so that a replay can work elsewhere.

A literal `{{cwd}}` is written `{{{{cwd}}`. A stream may cut a path anywhere; before it is replaced, the
pieces of it are put together in the event that has the first of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

TOKEN: Final = "{{cwd}}"
_PLAIN_PATH: Final = re.compile(r"/[A-Za-z0-9_./+@=,~:-]*")
_WRITTEN: Final = re.compile(r"\{\{\{\{cwd\}\}|\{\{cwd\}\}")
_DATA_LINE: Final = re.compile(rb"^data: ?(\{.*\})\r?$", re.MULTILINE)


class Workspace:
    """Replaces one directory by its token, and back."""

    def __init__(self, cwd: str) -> None:
        self.cwd = cwd
        # Not within a longer name, on either side: /tmp/w is no part of /tmp/w2. The arguments of a tool call
        # are JSON in a string, where a path at the beginning of a line stands behind \n.
        self._found = re.compile(rf"(?:(?<![A-Za-z0-9_.-])|(?<=\\[nrt])){re.escape(cwd)}(?![A-Za-z0-9_-])")

    @property
    def can_be_replaced(self) -> bool:
        """Whether the path looks the same in every JSON text; the root directory is everywhere."""
        return _PLAIN_PATH.fullmatch(self.cwd) is not None and self.cwd != "/"

    def hide(self, text: str) -> str:
        """`text` with the token in the place of the directory."""
        return self._found.sub(TOKEN, text.replace(TOKEN, "{{" + TOKEN))

    def show(self, text: str) -> str:
        """`text` as it was before `hide`, in this directory."""
        return _WRITTEN.sub(lambda match: TOKEN if len(match[0]) > len(TOKEN) else self.cwd, text)

    def hide_in_stream(self, chunks: Sequence[Chunk]) -> list[Chunk]:
        """The chunks of one answer with the token in them.

        They are cut where they were, but no event that has the token is cut: it comes whole, with its end.
        """
        whole = b"".join(chunk.data for chunk in chunks)
        events = [_Event(match.start(1), match.end(1), match[1]) for match in _DATA_LINE.finditer(whole)]
        if events:
            self._gather(events)
            edits = [edit for event in events if (edit := event.hidden(self.hide)) is not None]
        else:
            text = self.hide(whole.decode("utf-8", "surrogateescape"))
            hidden = text.encode("utf-8", "surrogateescape")
            edits = [] if hidden == whole else [Edit(0, len(whole), hidden)]
        ends = list(accumulate(len(chunk.data) for chunk in chunks))
        done, ends = _rewrite(whole, edits, ends)
        cut = [
            Chunk(chunk.at_ms, done[start:end])
            for chunk, start, end in zip(chunks, [0, *ends], ends, strict=False)
        ]
        return [chunk for chunk in cut if chunk.data]

    def show_in_stream(self, chunk: bytes) -> bytes:
        """One recorded chunk with this directory in the place of the token."""
        return self.show(chunk.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def _gather(self, events: Sequence[_Event]) -> None:
        """Put each path of the directory into one event, where several have a piece of it."""
        rows: dict[tuple[object, ...], list[_Piece]] = {}
        for event in events:
            for place, holder, key in _continued(event.value):
                rows.setdefault(place, []).append(_Piece(holder, key))
        for row in rows.values():
            ends = list(accumulate(len(piece.text) for piece in row))
            text = "".join(piece.text for piece in row)
            moved = list(ends)
            for match in self._found.finditer(text):
                for n, end in enumerate(ends):
                    if match.start() < end < match.end():  # the path goes on in the next piece
                        moved[n] = match.end()
            for piece, start, end in zip(row, [0, *moved], moved, strict=False):
                piece.text = text[start:end]


class Chunk(NamedTuple):
    """What one read from the network gave, and when, counted from the request."""

    at_ms: int
    data: bytes


class Edit(NamedTuple):
    """Bytes `start` to `end` of a stream become `new`."""

    start: int
    end: int
    new: bytes


class _Event:
    """The JSON of one `data:` line, and where it stands."""

    def __init__(self, start: int, end: int, data: bytes) -> None:
        self.start, self.end = start, end
        try:
            self.value: Any = json.loads(data)
        except ValueError:
            self.value = None
        self._before = json.dumps(self.value)

    def hidden(self, hide: Callable[[str], str]) -> Edit | None:
        """What the event is to become; None: it stays as it is, byte for byte."""
        value = map_strings(self.value, hide)
        if json.dumps(value) == self._before:
            return None
        return Edit(self.start, self.end, json.dumps(value, separators=(",", ":")).encode())


class _Piece:
    """One string of an event that continues what earlier events have at the same place."""

    def __init__(self, holder: dict[str, Any], key: str) -> None:
        self._holder, self._key = holder, key

    @property
    def text(self) -> str:
        return str(self._holder[self._key])

    @text.setter
    def text(self, text: str) -> None:
        self._holder[self._key] = text


def map_strings(value: Any, change: Callable[[str], str]) -> Any:
    """A copy of a JSON value with every string in it changed, keys left alone."""
    match value:
        case str():
            return change(value)
        case dict():
            return {key: map_strings(inner, change) for key, inner in value.items()}
        case list():
            return [map_strings(inner, change) for inner in value]
    return value


def _continued(value: Any) -> Iterator[tuple[tuple[object, ...], dict[str, Any], str]]:
    """The strings of a chat-completions chunk that are continued from event to event, each with its place."""
    choices = value.get("choices") if isinstance(value, dict) else None
    for choice in choices if isinstance(choices, list) else ():
        delta = choice.get("delta") if isinstance(choice, dict) else None
        if not isinstance(delta, dict):
            continue
        number = choice.get("index", 0)
        for key, text in delta.items():
            if isinstance(text, str) and key != "role":
                yield (number, key), delta, key
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict) and isinstance(function.get("arguments"), str):
                yield (number, "call", call.get("index", 0)), function, "arguments"


def _rewrite(whole: bytes, edits: Sequence[Edit], ends: Sequence[int]) -> tuple[bytes, list[int]]:
    """`whole` with the edits made, and where its chunks end then; one that ends in an edit has all of it."""
    parts: list[bytes] = []
    moved: list[int] = []
    left = list(ends)
    at = size = 0
    for edit in edits:
        while left and left[0] <= edit.start:
            moved.append(size + left.pop(0) - at)
        parts += [whole[at : edit.start], edit.new]
        size += edit.start - at + len(edit.new)
        at = edit.end
        while left and left[0] < at:
            moved.append(size)
            left.pop(0)
    moved += [size + end - at for end in left]
    return b"".join([*parts, whole[at:]]), moved

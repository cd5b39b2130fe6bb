"""Faults of a stream's structure: its payloads say the same, but not as they should."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from itertools import zip_longest
from typing import Any

from cordisd.mock.faults.draw import Draw
from cordisd.mock.sse import error_object

Chunk = dict[str, Any]
Chunks = list[Chunk]


def call_index_missing(chunks: Chunks, draw: Draw) -> Chunks:
    """No delta of a tool call has an index."""
    return _each_call(chunks, lambda call, head: call.pop("index", None))


def call_index_zero(chunks: Chunks, draw: Draw) -> Chunks:
    """Every delta of a tool call has the index 0."""
    return _each_call(chunks, lambda call, head: call.update(index=0))


def call_index_late(chunks: Chunks, draw: Draw) -> Chunks:
    """The head of every tool call has the index 0, the rest of it the right one."""
    return _each_call(chunks, lambda call, head: call.update(index=0) if call is head else None)


def call_id_repeated(chunks: Chunks, draw: Draw) -> Chunks:
    """Every delta of a tool call says its id again."""
    return _each_call(chunks, lambda call, head: call.update(id=head["id"]) if "id" in head else None)


def call_fields_empty(chunks: Chunks, draw: Draw) -> Chunks:
    """Later deltas of a tool call have `id: ""` and `name: ""`."""

    def blank(call: Chunk, head: Chunk) -> None:
        if call is not head:
            call.update(id="", function={"name": "", **call["function"]})

    return _each_call(chunks, blank)


def calls_interleaved(chunks: Chunks, draw: Draw) -> Chunks:
    """Parallel tool calls come in turns, a delta of each, their arguments in pieces."""
    deltas: dict[int, Chunks] = {}
    for chunk in chunks:
        for call in _calls_of(chunk):
            deltas.setdefault(call["index"], []).extend(_halves(chunk, call))
    if len(deltas) < 2:
        return chunks
    first = next(place for place, chunk in enumerate(chunks) if _calls_of(chunk))
    mixed = [chunk for turn in zip_longest(*deltas.values()) for chunk in turn if chunk is not None]
    rest = [chunk for chunk in chunks[first:] if not _calls_of(chunk)]
    return [*chunks[:first], *mixed, *rest]


def usage_with_finish(chunks: Chunks, draw: Draw) -> Chunks:
    """Usage comes in the chunk of the finish reason, not in one of its own."""
    if len(chunks) < 2 or chunks[-1]["choices"] or "usage" not in chunks[-1]:
        return chunks
    *others, finish, usage = chunks
    return [*others, {**finish, "usage": usage["usage"]}]


def usage_everywhere(chunks: Chunks, draw: Draw) -> Chunks:
    """Every chunk has a usage: the count so far, as some servers send it."""
    if not chunks or "usage" not in chunks[-1]:
        return chunks
    total = chunks[-1]["usage"]
    so_far = [
        {**chunk, "usage": {**total, "completion_tokens": place}} for place, chunk in enumerate(chunks[:-1])
    ]
    return [*so_far, chunks[-1]]


def error_in_stream(chunks: Chunks, draw: Draw) -> Chunks:
    """An error object comes in the middle of the stream, with that status, and nothing after it."""
    error = error_object(int(draw.amount), "The server had an error while processing your request")
    error["error"]["code"] = int(draw.amount)
    return [*chunks[: (len(chunks) + 1) // 2], error]


def _calls_of(chunk: Chunk) -> list[Chunk]:
    choices = chunk.get("choices")
    return choices[0]["delta"].get("tool_calls") or [] if choices else []


def _each_call(chunks: Chunks, change: Callable[[Chunk, Chunk], object]) -> Chunks:
    """A copy of the chunks after `change(delta, first delta of the same call)` on each call's delta."""
    changed = deepcopy(chunks)
    heads: dict[int, Chunk] = {}
    found = [(call, heads.setdefault(call["index"], call)) for chunk in changed for call in _calls_of(chunk)]
    for call, head in found:
        change(call, head)
    return changed


def _halves(chunk: Chunk, call: Chunk) -> Chunks:
    """The chunk, as two where it holds a piece of arguments long enough."""
    piece = call["function"].get("arguments", "")
    middle = len(piece) // 2
    if not middle:
        return [chunk]
    halves = []
    for part in (piece[:middle], piece[middle:]):
        half = deepcopy(chunk)
        _calls_of(half)[0]["function"]["arguments"] = part
        halves.append(half)
    return halves

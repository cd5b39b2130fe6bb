"""Packed rows: a run of streamed deltas as one line of the log (`protocol.md` 4.3).

    {"type":"text-chunks","seq0":12,"time0":1700000000030,
     "data":{"turn":1,"step":1,"index":1,"dt":[0,3,1],"texts":["a","b","c","d"]}}

stands for four `assistant/chunk` events with `seq` 12 to 15. Packing never changes what a reader sees.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from cordisd.events import Event, JsonObject, encode_json

MIN_RUN: Final = 3
_CHUNK_KEYS = ("turn", "step", "chunk")


class _Kind(NamedTuple):
    """How one kind of delta is packed: `keys` of the delta, the last of which becomes the row's `field`."""

    row: str
    delta: str
    keys: tuple[str, ...]
    field: str

    @property
    def shared(self) -> tuple[str, ...]:
        """Keys that every delta of a run has in common."""
        return self.keys[1:-1]


_KINDS = (
    _Kind("text-chunks", "text-delta", ("type", "index", "text"), "texts"),
    _Kind("reasoning-chunks", "reasoning-delta", ("type", "index", "text"), "texts"),
    _Kind("tool-call-chunks", "tool-call-delta", ("type", "index", "id", "name", "argumentsDelta"), "args"),
)
_BY_DELTA = {kind.delta: kind for kind in _KINDS}
_BY_ROW = {kind.row: kind for kind in _KINDS}

ROW_TYPES: Final = frozenset(_BY_ROW)


def pack(events: Sequence[Event]) -> Iterator[bytes]:
    """The lines (without newlines) of one batch of events, in order; runs of three or more become rows."""
    start = 0
    if len(events) < MIN_RUN:
        yield from (event.json for event in events)
        return
    while start < len(events):
        end = _run_end(events, start)
        if end - start >= MIN_RUN:
            yield _pack_run(events[start:end])
        else:
            for event in events[start:end]:
                yield event.json
        start = end


def expand(raw: JsonObject) -> list[Event]:
    """The events of one decoded row.

    Raises:
        ValueError: the row is malformed; the message names the field.
    """
    kind = _BY_ROW[raw["type"]]
    if raw.keys() != {"type", "seq0", "time0", "data"} or not isinstance(raw["data"], dict):
        raise ValueError(f"a {kind.row} row has exactly type, seq0, time0 and an object data")
    data: JsonObject = raw["data"]
    expected = {"turn", "step", "dt", kind.field, *kind.shared}
    if data.keys() != expected and data.keys() != expected - {"name"}:  # some servers never name the tool
        raise ValueError(f"the data of a {kind.row} row has exactly {', '.join(sorted(expected))}")
    texts, gaps = data[kind.field], data["dt"]
    if not _all(texts, str) or not texts:
        raise ValueError(f"{kind.field} must be strings, at least one")
    if not _all(gaps, int) or len(gaps) != len(texts) - 1:
        raise ValueError(f"dt must be {len(texts) - 1} integers")
    seq, time, turn, step = raw["seq0"], raw["time0"], data["turn"], data["step"]
    if not _all([seq, time, turn, step, data["index"]], int) or min(seq, time, turn, step, data["index"]) < 0:
        raise ValueError("seq0, time0, turn, step and index must be non-negative integers")
    if not _all([data.get(key, "") for key in kind.shared if key != "index"], str):
        raise ValueError("id and name must be strings")
    shared = {key: data[key] for key in kind.shared if key in data}
    events: list[Event] = []
    for offset, text in enumerate(texts):
        if offset:
            time += gaps[offset - 1]
        if time < 0:
            raise ValueError("dt leads to a time before the epoch")
        chunk = {"type": kind.delta, **shared, kind.keys[-1]: text}
        events.append(
            Event("assistant/chunk", seq + offset, time, {"turn": turn, "step": step, "chunk": chunk})
        )
    return events


def _run_end(events: Sequence[Event], start: int) -> int:
    """The index after the longest run of like deltas that begins at `start`; at least `start + 1`."""
    end = start + 1
    last = events[start]
    likeness = _likeness(last)
    if likeness is None:
        return end
    while end < len(events):
        event = events[end]
        # A clock that was set back breaks the run: readers need not accept a negative dt.
        if event.seq != last.seq + 1 or event.time < last.time or _likeness(event) != likeness:
            break
        last = event
        end += 1
    return end


def _likeness(event: Event) -> tuple[Any, ...] | None:
    """What deltas of one row share, or None for an event that a row could not give back unchanged."""
    if event.type != "assistant/chunk":
        return None
    data = event.data
    kind = _BY_DELTA.get(data["chunk"].get("type"))
    if kind is None:
        return None
    if (
        tuple(data) != _CHUNK_KEYS
        or event.ignorable
        or event.sources is not None
        or event.surface_op is not None
    ):
        return None
    chunk = data["chunk"]
    if tuple(chunk) != kind.keys or type(chunk[kind.keys[-1]]) is not str:
        return None
    turn, step, index = data["turn"], data["step"], chunk["index"]
    if type(turn) is not int or type(step) is not int or type(index) is not int:
        return None
    if kind.row != "tool-call-chunks":
        return kind.row, turn, step, index
    call_id, name = chunk["id"], chunk["name"]
    if type(call_id) is not str or type(name) is not str:
        return None
    return kind.row, turn, step, index, call_id, name


def _pack_run(events: Sequence[Event]) -> bytes:
    first = events[0]
    chunk = first.data["chunk"]
    kind = _BY_DELTA[chunk["type"]]
    shared = {key: chunk[key] for key in kind.shared}
    text_key = kind.keys[-1]
    data = {
        "turn": first.data["turn"],
        "step": first.data["step"],
        "index": shared.pop("index"),
        "dt": [later.time - earlier.time for earlier, later in pairwise(events)],
        **shared,
        kind.field: [event.data["chunk"][text_key] for event in events],
    }
    return encode_json({"type": kind.row, "seq0": first.seq, "time0": first.time, "data": data})


def _all(values: object, kind: type) -> bool:
    return isinstance(values, list) and all(type(value) is kind for value in values)

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordisd.events import Event, decode_json
from cordisd.session.reading import events_of
from cordisd.session.rows import ROW_TYPES, expand, pack
from log_samples import plain


def deltas(*texts: str, seq: int = 0, time: int = 100, **chunk: Any) -> list[Event]:
    base = {"type": "text-delta", "index": 0, **chunk}
    return [
        Event("assistant/chunk", seq + at, time + at, {"turn": 1, "step": 1, "chunk": {**base, "text": text}})
        for at, text in enumerate(texts)
    ]


def unpacked(lines: list[bytes]) -> list[Event]:
    return [event for line in lines for event in events_of(decode_json(line))]


def test_three_deltas_become_the_published_row() -> None:
    assert list(pack(deltas("a", "b", "é", seq=12))) == [
        b'{"type":"text-chunks","seq0":12,"time0":100,"data":'
        b'{"turn":1,"step":1,"index":0,"dt":[1,1],"texts":["a","b","\\u00e9"]}}'
    ]


def test_a_tool_call_row_carries_id_and_name() -> None:
    chunk = {"type": "tool-call-delta", "index": 0, "id": "c1", "name": "bash"}
    events = [
        Event(
            "assistant/chunk",
            20 + at,
            50,
            {"turn": 1, "step": 1, "chunk": {**chunk, "argumentsDelta": text}},
        )
        for at, text in enumerate(["", '{"a"', ":1}"])
    ]
    assert list(pack(events)) == [
        b'{"type":"tool-call-chunks","seq0":20,"time0":50,"data":{"turn":1,"step":1,"index":0,"dt":[0,0],'
        b'"id":"c1","name":"bash","args":["","{\\"a\\"",":1}"]}}'
    ]


def test_runs_of_two_are_not_packed() -> None:
    events = deltas("a", "b")
    assert list(pack(events)) == [event.json for event in events]


@pytest.mark.parametrize("change", [{"index": 1}, {"type": "reasoning-delta"}, {"more": True}, {"text": 5}])
def test_a_delta_unlike_the_others_ends_a_row(change: dict[str, Any]) -> None:
    events = deltas("a", "b", "c", "d")
    events[3].data["chunk"].update(change)
    assert [decode_json(line)["type"] for line in pack(events)] == ["text-chunks", "assistant/chunk"]


def test_a_clock_that_was_set_back_ends_a_row() -> None:
    events = [*deltas("a", "b", "c"), *deltas("d", "e", "f", seq=3, time=7)]
    assert [decode_json(line)["time0"] for line in pack(events)] == [100, 7]


@pytest.mark.parametrize("field", ["sources", "surface_op", "ignorable"])
def test_an_event_with_more_than_its_data_is_not_packed(field: str) -> None:
    events = deltas("a", "b", "c", seq=1)
    setattr(events[1], field, {"sources": [0], "surface_op": "append", "ignorable": True}[field])
    assert list(pack(events)) == [event.json for event in events]


def text_delta(kind: str, index: int, text: str) -> dict[str, Any]:
    return {"type": kind, "index": index, "text": text}


def call_delta(index: int, call_id: str, name: str | None, arguments: str) -> dict[str, Any]:
    kind = "tool-call-delta"
    return {"type": kind, "index": index, "id": call_id, "name": name, "argumentsDelta": arguments}


indexes, texts = st.integers(0, 1), st.text(st.characters(), max_size=4)
chunks = st.one_of(
    st.builds(text_delta, st.sampled_from(["text-delta", "reasoning-delta"]), indexes, texts),
    st.builds(call_delta, indexes, st.sampled_from(["c1", "c2", ""]), st.sampled_from(["bash", None]), texts),
    st.just({"type": "finish", "reason": {"kind": "stop"}}),
)


@given(st.lists(st.tuples(chunks, st.integers(-2, 5), st.integers(1, 2), st.integers(1, 4)), max_size=30))
def test_packing_loses_nothing(items: list[tuple[dict[str, Any], int, int, int]]) -> None:
    events: list[Event] = []
    time = 1000
    for chunk, gap, turn, repeats in items:
        for _ in range(repeats):
            time += gap
            data = {"turn": turn, "step": 1, "chunk": dict(chunk)}
            events.append(Event("assistant/chunk", len(events), time, data))
    lines = list(pack(events))
    assert plain(unpacked(lines)) == plain(events)
    assert [event.json for event in unpacked(lines)] == [event.json for event in events]
    kinds = [decode_json(line)["type"] in ROW_TYPES for line in lines]
    assert all(len(line) > 0 for line in lines)
    assert len(lines) <= len(events)
    longest = max((_run(events, at) for at in range(len(events))), default=0)
    assert any(kinds) == (longest >= 3)


def _run(events: list[Event], start: int) -> int:
    """Length of the packable run at `start`, computed in another way."""
    chunk = events[start].data["chunk"]
    if chunk["type"] == "finish" or chunk.get("name", "") is None:
        return 0
    length = 1
    for one, other in pairwise(events[start:]):
        same = [
            {k: v for k, v in e.data["chunk"].items() if k not in ("text", "argumentsDelta")}
            for e in (one, other)
        ]
        if same[0] != same[1] or one.data["turn"] != other.data["turn"] or other.time < one.time:
            break
        length += 1
    return length


ROW = {
    "type": "text-chunks",
    "seq0": 3,
    "time0": 10,
    "data": {"turn": 1, "step": 1, "index": 0, "dt": [1], "texts": ["a", "b"]},
}


def test_a_row_of_two_is_read_too() -> None:
    assert [(event.seq, event.time) for event in expand(ROW)] == [(3, 10), (4, 11)]


def test_a_call_row_without_a_name_gives_deltas_without_one() -> None:
    data = {"turn": 1, "step": 1, "index": 0, "dt": [], "id": "c", "args": ["x"]}
    [event] = expand({**ROW, "type": "tool-call-chunks", "data": data})
    assert event.data["chunk"] == {"type": "tool-call-delta", "index": 0, "id": "c", "argumentsDelta": "x"}


@pytest.mark.parametrize(
    "change",
    [
        {"seq0": -1},
        {"seq0": 1.0},
        {"time0": None},
        {"seq": 3},
        {"data": None},
        {"data": {**ROW["data"], "dt": []}},
        {"data": {**ROW["data"], "dt": [1, 1]}},
        {"data": {**ROW["data"], "dt": ["1"]}},
        {"data": {**ROW["data"], "dt": [-11]}},
        {"data": {**ROW["data"], "texts": []}},
        {"data": {**ROW["data"], "texts": ["a", 2]}},
        {"data": {**ROW["data"], "index": True}},
        {"data": {**ROW["data"], "id": "c"}},
        {"data": {"turn": 1, "step": 1, "dt": [1], "texts": ["a", "b"]}},
    ],
)
def test_a_malformed_row_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"row|strings|dt|integers"):
        expand({**ROW, **change})

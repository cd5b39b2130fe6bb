from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cordisd.errors import LogCorruptError, LogRefusedError
from cordisd.events import Event, decode_json
from cordisd.session.disk import DiskCalls
from cordisd.session.names import LOG_NAME
from cordisd.session.repair import closers
from cordisd.session.store import SessionStore, StoredSession
from log_samples import Writer, call_block, finished_session, header, open_turn, plain, result_data, tool_turn


def write(root: Path, events: list[Event]) -> Path:
    file = SessionStore(root).create(header())
    file.append(events)
    file.close()
    return file.path


def reopen(root: Path, disk: DiskCalls | None = None) -> StoredSession:
    opened = SessionStore(root, disk=disk).open("s1")
    opened.file.close()
    return opened


def two_calls_open(*, started: int, answered: int = 0) -> Writer:
    """A session stopped while the model's two calls were being run."""
    writer = Writer()
    open_turn(writer, 1, "hello")
    writer.answer(1, 1, call_block("a", "{}"), call_block("b", "{}"), sources=[])
    for call_id in ["a", "b"][:started]:
        data = {"turn": 1, "step": 1, "callId": call_id, "name": "bash", "arguments": "{}"}
        call = writer.add("tool/call", data)
        if answered:
            writer.add("tool/result", result_data(call_id, "x"), sources=[call.seq], surface_op="append")
            answered -= 1
    return writer


def test_a_finished_session_needs_no_closers() -> None:
    assert closers(finished_session()) == []


def test_every_open_call_is_closed_in_model_order_by_what_is_known_of_it() -> None:
    events = two_calls_open(started=1).events
    n, last = len(events), events[-1].time
    added = closers(events)
    assert [(event.type, event.seq, event.time) for event in added] == [
        ("tool/result", n, last),
        ("tool/result", n + 1, last),
        ("step/end", n + 2, last),
        ("turn/end", n + 3, last),
    ]
    unknown, not_started, step_end, turn_end = added
    assert unknown.data["error"] == {"name": "ToolOutcomeUnknownError", "code": "TOOL_OUTCOME_UNKNOWN"}
    assert unknown.sources == [n - 1]
    assert not_started.data["error"] == {"name": "ToolNotStartedError", "code": "TOOL_NOT_STARTED"}
    assert not_started.sources is None
    for event, call_id in ((unknown, "a"), (not_started, "b")):
        message = event.data["message"]
        assert list(message) == ["id", "role", "source", "content"]
        assert message["id"] == f"interrupted-tool-result-{call_id}-{event.seq}"
        assert message["source"] == {"kind": "tool", "callId": call_id}
        assert message["content"][0]["toolCallId"] == call_id
        assert message["content"][0]["isError"] is True
        assert event.surface_op == "append"
    assert step_end.data == {"turn": 1, "step": 1}
    assert turn_end.data == {"turn": 1, "reason": {"kind": "interrupted"}}


def test_an_answered_call_is_not_answered_again() -> None:
    added = closers(two_calls_open(started=2, answered=1).events)
    assert [e.data["message"]["source"]["callId"] for e in added if e.type == "tool/result"] == ["b"]


def test_a_turn_without_an_open_step_gets_only_its_end() -> None:
    writer = Writer()
    writer.add("turn/start", {"turn": 1})
    assert [event.type for event in closers(writer.events)] == ["turn/end"]


@pytest.mark.parametrize("n_events", [3, 4])
def test_a_prompt_that_was_taken_up_and_never_said_is_said(n_events: int) -> None:
    writer = Writer()
    open_turn(writer, 1, "hello")
    said = writer.events[4]
    del writer.events[n_events:]
    added = closers(writer.events)
    types = ["step/start", "user/message", "step/end", "turn/end"]
    assert [event.type for event in added] == types[n_events - 3 :]
    assert [event.seq for event in added] == list(range(n_events, 7))
    assert (added[-3].data, added[-3].surface_op) == (said.data, "append")
    assert added[-2].data == {"turn": 1, "step": 1}
    assert closers([*writer.events, *added]) == []


def test_what_waits_in_the_inbox_or_was_cancelled_is_not_said() -> None:
    writer = Writer()
    open_turn(writer, 1, "hello")
    steered, waiting = ({**writer.events[4].data, "id": name} for name in ("steered", "waiting"))
    splice = {"target": "next-step", "start": 0}
    writer.add("agent/inbox/spliced", {**splice, "inserted": [steered, {**waiting, "id": "dropped"}]})
    writer.add("agent/inbox/spliced", {**splice, "target": "next-turn", "inserted": [waiting]})
    writer.add(
        "agent/inbox/spliced",
        {**splice, "start": 1, "removedCount": 1, "inserted": [], "outcome": "canceled"},
    )
    writer.add("step/end", {"turn": 1, "step": 1})
    writer.add("agent/inbox/spliced", {**splice, "removedCount": 1, "inserted": []})
    added = closers(writer.events)
    assert [event.type for event in added] == ["step/start", "user/message", "step/end", "turn/end"]
    assert added[0].data == {"turn": 1, "step": 2}
    assert added[1].data == steered


def test_equal_call_ids_get_one_result_each() -> None:
    writer = Writer()
    open_turn(writer, 1, "hello")
    writer.answer(1, 1, call_block("a", "{}"), call_block("a", "{}"), sources=[])
    data = {"turn": 1, "step": 1, "callId": "a", "name": "bash", "arguments": "{}"}
    for _ in range(2):
        writer.add("tool/call", data)
    results = [event for event in closers(writer.events) if event.type == "tool/result"]
    assert [event.sources for event in results] == [[6], [7]]


def test_a_repaired_log_is_closed_marked_and_stays_so(tmp_path: Path) -> None:
    events = two_calls_open(started=2).events
    path = write(tmp_path, events)
    before_ms = time.time_ns() // 1_000_000
    opened = reopen(tmp_path)
    assert [event.type for event in opened.events[len(events) :]] == [
        "tool/result",
        "tool/result",
        "step/end",
        "turn/end",
        "session/end-seed",
    ]
    assert opened.events[-1].data == {}
    assert opened.events[-1].time >= before_ms
    content = path.read_bytes()
    assert plain(reopen(tmp_path).events) == plain(opened.events)
    assert path.read_bytes() == content


ENDS = [
    b'{"type":"turn/start","seq":',
    b"\n",
    b"garbage\n",
    b"\0" * 64,
    b'\xff\xfe"\n',
    b'{"type":"turn/end"}',
]
MALFORMED_ROW = (
    b'{"type":"text-chunks","seq0":%d,"time0":1,"data":{"turn":1,"step":1,"index":0,"dt":[],"texts":[]}}\n'
)


@pytest.mark.parametrize("end", [*ENDS, b"[" * 100_000 + b"\n", MALFORMED_ROW, b'{"type":7}\n', b"5\n"])
def test_a_damaged_end_is_cut_and_kept_beside_the_log(tmp_path: Path, end: bytes) -> None:
    events = finished_session()
    path = write(tmp_path, events)
    good = path.read_bytes()
    path.write_bytes(good + end)
    opened = reopen(tmp_path)
    assert plain(opened.events[:-1]) == plain(events)
    assert opened.damage is not None
    assert path.read_bytes().startswith(good)
    kept = path.with_name(f"{LOG_NAME}.{len(good)}.cut")
    assert kept.read_bytes() == end
    assert kept.stat().st_mode & 0o777 == 0o600
    assert reopen(tmp_path).damage is None


def test_a_gap_at_the_end_is_cut(tmp_path: Path) -> None:
    events = finished_session()
    path = write(tmp_path, events)
    n = len(events)
    with path.open("ab") as stream:
        stream.write(Event("turn/start", n + 1, 5, {"turn": 2}).json + b"\n")
        stream.write(Event("step/start", n + 2, 5, {"turn": 2, "step": 1}).json + b"\n")
    opened = reopen(tmp_path)
    assert (
        opened.damage == f"seq gap at line {len(path.read_bytes().splitlines())}: expected {n}, found {n + 1}"
    )
    assert plain(opened.events[:n]) == plain(events)


@pytest.mark.parametrize("damage", ["garbage", "gap"])
def test_damage_before_a_later_turn_end_fails_and_changes_nothing(tmp_path: Path, damage: str) -> None:
    writer = Writer()
    tool_turn(writer, 1)
    tool_turn(writer, 2)
    path = write(tmp_path, writer.events)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[4:5] = [b"garbage\n"] if damage == "garbage" else []
    path.write_bytes(b"".join(lines))
    before = path.read_bytes(), os.listdir(path.parent)
    with pytest.raises(
        LogCorruptError, match=r"corrupt session log: .* at line 5.* in its committed"
    ) as caught:
        SessionStore(tmp_path).open("s1")
    assert str(path) in str(caught.value)
    assert (path.read_bytes(), os.listdir(path.parent)) == before


def test_a_turn_end_in_a_torn_last_line_commits_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, finished_session())
    lines = path.read_bytes().splitlines(keepends=True)
    assert b"turn/end" in lines[-1]
    path.write_bytes(b"".join([*lines[:-2], b"garbage\n", lines[-1].rstrip(b"\n")]))
    assert [event.type for event in reopen(tmp_path).events[-3:]] == [
        "step/end",
        "turn/end",
        "session/end-seed",
    ]


def test_a_newer_format_is_refused_with_the_path(tmp_path: Path) -> None:
    path = write(tmp_path, finished_session())
    path.write_bytes(path.read_bytes().replace(b'"version":0', b'"version":4,"isSeeded":false'))
    before = path.read_bytes()
    with pytest.raises(LogRefusedError, match=r"format 4 is not supported.*newer harness") as caught:
        SessionStore(tmp_path).open("s1")
    assert str(caught.value).endswith(str(path))
    assert path.read_bytes() == before


def test_an_unknown_event_is_refused_with_its_line(tmp_path: Path) -> None:
    path = write(tmp_path, finished_session()[:3])
    with path.open("ab") as stream:
        stream.write(b'{"type":"turn/strat","seq":3,"time":1,"data":{},"newer":true}\n')
    before = path.read_bytes()
    with pytest.raises(LogRefusedError, match=r'"turn/strat" \(did you mean "turn/start"\?\).*:5') as caught:
        SessionStore(tmp_path).open("s1")
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before


def test_an_unknown_event_marked_ignorable_is_kept(tmp_path: Path) -> None:
    events = [*finished_session()]
    events.append(Event("cordisd/outcome", len(events), 5, {"reward": 1}, ignorable=True))
    write(tmp_path, events)
    assert plain(reopen(tmp_path).events[:-1]) == plain(events)


@pytest.mark.parametrize(
    "number", [b'"createdAt":-0', b'"createdAt": -0', b'"createdAt":-5', b'"createdAt":1.5']
)
def test_a_header_number_that_is_no_count_is_corrupt(tmp_path: Path, number: bytes) -> None:
    path = write(tmp_path, finished_session())
    path.write_bytes(path.read_bytes().replace(b'"createdAt":1700000000000', number, 1))
    with pytest.raises(LogCorruptError, match="line 1"):
        SessionStore(tmp_path).open("s1")


def test_known_events_with_foreign_data_are_corrupt_not_a_crash(tmp_path: Path) -> None:
    events = [
        Event("turn/start", 0, 1, {"turn": 1}),
        Event("assistant/message", 1, 2, {}, surface_op="append"),
    ]
    write(tmp_path, events)
    with pytest.raises(LogCorruptError, match="malformed"):
        SessionStore(tmp_path).open("s1")


def _long_session() -> list[Event]:
    writer = Writer()
    tool_turn(writer, 1)
    tool_turn(writer, 2)
    return writer.events


def test_a_log_cut_at_any_byte_opens_as_a_prefix_with_its_closers(tmp_path: Path) -> None:
    events = finished_session()
    path = write(tmp_path, events)
    content = path.read_bytes()
    first = content.index(b"\n") + 1
    expected = plain(events)
    hurried = DiskCalls(fsync=lambda fd: None)
    for length in range(first, len(content) + 1):
        path.write_bytes(content[:length])
        opened = reopen(tmp_path, hurried)
        kept = next((at for at, e in enumerate(opened.events) if e.as_dict() not in expected), 0)
        assert plain(opened.events[:kept]) == expected[:kept]
        assert plain(closers(opened.events[:kept])) == plain(opened.events[kept:-1])
        assert opened.events[-1].type == "session/end-seed"
        for left in path.parent.glob("*.cut"):
            left.unlink()
    for length in (0, 1, first - 1):
        path.write_bytes(content[:length])
        with pytest.raises(LogCorruptError):
            SessionStore(tmp_path).open("s1")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_log_with_random_damage_opens_as_a_prefix_or_is_left_alone(
    tmp_path: Path, data: st.DataObject
) -> None:
    root = tmp_path / str(time.time_ns())
    path = write(root, _long_session())
    content = bytearray(path.read_bytes())
    first = content.index(b"\n") + 1
    at = data.draw(st.integers(first, len(content) - 1))
    junk = data.draw(st.binary(max_size=5))
    content[at : at + data.draw(st.integers(0, 5))] = junk
    path.write_bytes(content)
    try:
        opened = reopen(root)
    except (LogCorruptError, LogRefusedError):
        assert path.read_bytes() == content
        return
    seqs = [event.seq for event in opened.events]
    assert seqs == list(range(len(seqs)))
    assert opened.events[-1].type == "session/end-seed"
    assert closers(opened.events) == []
    cut = b"".join(left.read_bytes() for left in path.parent.glob("*.cut"))
    sound = len(content) - len(cut)
    assert path.read_bytes()[:sound] + cut == content
    for line in path.read_bytes()[:sound].removesuffix(b"\n").split(b"\n")[1:]:
        decode_json(line)

"""The numbers of a session, folded from events whose sums are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cordisd.errors import LogCorruptError
from cordisd.events import Event, JsonObject
from cordisd.session.header import SessionHeader
from cordisd.session.metrics import Metrics, read_metrics
from cordisd.session.store import SessionStore
from log_samples import START_MS, Writer, header, tool_turn


class Clock:
    """Makes numbered events at the times that a test says, in milliseconds."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def at(self, time: int, kind: str, **data: Any) -> None:
        self.events.append(Event(kind, len(self.events), time, data))

    def chunk(self, time: int, chunk: JsonObject) -> None:
        self.at(time, "assistant/chunk", turn=1, step=1, chunk=chunk)

    def answer(self, time: int, *names: str, usage: JsonObject | None = None, **marks: Any) -> None:
        """An answer that calls the tools of these names, with the ids `<name>-<place>`."""
        made = [
            {"type": "tool-call", "id": f"{name}-{at}", "name": name, "arguments": "{}"}
            for at, name in enumerate(names)
        ]
        told = {} if usage is None else {"usage": usage}
        self.at(time, "assistant/message", turn=1, step=1, message={"content": made}, **told, **marks)

    def result(self, time: int, call_id: str, text: str, *, failed: bool = False) -> None:
        block = {"toolCallId": call_id, "content": [{"type": "text", "text": text}], "isError": failed}
        message = {"source": {"kind": "tool", "callId": call_id}, "content": [block]}
        self.at(time, "tool/result", turn=1, step=1, message=message)

    def metrics(self, own: SessionHeader | None = None) -> JsonObject:
        metrics = Metrics(own or header())
        for event in self.events:
            metrics.add(event)
        return metrics.result()


def test_a_session_without_events_has_nulls_where_nothing_was_reported() -> None:
    assert Clock().metrics(header(cordisd={"digest": "d", "version": "1"})) == {
        "identity": {
            **dict.fromkeys(("preset", "profile", "provider", "model")),
            "digest": "d",
            "version": "1",
        },
        "turns": 0,
        "requests": {"attempts": 0, "retries": 0},
        "requestsWithoutUsage": 0,
        "tokens": dict.fromkeys(("input", "output", "reasoning", "cacheRead")),
        "toolCalls": {},
        "wallMs": {"total": 0, "model": 0, "tools": 0},
        "headers": 0,
        "stopReasons": {},
        "lastStopReason": None,
        "outcome": None,
        "seed": None,
    }


def test_times_tokens_and_calls_of_a_turn_with_tools_are_summed() -> None:
    clock = Clock()
    clock.at(1000, "turn/start", turn=1)
    clock.at(1010, "step/start", turn=1, step=1)
    clock.at(1020, "request/header", header={"config": {"provider": "p", "model": "m"}})
    clock.chunk(1100, {"type": "usage", "usage": {"inputTokens": 10, "outputTokens": 2}})
    clock.answer(1120, "a", "a", "b", usage={"inputTokens": 10, "outputTokens": 2})
    clock.at(1130, "tool/call", callId="a-0")
    clock.at(1140, "tool/call", callId="a-1")
    clock.result(1150, "a-0", "é")
    clock.result(1180, "a-1", "no", failed=True)
    clock.at(1200, "tool/call", callId="b-2")
    clock.result(1210, "b-2", "12345")
    clock.at(1215, "step/end", turn=1, step=1)
    clock.at(1220, "step/start", turn=1, step=2)
    clock.at(1230, "agent/inbox/spliced", target="next-step")
    clock.answer(1260, usage={"inputTokens": 20, "outputTokens": 3, "cacheReadTokens": 0})
    clock.at(1270, "step/end", turn=1, step=2)
    clock.at(1300, "turn/end", turn=1, reason={"kind": "completed"}, stopReason="completed")
    clock.at(9000, "session/outcome", **{"class": "success", "reward": 1})
    found = clock.metrics()
    assert found["wallMs"] == {"total": 300, "model": 100 + 40, "tools": 50 + 10}
    assert found["tokens"] == {"input": 30, "output": 5, "reasoning": None, "cacheRead": 0}
    assert found["requests"] == {"attempts": 2, "retries": 0}
    assert found["requestsWithoutUsage"] == 0
    assert found["toolCalls"] == {
        "a": {"calls": 2, "errors": 1, "outputBytes": 4},
        "b": {"calls": 1, "errors": 0, "outputBytes": 5},
    }
    assert (found["identity"]["provider"], found["identity"]["model"], found["headers"]) == ("p", "m", 1)
    assert (found["turns"], found["stopReasons"], found["lastStopReason"]) == (
        1,
        {"completed": 1},
        "completed",
    )
    assert found["outcome"] == {"class": "success", "reward": 1}


def test_attempts_that_failed_count_with_what_was_reported_for_them() -> None:
    clock = Clock()
    clock.at(0, "turn/start", turn=1)
    clock.at(0, "step/start", turn=1, step=1)
    clock.chunk(5, {"type": "usage", "usage": {"inputTokens": 7}})
    clock.chunk(10, {"type": "finish", "reason": {"kind": "error"}})
    clock.at(10, "llm/retry", retryId="r1")
    clock.at(500, "llm/retry-started", retryId="r1")
    clock.at(520, "llm/retry", retryId="r2")
    clock.at(900, "llm/retry-started", retryId="r2")
    clock.chunk(950, {"type": "text-delta", "index": 0, "text": "half"})
    clock.answer(960, interrupted=True)
    clock.at(961, "step/end", turn=1, step=1)
    clock.at(962, "turn/end", turn=1, reason={"kind": "aborted"}, stopReason="cancelled")
    found = clock.metrics()
    assert found["requests"] == {"attempts": 3, "retries": 2}
    assert found["requestsWithoutUsage"] == 2
    assert found["tokens"]["input"] == 7
    assert found["tokens"]["output"] is None
    assert found["wallMs"]["model"] == 10 + 20 + 60


def test_a_step_that_never_asked_is_no_request_and_a_cut_call_is_one_that_failed() -> None:
    clock = Clock()
    clock.at(0, "turn/start", turn=1)
    clock.at(0, "step/start", turn=1, step=1)
    clock.at(1, "step/end", turn=1, step=1)
    clock.at(2, "turn/end", turn=1, reason={"kind": "error"}, stopReason="error")
    clock.at(3, "turn/start", turn=2)
    clock.at(3, "step/start", turn=2, step=1)
    clock.answer(4, "bash", truncated=True)
    clock.result(4, "bash-0", "not run", failed=True)
    clock.at(5, "turn/end", turn=2, reason={"kind": "max-tokens"})
    clock.at(6, "turn/start", turn=3)
    clock.at(9, "step/start", turn=3, step=1)
    found = clock.metrics()
    assert found["requests"]["attempts"] == 1
    assert found["toolCalls"] == {"bash": {"calls": 1, "errors": 1, "outputBytes": 7}}
    assert found["stopReasons"] == {"error": 1, "max-tokens": 1}, "a foreign log has the kind only"
    assert found["turns"] == 3
    assert found["wallMs"] == {"total": 2 + 2 + 3, "model": 1, "tools": 0}


def test_calls_that_a_killed_daemon_left_open_end_with_their_turn() -> None:
    clock = Clock()
    clock.at(0, "turn/start", turn=1)
    clock.answer(1, "bash")
    clock.at(2, "tool/call", callId="bash-0")
    clock.at(30, "turn/end", turn=1, reason={"kind": "interrupted"})
    found = clock.metrics()
    assert found["wallMs"]["tools"] == 28
    assert found["lastStopReason"] == "interrupted"


def test_what_a_fork_has_from_its_parent_is_told_apart() -> None:
    clock = Clock()
    clock.at(0, "turn/start", turn=1)
    clock.answer(1, usage={"inputTokens": 5})
    clock.at(2, "turn/end", turn=1, reason={"kind": "completed"})
    clock.at(3, "session/outcome", **{"class": "success"})
    n_seed = len(clock.events)
    clock.at(4, "session/end-seed")
    clock.at(5, "turn/start", turn=2)
    clock.answer(6, usage={"inputTokens": 8})
    found = clock.metrics(header(parent_session="p", seed_length=n_seed))
    assert found["tokens"]["input"] == 13
    assert found["outcome"] is None, "that was the parent's"
    assert found["seed"] == {
        "parentSession": "p",
        "events": n_seed,
        "turns": 1,
        "requests": {"attempts": 1, "retries": 0},
        "requestsWithoutUsage": 0,
        "tokens": {"input": 5, "output": None, "reasoning": None, "cacheRead": None},
    }


def test_a_log_is_measured_to_its_torn_end_or_to_a_seq_and_refused_when_malformed(tmp_path: Path) -> None:
    writer = Writer()
    tool_turn(writer, 1)
    tool_turn(writer, 2)
    file = SessionStore(tmp_path).create(header())
    file.append(writer.events)
    file.close()
    with file.path.open("ab") as log:
        log.write(b'{"type":')
    whole = read_metrics(file.path)
    assert (whole["turns"], whole["requests"]["attempts"], whole["tokens"]["input"]) == (2, 4, 20)
    assert whole["toolCalls"]["bash"] == {"calls": 2, "errors": 0, "outputBytes": 6}
    half = read_metrics(file.path, end=len(writer.events) // 2)
    assert (half["turns"], half["requests"]["attempts"]) == (1, 2)
    seq, time = len(writer.events), START_MS
    bad = Event("tool/result", seq, time, {"message": 5}, surface_op="append").json
    with file.path.open("r+b") as log:
        log.seek(-8, 2)
        log.write(bad + b"\n")
    with pytest.raises(LogCorruptError, match="malformed"):
        read_metrics(file.path)

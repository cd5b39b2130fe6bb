"""Section B of the runtime cases: whatever a model server sends, the turn is that, or it is tried again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from conversations import World, hosted
from cordisd.mock import (
    DONE,
    Answer,
    Cut,
    Hang,
    Pause,
    RawReply,
    call,
    delta,
    error,
    event,
    stream,
    text,
    usage,
)

IDLE_MS = 1500
PATCH = f"""
- id: model
  config:
    provider: deepseek-official
    streamIdleTimeoutMs: {IDLE_MS}
    retryPolicy: {{backoff: {{initialDelayMs: 1, maxDelayMs: 1500, jitterRatio: 0}}}}
- insert:
    - {{id: capped, name: openai, config: {{provider: capped, retryPolicy: {{retrySeconds: 1}}}}}}
    - id: thrifty
      name: openai
      config: {{provider: thrifty, retryPolicy: {{maxRetries: 1, backoff: {{initialDelayMs: 1}}}}}}
"""
HELLO = text("Hé", "llo 😀")
PART = delta({"content": "part"})
HALF_CALL = delta(
    {
        "tool_calls": [
            {"index": 0, "id": "c1", "function": {"name": "bash", "arguments": '{"command":"touch ran"'}}
        ]
    }
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with hosted(tmp_path_factory.mktemp("stream"), PATCH, composition="minimal") as (daemon, model):
        yield World(daemon, model)


def data_of(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event["data"] for event in events if event["type"] == kind]


def said(events: list[dict[str, Any]]) -> str:
    """The text of the last assistant message."""
    content = data_of(events, "assistant/message")[-1]["message"]["content"]
    return "".join(block["text"] for block in content if block["type"] == "text")


def end_of(events: list[dict[str, Any]]) -> dict[str, Any]:
    [end] = data_of(events, "turn/end")
    return end


@pytest.mark.parametrize(
    "fault",
    [
        "comments",
        "pings",
        "no-space",
        "crlf",
        "multi-line",
        "byte-order-mark",
        "split-characters",
        "split-bytes",
    ],
)
def test_odd_events_and_odd_cuts_of_a_stream_change_nothing(world: World, fault: str) -> None:
    """Case 14."""
    plain = world.run(f"plain {fault}", HELLO)
    odd = world.run(f"odd {fault}", replace(HELLO, faults={fault: None}))
    assert said(odd) == "Héllo 😀"
    chunks = [[one["chunk"] for one in data_of(events, "assistant/chunk")] for events in (plain, odd)]
    assert chunks[0] == chunks[1]
    assert end_of(odd)["reason"] == {"kind": "completed"}


def test_comments_re_arm_the_idle_timer_and_produce_nothing(world: World) -> None:
    """Case 14: the stream takes longer than the timer."""
    waiting = [part for _ in range(6) for part in (b": OPENROUTER PROCESSING\n\n", Pause(0.3))]
    events = world.run("processing", stream(*waiting, delta({"content": "late"})))
    assert said(events) == "late"
    assert data_of(events, "llm/retry") == []


def test_a_stream_without_a_finish_reason_keeps_its_text_and_is_flagged(world: World) -> None:
    """Case 16."""
    events = world.run("no finish", RawReply([delta({"content": "hello"}), DONE]))
    [message] = data_of(events, "assistant/message")
    assert said(events) == "hello"
    assert message["finishReason"] is None, "it is told from a clean stop"
    assert "finishReason" not in data_of(world.run("clean stop", HELLO), "assistant/message")[0]
    assert end_of(events)["reason"] == {"kind": "completed"}


@pytest.mark.parametrize(
    ("name", "reply", "expected"),
    [
        (
            "own chunk",
            RawReply([PART, delta({}, "stop"), usage(7, 3), DONE]),
            {"inputTokens": 7, "outputTokens": 3},
        ),
        ("no chunk", RawReply([PART, delta({}, "stop"), DONE]), None),
    ],
)
def test_usage_is_what_was_said_and_nothing_where_it_was_not(
    world: World, name: str, reply: RawReply, expected: dict[str, int] | None
) -> None:
    """Case 16."""
    events = world.run(f"usage in {name}", reply)
    [message] = data_of(events, "assistant/message")
    assert message.get("usage") == expected
    assert world.daemon.request("session/get", {"sessionId": f"usage in {name}"})["usage"] == (expected or {})


def test_an_empty_answer_is_tried_again_by_policy_and_its_usage_stays_in_the_log(world: World) -> None:
    """Case 17."""
    events = world.run("empty", stream(delta({"content": ""})), text("at last"))
    [retry] = data_of(events, "llm/retry")
    assert retry["failure"]["code"] == "EMPTY_RESPONSE"
    assert "EMPTY_RESPONSE" in retry["policyKey"]
    counted = [one["chunk"] for one in data_of(events, "assistant/chunk") if one["chunk"]["type"] == "usage"]
    assert len(counted) == 2, "that of the empty one, too"
    assert said(events) == "at last"


def test_an_answer_of_reasoning_alone_ends_the_turn_and_stays_in_the_history(world: World) -> None:
    """Case 17."""
    events = world.run("thought", Answer(reasoning=["hm"]))
    assert end_of(events)["reason"] == {"kind": "completed"}
    assert (said(events), len(data_of(events, "step/start"))) == ("", 1)
    world.daemon.run("thought", "more")
    assert world.model.received["thought"][1]["messages"][2] == {
        "role": "assistant",
        "content": "",
        "reasoning_content": "hm",
    }


def test_null_content_beside_calls_is_no_empty_answer(world: World) -> None:
    """Case 17."""
    made = replace(call("c1", "bash", {"command": "echo ran"}), faults={"null-content": None})
    world.run("null content", made, text("done"))
    assert world.model.received["null content"][1]["messages"][-1]["content"] == "ran"


def http_date(seconds: float) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


@pytest.mark.parametrize("after", ["1", "date", None])
def test_a_refusal_for_the_rate_is_tried_again_after_what_it_asks_for(
    world: World, after: str | None
) -> None:
    """Case 19."""
    headers = {"retry_after": http_date(1) if after == "date" else after} if after else {}
    name = f"retry after {after}"
    events = world.run(name, error(429, "slow down", **headers), text("ok"))
    [retry] = data_of(events, "llm/retry")
    assert retry["failure"]["code"] == "RATE_LIMIT"
    delays_ms = {"1": (1000, 1000), "date": (0, 1000), None: (1, 1)}[after]
    assert delays_ms[0] <= retry["delayMs"] <= delays_ms[1]
    assert (end_of(events)["turn"], len(data_of(events, "step/start"))) == (1, 1), (
        "a retry is no turn, no step"
    )
    assert world.daemon.request("session/get", {"sessionId": name})["turns"] == 1


def test_an_error_page_is_tried_again_and_a_bad_request_never(world: World) -> None:
    """Case 19."""
    events = world.run("page", error(502, b"<html><h1>Bad Gateway</h1></html>"), text("ok"))
    [retry] = data_of(events, "llm/retry")
    assert (retry["failure"]["code"], retry["failure"]["status"]) == ("SERVER", 502)
    events = world.run("bad", error(400, "no such thing"), text("never"))
    assert data_of(events, "llm/retry") == []
    assert end_of(events)["reason"]["error"]["code"] == "INVALID_REQUEST"


def test_retries_are_capped_in_tries_and_in_seconds(world: World) -> None:
    """Case 19."""
    busy = error(429, "busy", retry_after="1")
    events = world.run("seconds", busy, text("never"), provider="capped")
    assert data_of(events, "llm/retry") == [], "the second try would start after the cap of a second"
    assert end_of(events)["reason"]["error"]["code"] == "RATE_LIMIT"
    events = world.run("tries", *[error(500, "broken")] * 3, provider="thrifty")
    assert [one["retry"] for one in data_of(events, "llm/retry")] == [1]
    assert len(world.model.received["tries"]) == 2


@pytest.mark.parametrize("part", [PART, HALF_CALL], ids=["text", "half a call"])
@pytest.mark.parametrize("end", [Cut("fin"), Cut("rst"), Hang()], ids=["fin", "rst", "silence"])
def test_a_stream_cut_short_is_logged_never_run_and_tried_again(
    world: World, part: bytes, end: Cut | Hang, request: pytest.FixtureRequest
) -> None:
    """Case 20."""
    events = world.run(request.node.name, RawReply([part, Pause(0.02), end]), text("whole"))
    kinds = [event["type"] for event in events]
    [retry] = data_of(events, "llm/retry")
    assert retry["failure"]["code"] in ("STREAM_CLOSED", "TRANSPORT", "TIMEOUT")
    before = events[: kinds.index("llm/retry")]
    assert [one["chunk"]["type"] for one in data_of(before, "assistant/chunk")][:2] == [
        "block-start",
        "text-delta" if part is PART else "tool-call-delta",
    ]
    assert "tool/call" not in kinds and not (world.daemon.cwd / "ran").exists()
    assert said(events) == "whole"
    assert end_of(events)["reason"] == {"kind": "completed"}


def test_a_finish_reason_is_enough_though_done_never_comes(world: World) -> None:
    """Case 20."""
    events = world.run("no done", RawReply([PART, delta({}, "stop"), Cut("fin")]))
    assert (said(events), data_of(events, "llm/retry")) == ("part", [])


@pytest.mark.parametrize("reasoning", ["t", ""])
def test_reasoning_comes_back_in_the_next_request_even_if_it_was_empty(world: World, reasoning: str) -> None:
    """Case 21."""
    head = {"index": 0, "id": "c1", "function": {"name": "bash", "arguments": '{"command":"true"}'}}
    first = stream(
        delta({"reasoning_content": reasoning}), delta({"tool_calls": [head]}), finish="tool_calls"
    )
    name = f"reasoning <{reasoning}>"
    world.run(name, first, text("done"))
    assert world.model.received[name][1]["messages"][2]["reasoning_content"] == reasoning


def test_an_error_object_in_a_stream_is_a_failure_with_its_words(world: World) -> None:
    """Beside case 20: a stream of status 200 that says what went wrong."""
    object_ = event({"error": {"message": "overloaded", "type": "server_error", "code": 503}})
    events = world.run("error object", RawReply([PART, object_, DONE]), text("whole"))
    [retry] = data_of(events, "llm/retry")
    assert (retry["failure"]["code"], retry["failure"]["message"]) == ("SERVER", "overloaded")
    assert said(events) == "whole"

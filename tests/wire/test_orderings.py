"""The order of frames and events (`protocol.md` 2.6), seen by a client of a real daemon."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from cordisd.mock import Hang, MockModelThread, RawReply, call, calls, delta, error, stream, text
from daemon import Daemon, wait_for_file
from gated import gated
from measure import SOON_S


def shape(frame: dict[str, Any]) -> str:
    """A frame in one word: `R` for an answer, `=status`, or the event's type."""
    if "method" not in frame:
        return "R"
    params = frame["params"]
    match frame["method"]:
        case "session.event":
            event = params["event"]
            if event["type"] == "agent/inbox/spliced":
                return "insert" if event["data"]["inserted"] else "claim"
            if event["type"] == "assistant/chunk":
                return event["data"]["chunk"]["type"]
            return str(event["type"])
        case "session.status":
            return f"={params['status']}"
        case "session.completed":
            return "completed"
    raise AssertionError(frame)


def shapes(frames: list[dict[str, Any]]) -> list[str]:
    return [shape(frame) for frame in frames]


def turn_end(events: list[dict[str, Any]]) -> dict[str, Any]:
    [end] = [event["data"] for event in events if event["type"] == "turn/end"]
    data: dict[str, Any] = end
    return data


STREAM = ["block-start", "text-delta", "block-end", "usage", "finish"]
OPENING = ["insert", "=running", "turn/start", "claim", "R", "step/start", "user/message"]
CLOSING = ["step/end", "turn/end", "completed", "=idle"]


def test_a_first_and_a_second_text_turn(tmp_path: Path) -> None:
    with (
        MockModelThread([text("hello"), text("again")]) as mock,
        Daemon(tmp_path, model_url=mock.url) as daemon,
    ):
        daemon.initialize()
        start = len(daemon.frames)
        events = daemon.run("s", "ping")
        assert shapes(daemon.frames[start:]) == [
            *OPENING,
            "session/title",
            "request/header",
            "request/context",
            *STREAM,
            "assistant/message",
            *CLOSING,
        ]
        assert [event["seq"] for event in events] == list(range(len(events)))
        assert events[0]["data"]["inserted"][0]["id"] == daemon.frames[start + 4]["result"]["messageId"]
        assert turn_end(events)["reason"] == {"kind": "completed"}
        start = len(daemon.frames)
        daemon.run("s", "ping")
        assert shapes(daemon.frames[start:]) == [*OPENING, *STREAM, "assistant/message", *CLOSING]


def test_three_pipelined_prompts_run_in_order_with_one_idle(tmp_path: Path) -> None:
    script = [text("one"), text("two"), text("three")]
    with MockModelThread(script) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        daemon.initialize()
        start = len(daemon.frames)
        frames = [
            json.dumps(
                {
                    "jsonrpc": "2.0",
                    "id": f"p{number}",
                    "method": "session/prompt",
                    "params": {"sessionId": "s", "contentBlocks": [{"type": "text", "text": f"p{number}"}]},
                }
            )
            for number in range(3)
        ]
        daemon.send_raw("\n".join([*frames, ""]).encode())
        daemon.wait_idle("s", start)
        seen = daemon.frames[start:]
        assert shapes(seen)[:9] == [
            "insert", "=running", "turn/start", "claim", "R", "insert", "R", "insert", "R",
        ] or shapes(seen)[:9] == [
            "insert", "=running", "turn/start", "claim", "insert", "insert", "R", "R", "R",
        ]  # fmt: skip
        assert [frame["id"] for frame in seen if "id" in frame] == ["p0", "p1", "p2"]
        assert shapes(seen).count("=idle") == shapes(seen).count("=running") == 1
        completed = [frame["params"] for frame in seen if frame.get("method") == "session.completed"]
        ids = [frame["result"]["messageId"] for frame in seen if "id" in frame]
        assert [(one["messageId"], one["turn"]) for one in completed] == list(
            zip(ids, (1, 2, 3), strict=True)
        )
        sent = [request.json["messages"][-1]["content"] for request in mock.requests]
        assert sent == ["p0", "p1", "p2"]


def test_exclusive_tool_calls_alternate_with_their_results(tmp_path: Path) -> None:
    script = [
        calls(("c1", "bash", {"command": "echo one"}), ("c2", "bash", {"command": "echo two"})),
        text("done"),
    ]
    with MockModelThread(script) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        daemon.initialize()
        events = daemon.run("s", "go")
        kinds = [event["type"] for event in events]
        after = kinds.index("assistant/message")
        assert kinds[after : after + 7] == [
            "assistant/message", "tool/call", "tool/result", "tool/call", "tool/result",
            "step/end", "step/start",
        ]  # fmt: skip
        second_step = kinds[after + 6 :]
        assert "user/message" not in second_step
        assert "request/header" not in second_step
        results = [event for event in events if event["type"] == "tool/result"]
        for result, expected in zip(results, ("one", "two"), strict=True):
            [source] = result["sourceEventSeqs"]
            assert events[source]["data"]["callId"] == result["data"]["message"]["source"]["callId"]
            assert result["data"]["message"]["content"][0]["content"] == [{"type": "text", "text": expected}]
        assert [message["role"] for message in mock.requests[1].json["messages"]] == [
            "system", "user", "assistant", "tool", "tool",
        ]  # fmt: skip


def test_a_model_error_ends_the_turn_and_the_queue_goes_on(tmp_path: Path) -> None:
    go = threading.Event()
    with MockModelThread(gated(go, error(400, "no such luck"), text("fine"))) as mock:
        with Daemon(tmp_path, model_url=mock.url) as daemon:
            daemon.initialize()
            start = len(daemon.frames)
            first = daemon.prompt("s", "one")
            second = daemon.prompt("s", "two")
            go.set()
            daemon.wait_idle("s", start)
            seen = shapes(daemon.frames[start:])
            assert seen.count("=idle") == 1
            assert seen.count("assistant/message") == 1
            completed = [
                frame["params"]
                for frame in daemon.frames[start:]
                if frame.get("method") == "session.completed"
            ]
            assert [one["messageId"] for one in completed] == [first, second]
            assert completed[0]["reason"]["kind"] == completed[0]["stopReason"] == "error"
            assert completed[0]["reason"]["error"]["message"] == "no such luck"
            assert completed[0]["reason"]["error"]["code"] == "INVALID_REQUEST"
            assert completed[0]["reason"]["error"]["status"] == 400
            assert completed[1]["reason"] == {"kind": "completed"}


def test_retries_stay_in_their_step_and_the_message_cites_the_last_attempt(tmp_path: Path) -> None:
    cut = stream(delta({"content": "lost"}), finish=None, done=False)
    script = [error(500, "busy"), cut, text("made it")]
    patch = tmp_path / "fast.yml"
    patch.write_text(
        "- id: model\n  config:\n    provider: deepseek-official\n"
        "    retryPolicy: {backoff: {initialDelayMs: 1, maxDelayMs: 2, jitterRatio: 0}}\n"
    )
    work = tmp_path / "w"
    work.mkdir()
    argv_patch = ["--patch", str(patch)]
    with MockModelThread(script) as mock:
        with Daemon(work, model_url=mock.url, argv=serve(*argv_patch)) as daemon:
            daemon.initialize()
            events = daemon.run("s", "go")
            kinds = [event["type"] for event in events]
            assert kinds.count("step/start") == kinds.count("step/end") == 1
            assert [kind for kind in kinds if kind.startswith("llm/")] == [
                "llm/retry",
                "llm/retry-started",
            ] * 2
            message = next(event for event in events if event["type"] == "assistant/message")
            last_start = max(event["seq"] for event in events if event["type"] == "llm/retry-started")
            assert message["sourceEventSeqs"] == list(range(last_start + 1, message["seq"]))
            retry = next(event["data"] for event in events if event["type"] == "llm/retry")
            assert retry["failure"]["code"] == "SERVER"
            assert retry["maxRetries"] == 5
            codes = [event["data"]["failure"]["code"] for event in events if event["type"] == "llm/retry"]
            assert codes == ["SERVER", "STREAM_CLOSED"]


def test_a_call_cut_by_the_length_limit_is_kept_and_never_run(tmp_path: Path) -> None:
    head = {"index": 0, "id": "c1", "function": {"name": "bash", "arguments": '{"command":"touch ran'}}
    script = [stream(delta({"tool_calls": [head]}), finish="length"), text("after")]
    with MockModelThread(script) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        daemon.initialize()
        events = daemon.run("s", "go")
        assert turn_end(events)["reason"] == {"kind": "max-tokens"}
        assert turn_end(events)["stopReason"] == "max_tokens"
        message = next(event["data"] for event in events if event["type"] == "assistant/message")
        assert message["truncated"] is True
        assert message["message"]["content"][0]["arguments"] == '{"command":"touch ran'
        result = next(event["data"] for event in events if event["type"] == "tool/result")
        assert result["error"]["code"] == "TOOL_NOT_STARTED"
        assert not any(event["type"] == "tool/call" for event in events)
        assert not (tmp_path / "ran").exists()
        daemon.run("s", "next")
        sent = mock.requests[1].json["messages"]
        assert [one["role"] for one in sent] == ["system", "user", "assistant", "tool", "user"]
        json.loads(sent[2]["tool_calls"][0]["function"]["arguments"])


def test_an_unknown_prompt_variable_ends_the_turn_without_a_request(tmp_path: Path) -> None:
    with MockModelThread([]) as mock:
        with Daemon(tmp_path, model_url=mock.url, DSH_SYSTEM_PROMPT="Hi {{nope}}") as daemon:
            daemon.initialize()
            events = daemon.run("s", "go")
            kinds = [event["type"] for event in events]
            assert kinds[3:] == ["step/start", "user/message", "session/title", "step/end", "turn/end"]
            failure = turn_end(events)["reason"]["error"]
            assert failure["code"] == "UNKNOWN"
            assert 'in section "deployment:persona"' in failure["message"]
            assert mock.requests == []
            assert daemon.request("rpc.ping") == {}


def test_an_empty_system_prompt_sends_no_system_message(tmp_path: Path) -> None:
    with (
        MockModelThread([text("ok")]) as mock,
        Daemon(tmp_path, model_url=mock.url, DSH_SYSTEM_PROMPT="") as daemon,
    ):
        daemon.initialize()
        events = daemon.run("s", "go")
        assert [message["role"] for message in mock.requests[0].json["messages"]] == ["user"]
        header = next(event["data"]["header"] for event in events if event["type"] == "request/header")
        assert "system" not in header


def test_a_cancel_mid_stream_keeps_what_was_visible_and_closes_the_turn(tmp_path: Path) -> None:
    script = [RawReply([delta({"content": "visible"}), Hang()]), text("next")]
    with MockModelThread(script) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        daemon.initialize()
        start = len(daemon.frames)
        daemon.prompt("s", "go")
        queued = daemon.prompt("s", "never")
        daemon.wait(lambda: "text-delta" in shapes(daemon.frames[start:]))
        done = daemon.request("session/cancel", {"sessionId": "s"})
        assert done == {"cancelled": True, "turn": 1, "dropped": [queued]}
        daemon.wait_idle("s", start)
        events = daemon.events("s", start)
        message = next(event["data"] for event in events if event["type"] == "assistant/message")
        assert message["interrupted"] is True
        assert message["message"]["content"] == [{"type": "text", "text": "visible"}]
        assert [event["type"] for event in events][-2:] == ["step/end", "turn/end"]
        assert turn_end(events)["reason"] == {"kind": "aborted", "reason": {"kind": "user"}}
        assert turn_end(events)["stopReason"] == "cancelled"
        again = daemon.request("session/cancel", {"sessionId": "s"})
        assert again == {"cancelled": False, "dropped": [], "already": "finished"}
        daemon.run("s", "more")
        assert [one["role"] for one in mock.requests[1].json["messages"]] == [
            "system", "user", "assistant", "user",
        ]  # fmt: skip


def test_a_cancel_mid_tool_answers_every_call_at_once_and_the_shell_goes_on(tmp_path: Path) -> None:
    script = [
        calls(
            ("c1", "bash", {"command": "export KEPT=1; touch begun; sleep 60"}),
            ("c2", "bash", {"command": "touch ran"}),
        ),
        call("c3", "bash", {"command": "echo kept=$KEPT"}),
        text("end"),
    ]
    with MockModelThread(script) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        daemon.initialize()
        start = len(daemon.frames)
        daemon.prompt("s", "go")
        wait_for_file(tmp_path / "begun")
        daemon.request("session/cancel", {"sessionId": "s", "queue": "keep"}, timeout_s=SOON_S)
        daemon.wait_idle("s", start)
        results = [event["data"] for event in daemon.events("s", start) if event["type"] == "tool/result"]
        assert [result["error"]["code"] for result in results] == ["ABORTED", "ABORTED_BEFORE_DISPATCH"]
        events = daemon.run("s", "more")
        shown = next(event["data"] for event in events if event["type"] == "tool/result")
        assert shown["message"]["content"][0]["content"][0]["text"] == "kept=1"
        assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("name", "arguments", "message", "code"),
    [
        ("nope", "{}", 'Error: unknown tool "nope"', "UNKNOWN_TOOL"),
        (
            "bash",
            '{"command": "ls',
            'Error: invalid arguments: "arguments" must be an object',
            "INVALID_ARGS",
        ),
        ("bash", "{}", 'Error: invalid arguments: missing required property "command"', "INVALID_ARGS"),
        ("bash", '{"command": 5}', 'Error: invalid arguments: "command" must be a string', "INVALID_ARGS"),
    ],
)
def test_a_call_that_cannot_run_is_an_error_result_and_the_loop_goes_on(
    name: str, arguments: str, message: str, code: str, tmp_path: Path
) -> None:
    with MockModelThread([call("c1", name, arguments), text("sorry")]) as mock:
        with Daemon(tmp_path, model_url=mock.url) as daemon:
            daemon.initialize()
            events = daemon.run("s", "go")
            result = next(event["data"] for event in events if event["type"] == "tool/result")
            block = result["message"]["content"][0]
            assert block["isError"] is True
            assert block["content"][0]["text"].startswith(message)
            assert result["error"]["code"] == code
            assert turn_end(events)["reason"] == {"kind": "completed"}
            assert mock.requests[1].json["messages"][-1]["content"].startswith(message)


def serve(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "cordisd", "serve", "--stdio", "minimal", *arguments]

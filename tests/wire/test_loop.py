"""The agent loop with entries from outside the package, through a real daemon."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from cordisd.mock import Hang, MockModelThread, RawReply, calls, delta, error, stream, text
from daemon import Daemon, module_path
from gated import gated
from measure import PATIENCE_S, SOON_S

TESTS = Path(__file__).parents[1]


def daemon_with(tmp_path: Path, patch: str, url: str, **environment: str) -> Daemon:
    (tmp_path / "patch.yml").write_text(patch)
    work = tmp_path / "w"
    work.mkdir(exist_ok=True)
    argv = [
        sys.executable,
        "-m",
        "cordisd",
        "serve",
        "--stdio",
        "minimal",
        "--patch",
        str(tmp_path / "patch.yml"),
    ]
    return Daemon(work, model_url=url, argv=argv, PYTHONPATH=module_path(TESTS), **environment)


SLEEPERS = "- insert: [{id: sleepers, name: 'loop_entries:SleepersEntry'}]\n"


def story(events: list[dict[str, Any]]) -> list[str]:
    """Calls and results in order: `call c1`, `result c1`."""
    told = []
    for event in events:
        if event["type"] == "tool/call":
            told.append(f"call {event['data']['callId']}")
        elif event["type"] == "tool/result":
            told.append(f"result {event['data']['message']['source']['callId']}")
    return told


def results(events: list[dict[str, Any]]) -> list[str]:
    return [
        event["data"]["message"]["content"][0]["content"][0]["text"]
        for event in events
        if event["type"] == "tool/result"
    ]


def test_parallel_safe_calls_run_together_and_answer_in_model_order(tmp_path: Path) -> None:
    made = calls(
        ("c1", "together", {"after": "c2"}), ("c2", "together", {"seconds": 0.1}), ("c3", "together", {})
    )
    with MockModelThread([made, text("end")]) as mock, daemon_with(tmp_path, SLEEPERS, mock.url) as daemon:
        daemon.initialize()
        events = daemon.run("s", "go")
        assert story(events) == ["call c1", "call c2", "call c3", "result c1", "result c2", "result c3"]
        assert results(events)[1] == "ran beside ['c1', 'c2']"


def test_an_exclusive_call_is_a_barrier_between_groups(tmp_path: Path) -> None:
    made = calls(
        ("c1", "together", {"seconds": 0.1}),
        ("c2", "together", {"seconds": 0.1}),
        ("c3", "alone", {"seconds": 0.1}),
        ("c4", "together", {}),
    )
    with MockModelThread([made, text("end")]) as mock, daemon_with(tmp_path, SLEEPERS, mock.url) as daemon:
        daemon.initialize()
        events = daemon.run("s", "go")
        assert story(events) == [
            "call c1", "call c2", "result c1", "result c2", "call c3", "result c3", "call c4", "result c4",
        ]  # fmt: skip
        assert results(events)[2] == "ran beside ['c3']"


def test_a_cap_of_one_runs_parallel_safe_calls_one_by_one(tmp_path: Path) -> None:
    made = calls(("c1", "together", {"seconds": 0.1}), ("c2", "together", {}))
    patch = SLEEPERS + "- insert: [{id: agent, name: agent, config: {maxParallelToolCalls: 1}}]\n"
    with MockModelThread([made, text("end")]) as mock, daemon_with(tmp_path, patch, mock.url) as daemon:
        daemon.initialize()
        assert story(daemon.run("s", "go")) == ["call c1", "result c1", "call c2", "result c2"]


def test_a_tool_that_breaks_is_an_error_result_and_the_loop_goes_on(tmp_path: Path) -> None:
    made = calls(("c1", "alone", {"seconds": 0.123}), ("c2", "alone", {}))
    with MockModelThread([made, text("end")]) as mock, daemon_with(tmp_path, SLEEPERS, mock.url) as daemon:
        daemon.initialize()
        events = daemon.run("s", "go")
        assert results(events)[0] == "Error: the tool failed: this tool is broken"
        assert results(events)[1] == "ran beside ['c2']"
        assert events[-1]["data"]["reason"] == {"kind": "completed"}


def test_initialize_waits_for_an_entry_that_mounts_slowly_and_identity_stays_visible(tmp_path: Path) -> None:
    patch = (
        "- insert: [{id: slow, name: 'loop_entries:SlowEntry'}]\n- {id: persona, config: {text: Be brief.}}\n"
    )
    with MockModelThread([text("ok")]) as mock, daemon_with(tmp_path, patch, mock.url) as daemon:
        daemon.initialize()
        daemon.run("s", "go")
        assert mock.requests[0].json["messages"][0]["content"] == "I took my time.\n\nBe brief."


def test_a_complete_persona_is_alone_whatever_the_host_adds(tmp_path: Path) -> None:
    patch = "- insert: [{id: slow, name: 'loop_entries:SlowEntry'}]\n"
    with MockModelThread([text("ok")]) as mock, daemon_with(tmp_path, patch, mock.url) as daemon:
        daemon.initialize()
        daemon.run("s", "go")
        assert (
            mock.requests[0].json["messages"][0]["content"]
            == "You are a helpful software engineer assistant."
        )


def test_a_runtime_context_is_told_again_only_when_it_changes(tmp_path: Path) -> None:
    patch = (
        "- insert: [{id: context, name: 'loop_entries:ContextEntry'}]\n"
        "- {id: persona, config: {text: Be brief.}}\n"
    )
    with MockModelThread([text("a"), text("b"), text("c")]) as mock:
        with daemon_with(tmp_path, patch, mock.url) as daemon:
            daemon.initialize()
            for word in ("one", "two", "three"):
                daemon.run("s", word)
        contents = [message["content"] for message in mock.requests[-1].json["messages"][1:]]
        assert contents == [
            "one", "Current runtime context:\n\nfirst", "a", "two", "b",
            "three", "Current runtime context:\n\nsecond",
        ]  # fmt: skip


def test_a_tool_order_that_names_a_missing_tool_fails_the_start(tmp_path: Path) -> None:
    patch = "- insert: [{id: agent, name: agent, config: {toolOrder: [nope, '<unlisted-tools>']}}]\n"
    with daemon_with(tmp_path, patch, "http://127.0.0.1:9") as daemon:
        assert daemon.process.wait(PATIENCE_S) == 2
    assert 'names "nope", which no entry offers; tools: bash, str_replace_editor' in daemon.stderr.decode()


def test_a_tool_order_puts_the_tools_of_the_request_in_order(tmp_path: Path) -> None:
    order = "[together, '<unlisted-tools>', bash]"
    patch = SLEEPERS + f"- insert: [{{id: agent, name: agent, config: {{toolOrder: {order}}}}}]\n"
    with MockModelThread([text("ok")]) as mock, daemon_with(tmp_path, patch, mock.url) as daemon:
        daemon.initialize()
        daemon.run("s", "go")
        names = [tool["function"]["name"] for tool in mock.requests[0].json["tools"]]
        assert names == ["together", "alone", "str_replace_editor", "bash"]


@pytest.mark.parametrize("config", ["{maxParallelToolCalls: 0}", "{toolOrder: [bash]}"])
def test_loop_settings_that_cannot_work_fail_the_start(config: str, tmp_path: Path) -> None:
    patch = f"- insert: [{{id: agent, name: agent, config: {config}}}]\n"
    with daemon_with(tmp_path, patch, "http://127.0.0.1:9") as daemon:
        assert daemon.process.wait(PATIENCE_S) == 2
    assert b'entry "agent"' in daemon.stderr


def test_max_tokens_early_in_a_turn_is_not_taken_back_and_does_not_leak(tmp_path: Path) -> None:
    """A steer joins the step after the cut one, which then ends the turn well: it stays max-tokens."""
    cut, go = stream(delta({"content": "cut"}), finish="length"), threading.Event()
    with MockModelThread(gated(go, cut, text("on"), text("next"))) as mock:
        with daemon_with(tmp_path, "[]", mock.url) as daemon:
            daemon.initialize()
            daemon.prompt("s", "go")
            daemon.wait(lambda: mock.requests)
            daemon.request(
                "session/steer", {"sessionId": "s", "contentBlocks": [{"type": "text", "text": "and"}]}
            )
            go.set()
            daemon.wait_idle("s")
            assert len(mock.requests) == 2
            assert daemon.events("s")[-1]["data"]["reason"] == {"kind": "max-tokens"}
            assert daemon.run("s", "more")[-1]["data"]["reason"] == {"kind": "completed"}


def test_an_image_that_the_model_cannot_take_ends_the_turn_and_not_the_session(tmp_path: Path) -> None:
    with MockModelThread([text("fine"), text("still fine")]) as mock:
        with daemon_with(tmp_path, "[]", mock.url) as daemon:
            daemon.initialize()
            start = len(daemon.frames)
            image = [{"type": "image", "mediaType": "image/png", "data": "AAAA"}]
            daemon.request("session/prompt", {"sessionId": "s", "contentBlocks": image})
            daemon.wait_idle("s", start)
            end = daemon.events("s", start)[-1]["data"]
            assert end["reason"]["error"]["code"] == "UNSUPPORTED_CONTENT"
            daemon.run("s", "words")
            daemon.request("session/close", {"sessionId": "s"})
            daemon.request("session/resume", {"sessionId": "s"})
            daemon.run("s", "again")
            sent = [message["content"] for message in mock.requests[-1].json["messages"]]
            assert sent[1:] == ["words", "fine", "again"]


def test_prompts_that_a_kill_left_in_the_inbox_run_after_the_next_prompt(tmp_path: Path) -> None:
    script = [RawReply([delta({"content": "…"}), Hang()]), text("a"), text("b")]
    with MockModelThread(script) as mock, daemon_with(tmp_path, "[]", mock.url) as daemon:
        daemon.initialize()
        daemon.prompt("s", "killed")
        daemon.prompt("s", "parked")
        daemon.wait(lambda: mock.requests)
        daemon.process.send_signal(signal.SIGKILL)
        daemon.end()
        with daemon_with(tmp_path, "[]", mock.url) as again:
            again.initialize()
            again.request("session/resume", {"sessionId": "s"})
            again.request("rpc.ping")
            events = again.run("s", "wakes")
            assert [event["type"] for event in events[:2]] == ["agent/inbox/spliced", "turn/start"]
            assert events[0]["data"]["inserted"][0]["content"][0]["text"] == "wakes", (
                "a resumed session starts nothing by itself"
            )
            assert sum(event["type"] == "turn/start" for event in events) == 2
            asked = [request.json["messages"][-1]["content"] for request in mock.requests[1:]]
            assert asked == ["parked", "wakes"]


def test_a_given_up_retry_after_ends_the_turn_with_the_providers_words(tmp_path: Path) -> None:
    with MockModelThread([error(429, "slow down, please", retry_after="60")]) as mock:
        with daemon_with(tmp_path, "[]", mock.url) as daemon:
            daemon.initialize()
            events = daemon.run("s", "go")
            failure = events[-1]["data"]["reason"]["error"]
            assert failure["code"] == "RATE_LIMIT"
            assert failure["message"] == "slow down, please"
            assert failure["providerRetryAfterMs"] == 60_000
            assert not any(event["type"] == "llm/retry" for event in events)


def test_a_cancel_during_back_off_ends_the_turn_at_once(tmp_path: Path) -> None:
    busy = error(429, "busy", retry_after="10")
    with MockModelThread([busy] * 9) as mock, daemon_with(tmp_path, "[]", mock.url) as daemon:
        daemon.initialize()
        start = len(daemon.frames)
        daemon.prompt("s", "go")
        daemon.wait(lambda: any(event["type"] == "llm/retry" for event in daemon.events("s")))
        daemon.request("session/cancel", {"sessionId": "s"})
        daemon.wait_idle("s", start, timeout_s=SOON_S)
        events = daemon.events("s", start)
        assert events[-1]["data"]["reason"]["kind"] == "aborted"
        assert not any(event["type"] == "assistant/message" for event in events)


def test_ids_that_a_server_repeats_in_a_later_turn_are_made_unique(tmp_path: Path) -> None:
    again = calls(("c1", "bash", {"command": "echo one"}))
    more = calls(("c1", "bash", {"command": "echo two"}))
    with MockModelThread([again, text("a"), more, text("b")]) as mock:
        with daemon_with(tmp_path, "[]", mock.url) as daemon:
            daemon.initialize()
            daemon.run("s", "go")
            daemon.run("s", "go on")
        messages = mock.requests[-1].json["messages"]
        called = [call["id"] for message in messages for call in message.get("tool_calls", ())]
        answered = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
        assert called == answered
        assert len(set(called)) == 2

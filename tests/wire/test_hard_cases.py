"""Races and faults that were once wrong: each answered, nothing lost, nothing done behind the log's back."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cordisd.mock import Hang, MockModelThread, RawReply, call, calls, delta, error, text
from daemon import Daemon, blocks, clean_environment, wait_for_file
from measure import PATIENCE_S, SOON_S
from processes import children, descendants, gone


def request(number: object, method: str, **params: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode() + b"\n"


def kinds(daemon: Daemon, session: str = "s") -> list[str]:
    return [event["type"] for event in daemon.events(session)]


UNTIL_GO = "until [ -e go ]; do sleep .05; done"


def freeze_log(daemon: Daemon, session: str = "s") -> None:
    """From now on the daemon cannot make its log any longer."""
    [log] = daemon.sessions.glob(f"*/{session}/session.jsonl")
    size = log.stat().st_size
    resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (size, size))


def test_no_tool_runs_that_the_log_does_not_know_of(tmp_path: Path) -> None:
    script = [calls(("c1", "bash", {"command": UNTIL_GO}), ("c2", "bash", {"command": "touch ran"}))]
    with MockModelThread([*script, text("end")]) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        daemon.initialize()
        daemon.prompt("s", "go")
        daemon.wait(lambda: "tool/call" in kinds(daemon))
        time.sleep(0.3)
        freeze_log(daemon)
        (tmp_path / "go").touch()
        daemon.wait_idle("s")
        assert daemon.events("s")[-1]["data"]["reason"]["error"]["code"] == "LOG_WRITE_FAILED"
        assert not (tmp_path / "ran").exists()
        assert len(mock.requests) == 1


def test_nothing_reaches_the_model_that_is_not_in_the_log_and_the_queue_hears_of_it(tmp_path: Path) -> None:
    with MockModelThread([call("c1", "bash", {"command": UNTIL_GO}), text("end")]) as mock:
        with Daemon(tmp_path, model_url=mock.url) as daemon:
            daemon.initialize()
            first = daemon.prompt("s", "go")
            second = daemon.prompt("s", "waits")
            daemon.wait(lambda: "tool/call" in kinds(daemon))
            time.sleep(0.3)
            freeze_log(daemon)
            (tmp_path / "go").touch()
            daemon.wait_idle("s")
            assert len(mock.requests) == 1
            ends = [f["params"] for f in daemon.frames if f.get("method") == "session.completed"]
            assert [(end["messageId"], end["turn"], end["stopReason"]) for end in ends] == [
                (first, 1, "error"),
                (second, None, "error"),
            ]


def test_a_number_that_is_no_number_is_refused_before_it_reaches_a_log(tmp_path: Path) -> None:
    with MockModelThread([text("ok")]) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        daemon.initialize()
        daemon.send_raw(request(1, "session/prompt").replace(b"{}", b'{"sessionId":"s","x":1e999}'))
        daemon.send_raw(b'{"jsonrpc":"2.0","id":1e999,"method":"rpc.ping"}\n')
        daemon.request("rpc.ping")
        answers = [frame for frame in daemon.frames if frame.get("error")]
        assert [(answer["id"], answer["error"]["code"]) for answer in answers] == [(None, -32700)] * 2
        assert daemon.run("s", "fine")[-1]["data"]["reason"] == {"kind": "completed"}


def test_moving_a_session_does_not_wait_for_the_command_that_runs(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    script = [
        call("c1", "bash", {"command": f"touch begun; {UNTIL_GO}; pwd"}),
        call("c2", "bash", {"command": "pwd"}),
        text("end"),
    ]
    with MockModelThread([*script, text("more")]) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        daemon.initialize()
        daemon.prompt("s", "go")
        wait_for_file(tmp_path / "begun")
        daemon.request("session/working-directory/set", {"sessionId": "s", "path": "sub"})
        daemon.prompt("s", "queued")
        assert "tool/result" not in kinds(daemon)
        (tmp_path / "go").touch()
        daemon.wait(lambda: sum(kind == "turn/end" for kind in kinds(daemon)) == 2)
        told = [
            event["data"]["message"]["content"][0]["content"][0]["text"]
            for event in daemon.events("s")
            if event["type"] == "tool/result"
        ]
        assert told == [str(tmp_path), str(tmp_path / "sub")]


@pytest.mark.parametrize("queue", ["keep", "drop"])
def test_a_note_that_waits_for_a_prompt_starts_no_turn(queue: str, tmp_path: Path) -> None:
    with MockModelThread([RawReply([delta({"content": "…"}), Hang()]), text("ok")]) as mock:
        with Daemon(tmp_path, model_url=mock.url) as daemon:
            daemon.initialize()
            daemon.prompt("s", "go")
            daemon.wait(lambda: mock.requests)
            daemon.request("session/working-directory/set", {"sessionId": "s", "path": "/tmp"})
            daemon.request("session/cancel", {"sessionId": "s", "queue": queue})
            daemon.wait_idle("s")
            time.sleep(0.2)
            assert len(mock.requests) == 1
            daemon.run("s", "next")
            contents = [message["content"] for message in mock.requests[1].json["messages"]]
            assert contents[-1] == "next"
            assert ("/tmp" in contents[-2]) == (queue == "keep")


def test_a_prompt_cancelled_in_the_same_breath_is_in_the_history_or_was_dropped(tmp_path: Path) -> None:
    with MockModelThread([text("ok"), text("ok")]) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        daemon.initialize()
        daemon.request("session/create", {"sessionId": "s"})
        prompt = request("p", "session/prompt", sessionId="s", contentBlocks=blocks("first"))
        daemon.send_raw(prompt + request("c", "session/cancel", sessionId="s"))
        daemon.wait_idle("s")
        assert kinds(daemon)[:3] == ["agent/inbox/spliced", "turn/start", "agent/inbox/spliced"]
        assert kinds(daemon)[-1] == "turn/end"
        assert "user/message" in kinds(daemon)
        daemon.run("s", "second")
        sent = [message["content"] for message in mock.requests[-1].json["messages"][1:]]
        assert sent[0] == "first"
        assert sent[-1] == "second"


def test_racing_closes_end_the_session_once(tmp_path: Path) -> None:
    with MockModelThread([call("c1", "bash", {"command": "sleep 60"})]) as mock:
        with Daemon(tmp_path, model_url=mock.url) as daemon:
            daemon.initialize()
            daemon.prompt("s", "go")
            daemon.wait(lambda: "tool/call" in kinds(daemon))
            numbers = [daemon.send("session/close", {"sessionId": "s"}) for _ in range(3)]
            answers = [daemon.wait(lambda n=n: daemon.answer(n)) for n in numbers]
            assert [answer.get("error", {}).get("code") for answer in answers] == [None, -32002, -32002]
            assert daemon.end() == 0
            assert b"Traceback" not in daemon.stderr


def test_a_shutdown_notification_in_a_batch_ends_the_daemon_with_a_trace(tmp_path: Path) -> None:
    with Daemon(tmp_path) as daemon:
        batch = [{"jsonrpc": "2.0", "id": 1, "method": "rpc.ping"}, {"jsonrpc": "2.0", "method": "shutdown"}]
        daemon.send_raw(json.dumps(batch).encode() + b"\n")
        assert json.loads(daemon.next_line()) == [{"jsonrpc": "2.0", "id": 1, "result": {}}]
        assert daemon.process.wait(SOON_S) == 0
        assert daemon.end() == 0
        assert b"a shutdown notification ends the daemon" in daemon.stderr


def test_a_client_that_only_stops_reading_for_good_ends_the_daemon(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "cordisd"],
        cwd=tmp_path,
        env=clean_environment(DSH_SESSION_ROOT=str(tmp_path / "logs")),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdin.write(request(1, "rpc.ping"))
        process.stdin.flush()
        process.stdout.readline()
        process.stdout.close()
        process.stdin.write(request(2, "rpc.ping"))
        process.stdin.flush()
        assert process.wait(SOON_S) == 0
        assert process.stderr.read() == b""


def test_requests_may_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "requests").write_bytes(request(1, "rpc.ping") + request(2, "nope"))
    for name, n_answers in ((str(tmp_path / "requests"), 2), (os.devnull, 0)):
        with open(name, "rb") as file:
            done = subprocess.run(
                [sys.executable, "-m", "cordisd"],
                cwd=tmp_path,
                env=clean_environment(DSH_SESSION_ROOT=str(tmp_path / "logs")),
                stdin=file,
                capture_output=True,
                timeout=PATIENCE_S,
            )
        assert (done.returncode, done.stderr) == (0, b"")
        assert len(done.stdout.splitlines()) == n_answers


def test_a_stopped_guardian_does_not_keep_the_daemon_from_ending(tmp_path: Path) -> None:
    with MockModelThread([call("c1", "bash", {"command": "echo hi"}), text("end")]) as mock:
        with Daemon(tmp_path, model_url=mock.url) as daemon:
            daemon.initialize()
            daemon.run("s", "go")
            [guardian] = children(daemon.process.pid)
            below = descendants(daemon.process.pid)
            assert len(below) >= 2, "the guardian and the session's bash"
            os.kill(guardian, signal.SIGSTOP)
            try:
                assert daemon.request("shutdown") == {}
                assert daemon.process.wait(SOON_S) == 0
                assert gone(below), "the death of the daemon wakes the guardian"
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(guardian, signal.SIGCONT)
            assert daemon.log("s")[-1]["type"] == "turn/end"
        assert b"Traceback" not in daemon.stderr
        assert b"guardian" in daemon.stderr


def test_the_parameters_of_a_request_are_in_the_log(tmp_path: Path) -> None:
    patch = tmp_path / "patch.yml"
    patch.write_text(
        "- id: model\n  config:\n    provider: deepseek-official\n"
        "    parameters: {temperature: 0.5, top_p: 0.9}\n"
    )
    work = tmp_path / "w"
    work.mkdir()
    argv = [sys.executable, "-m", "cordisd", "serve", "--stdio", "minimal", "--patch", str(patch)]
    with MockModelThread([text("ok")]) as mock, Daemon(work, model_url=mock.url, argv=argv) as daemon:
        daemon.initialize()
        events = daemon.run("s", "x")
        header = next(event["data"] for event in events if event["type"] == "request/header")
        assert header["header"]["config"]["temperature"] == 0.5
        assert header["parameters"] == {"temperature": 0.5, "top_p": 0.9}
        assert set(header["sha256"]) == {"system", "tools", "parameters"}
        assert mock.requests[0].json["top_p"] == 0.9


def test_calls_run_though_the_finish_reason_is_stop(tmp_path: Path) -> None:
    head = {"index": 0, "id": "c1", "function": {"name": "bash", "arguments": '{"command":"echo ran"}'}}
    replies = [RawReply([delta({"tool_calls": [head]}), delta({}, "stop")]), text("end")]
    with MockModelThread(replies) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        daemon.initialize()
        daemon.run("s", "go")
        assert mock.requests[1].json["messages"][-1]["content"] == "ran"


def test_a_retry_after_of_a_second_is_waited_for(tmp_path: Path) -> None:
    with MockModelThread([error(429, "slow", retry_after="1"), text("ok")]) as mock:
        with Daemon(tmp_path, model_url=mock.url) as daemon:
            daemon.initialize()
            began = time.monotonic()
            events = daemon.run("s", "go")
            assert time.monotonic() - began >= 1
            [retry] = [event["data"] for event in events if event["type"] == "llm/retry"]
            assert retry["delayMs"] == 1000
            assert events[-1]["data"]["reason"] == {"kind": "completed"}

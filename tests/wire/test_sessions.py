"""Sessions over the wire: made, queued, cancelled, closed, resumed, moved."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from cordisd.mock import Hang, MockModelThread, RawReply, Received, Reply, call, delta, event, text
from daemon import Daemon, blocks
from gated import gated
from measure import PATIENCE_S


def test_concurrent_first_prompts_make_one_session(tmp_path: Path) -> None:
    go = threading.Event()
    script = gated(go, text("a"), text("b"))
    with MockModelThread(script) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        daemon.initialize()
        start = len(daemon.frames)
        numbers = [
            daemon.send("session/prompt", {"sessionId": "s", "contentBlocks": blocks(f"p{number}")})
            for number in range(2)
        ]
        daemon.wait(lambda: all(daemon.answer(number) for number in numbers))
        go.set()
        daemon.wait_idle("s", start)
        assert [frame["id"] for frame in daemon.frames[start:] if "id" in frame] == numbers
        assert len(daemon.request("session/list")["sessions"]) == 1
        assert daemon.request("session/get", {"sessionId": "s"})["turns"] == 2


def test_one_session_does_not_delay_another(tmp_path: Path) -> None:
    def script(request: Received) -> Reply:
        if request.json["messages"][-1]["content"] == "slow":
            return RawReply([delta({"content": "…"}), Hang()])
        return text("quick")

    with MockModelThread(script) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        daemon.initialize()
        daemon.prompt("slow", "slow")
        events = daemon.run("quick", "quick")  # while the other one hangs for good
        assert events[-1]["data"]["stopReason"] == "completed"
        assert daemon.request("session/get", {"sessionId": "slow"})["status"] == "running"


def test_a_repeated_idempotency_key_queues_nothing(tmp_path: Path) -> None:
    with MockModelThread([text("ok")]) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        daemon.initialize()
        first = daemon.prompt("s", "x", idempotencyKey="k")
        daemon.wait_idle("s")
        start = len(daemon.frames)
        assert daemon.prompt("s", "x", idempotencyKey="k") == first
        [told] = [f["params"] for f in daemon.frames[start:] if f.get("method") == "session.completed"]
        assert (told["messageId"], told["stopReason"]) == (first, "completed"), "who asks again is told again"
        assert daemon.request("session/get", {"sessionId": "s"})["turns"] == 1


def test_create_get_and_list_tell_what_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    with MockModelThread([text("ok")]) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        daemon.initialize()
        made = daemon.request(
            "session/create", {"sessionId": "s", "cwd": "w", "model": "other", "rolloutId": "r1"}
        )
        assert made.pop("digest").startswith("sha256:")
        assert made == {"sessionId": "s", "preset": None, "cwd": str(tmp_path / "w")}
        assert "already exists" in daemon.refused("session/create", {"sessionId": "s"})[1]
        events = daemon.run("s", "x")
        got = daemon.request("session/get", {"sessionId": "s"})
        assert got["model"] == "other" == mock.requests[0].json["model"]
        assert got["rolloutId"] == "r1" == daemon.log("s")[0]["cordisd"]["identity"]["rolloutId"]
        assert got["usage"] == {"inputTokens": 20, "outputTokens": 4}
        assert got["lastSeq"] == events[-1]["seq"]
        [listed] = daemon.request("session/list")["sessions"]
        assert (listed["sessionId"], listed["status"], listed["turns"]) == ("s", "idle", 1)
        assert daemon.refused("session/get", {"sessionId": "t"})[0] == -32002


def test_a_steered_message_joins_the_next_step(tmp_path: Path) -> None:
    script = [call("c1", "bash", {"command": "until [ -e go ]; do sleep .02; done"}), text("end")]
    with MockModelThread(script) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        daemon.initialize()
        daemon.prompt("s", "go")
        daemon.wait(lambda: any(event["type"] == "tool/call" for event in daemon.events("s")))
        daemon.request("session/steer", {"sessionId": "s", "contentBlocks": blocks("hurry")})
        (tmp_path / "go").touch()
        daemon.wait_idle("s")
        roles = [(one["role"], one["content"]) for one in mock.requests[1].json["messages"]]
        assert roles[-1] == ("user", "hurry")
        assert roles[-2][0] == "tool"


def test_a_closed_session_leaves_its_log_and_its_id_is_taken(tmp_path: Path) -> None:
    script = [call("c1", "bash", {"command": "sleep 300 & echo $!"}), text("end"), text("more")]
    with MockModelThread(script) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        daemon.initialize()
        events = daemon.run("s", "go")
        result = next(event["data"] for event in events if event["type"] == "tool/result")
        child = int(result["message"]["content"][0]["content"][0]["text"].split()[-1])
        os.kill(child, 0)
        daemon.request("session/close", {"sessionId": "s"})
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)
        assert daemon.refused("session/close", {"sessionId": "s"})[0] == -32002
        code, message = daemon.refused("session/prompt", {"sessionId": "s", "contentBlocks": blocks("x")})
        assert code == -32001
        assert "already exists" in message
        daemon.request("session/resume", {"sessionId": "s"})
        start = len(daemon.frames)
        daemon.run("s", "again")
        assert daemon.events("s", start)[0]["seq"] == len(events) + 1, "one seq is the end of the seed"


def test_a_session_of_an_earlier_process_is_refused_and_can_be_resumed(tmp_path: Path) -> None:
    script = [call("c1", "bash", {"command": "X=1; echo set"}), text("one"), text("two")]
    with MockModelThread(script) as mock:
        with Daemon(tmp_path, model_url=mock.url) as daemon:
            daemon.initialize()
            daemon.run("s", "first")
        with Daemon(tmp_path, model_url=mock.url) as daemon:
            daemon.initialize()
            assert (
                daemon.refused("session/prompt", {"sessionId": "s", "contentBlocks": blocks("x")})[0]
                == -32001
            )
            assert daemon.refused("session/resume", {"sessionId": "t"})[0] == -32002
            daemon.request("session/resume", {"sessionId": "s"})
            events = daemon.run("s", "second")
            assert [event["type"] for event in events][:4] == [
                "agent/inbox/spliced", "turn/start", "agent/inbox/spliced", "step/start",
            ]  # fmt: skip
            assert events[1]["data"]["turn"] == 2
            assert not any(event["type"] in ("request/header", "session/title") for event in events)
        contents = [message["content"] for message in mock.requests[-1].json["messages"]]
        assert contents[1:] == ["first", "", "set", "one", "second"]


def test_a_second_process_cannot_take_a_live_session(tmp_path: Path) -> None:
    with MockModelThread([text("one"), text("two")]) as mock:
        with Daemon(tmp_path, model_url=mock.url) as first, Daemon(tmp_path, model_url=mock.url) as second:
            first.initialize()
            first.run("s", "x")
            second.initialize()
            assert second.refused("session/resume", {"sessionId": "s"})[0] == -32003
            assert (
                second.refused("session/prompt", {"sessionId": "s", "contentBlocks": blocks("x")})[0]
                == -32003
            )
            first.run("s", "y")


def test_an_ignorable_event_of_another_shape_does_not_hinder_a_resume(tmp_path: Path) -> None:
    with MockModelThread([text("a"), text("b")]) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        daemon.initialize()
        last = daemon.run("s", "x")[-1]
        daemon.request("session/close", {"sessionId": "s"})
        [log] = daemon.sessions.glob("*/s/session.jsonl")
        foreign = {"type": "working-directory/change", "seq": last["seq"] + 1, "time": last["time"]}
        with log.open("a") as file:
            file.write(json.dumps({**foreign, "data": {"to": "/x"}, "ignorable": True}) + "\n")
        daemon.request("session/resume", {"sessionId": "s"})
        assert daemon.run("s", "y")[-1]["data"]["reason"] == {"kind": "completed"}


def test_a_killed_daemon_leaves_a_log_that_resumes_with_a_closed_call(tmp_path: Path) -> None:
    script = [call("c1", "bash", {"command": "sleep 300"}), text("back")]
    with MockModelThread(script) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        daemon.initialize()
        daemon.prompt("s", "go")
        daemon.wait(lambda: any(event["type"] == "tool/call" for event in daemon.events("s")))
        seen = daemon.events("s")
        daemon.process.send_signal(signal.SIGKILL)
        daemon.end()
        assert len(daemon.log("s")) >= len(seen), "a client saw an event that is not on disk"
        with Daemon(tmp_path, model_url=mock.url) as again:
            again.initialize()
            again.request("session/resume", {"sessionId": "s"})
            again.run("s", "more")
        sent = mock.requests[-1].json["messages"]
        assert [one["role"] for one in sent] == ["system", "user", "assistant", "tool", "user"]
        ends = [line["data"]["reason"]["kind"] for line in again.log("s") if line["type"] == "turn/end"]
        assert ends == ["interrupted", "completed"]


def test_the_working_directory_moves_the_live_shell_and_tells_the_model(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    script = [
        call("c1", "bash", {"command": "pwd; K=1"}),
        text("one"),
        call("c2", "bash", {"command": "pwd; echo $K"}),
    ]
    with MockModelThread([*script, text("two")]) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        daemon.initialize()
        daemon.run("s", "go")
        where = {"sessionId": "s"}
        assert daemon.request("session/working-directory/get", where) == {"cwd": str(tmp_path)}
        moved = daemon.request("session/working-directory/set", {**where, "path": "sub"})
        assert moved == {"cwd": str(tmp_path / "sub")}
        assert (
            "does not exist" in daemon.refused("session/working-directory/set", {**where, "path": "nope"})[1]
        )
        assert (
            "must not be empty" in daemon.refused("session/working-directory/set", {**where, "path": " "})[1]
        )
        events = daemon.run("s", "again")
        result = next(event["data"] for event in events if event["type"] == "tool/result")
        assert result["message"]["content"][0]["content"][0]["text"] == f"{tmp_path}/sub\n1"
        told = [message["content"] for message in mock.requests[2].json["messages"]][-2:]
        assert str(tmp_path / "sub") in told[0]
        assert told[1] == "again"


def test_a_slow_reader_loses_nothing_and_costs_no_memory(tmp_path: Path) -> None:
    """50 MB of events while nobody reads: served from the log afterwards, in order and without a gap."""
    n_turns, n_pieces = 25, 40
    # Answers that fail at their end, so that no history keeps them in memory.
    flood = [delta({"content": "x" * 50_000})] * n_pieces
    refused = event({"error": {"message": "enough", "type": "invalid_request_error", "code": 400}})
    with (
        MockModelThread([RawReply([*flood, refused])] * n_turns) as mock,
        Daemon(tmp_path, model_url=mock.url) as daemon,
    ):
        daemon.pause_reading()
        daemon.initialize()
        for _ in range(n_turns):
            daemon.send("session/prompt", {"sessionId": "s", "contentBlocks": blocks("flood")})
        logs = tmp_path.parent / f"{tmp_path.name}-sessions"
        deadline = time.monotonic() + PATIENCE_S
        while sum(path.read_bytes().count(b'"turn/end"') for path in logs.glob("*/s/*")) < n_turns:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        status = Path(f"/proc/{daemon.process.pid}/status").read_text()
        rss_mb = int(status.split("VmRSS:")[1].split()[0]) / 1024
        daemon.wait_idle("s", timeout_s=PATIENCE_S)
        events = daemon.events("s")
        assert [event["seq"] for event in events] == list(range(len(events)))
        n_deltas = sum(event["data"].get("chunk", {}).get("type") == "text-delta" for event in events)
        assert n_deltas == n_turns * n_pieces
        assert [frame["method"] for frame in daemon.frames[-2:]] == ["session.completed", "session.status"]
        daemon.end()
        assert rss_mb < 90, f"{rss_mb} MB while a reader was behind"


def test_threads_of_a_client_may_write_at_once(tmp_path: Path) -> None:
    """Frames of many sessions interleave, never mix."""

    def answer(request: Received) -> Reply:
        return text(*[request.json["messages"][-1]["content"]] * 20)

    with MockModelThread(answer) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        daemon.initialize()
        lock = threading.Lock()

        def ask(number: int) -> None:
            with lock:
                daemon.send(
                    "session/prompt", {"sessionId": f"s{number}", "contentBlocks": blocks(f"<{number}>")}
                )

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for number in range(32):
            daemon.wait_idle(f"s{number}")
            message = next(e["data"] for e in daemon.events(f"s{number}") if e["type"] == "assistant/message")
            assert message["message"]["content"][0]["text"] == f"<{number}>" * 20


def test_a_composition_without_persistence_keeps_nothing(tmp_path: Path) -> None:
    patch = tmp_path / "patch.yml"
    patch.write_text("- {id: sessions, disabled: true}\n")
    work = tmp_path / "w"
    work.mkdir()
    argv = [sys.executable, "-m", "cordisd", "serve", "--stdio", "minimal", "--patch", str(patch)]
    with MockModelThread([text("ok")]) as mock, Daemon(work, model_url=mock.url, argv=argv) as daemon:
        daemon.initialize()
        daemon.run("s", "x")
        assert daemon.refused("session/resume", {"sessionId": "t"})[0] == -32002
    assert not daemon.sessions.exists()


def test_every_line_of_a_log_is_what_the_client_saw(tmp_path: Path) -> None:
    script = [call("c1", "bash", {"command": "printf 'a\\tb\\u2028'"}), text("de", "lt", "as", "…")]
    with MockModelThread(script) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        daemon.initialize()
        daemon.run("s", "x")
        [path] = daemon.sessions.glob("*/s/session.jsonl")
        assert path.read_bytes().isascii()
        stored = [line for line in daemon.log("s")[1:] if "seq" in line]
        by_seq = {event["seq"]: event for event in daemon.events("s")}
        assert all(json.dumps(by_seq[line["seq"]]) == json.dumps(line) for line in stored)

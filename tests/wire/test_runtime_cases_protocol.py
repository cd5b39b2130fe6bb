"""Section A of the runtime cases: frames, noise, and control behind work that nobody reads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conversations import python_path
from cordisd.mock import MockModelThread, RawReply, Received, Reply, delta, text
from cordisd_sdk import Client
from daemon import Daemon, clean_environment, wait_for_file
from measure import SOON_S

WHERE = {"cwd": ".", "provider": "deepseek-official", "model": "m"}
MIB = 2**20


def frame(number: object, method: str, params: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode() + b"\n"


@pytest.mark.parametrize("number", [0, "0"])
def test_the_first_request_may_have_the_id_zero(number: object, tmp_path: Path) -> None:
    """Case 3: some clients begin to count there."""
    with Daemon(tmp_path) as daemon:
        daemon.send_raw(frame(number, "initialize", WHERE))
        daemon.wait(lambda: daemon.frames)
        [answer] = daemon.frames
        assert (type(answer["id"]), answer["id"]) == (type(number), number)
        assert answer["result"]["serverInfo"]["name"] == "cordisd"


def test_a_prompt_before_initialize_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    """Case 6."""
    with MockModelThread([]) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        prompt = {"sessionId": "s", "contentBlocks": [{"type": "text", "text": "x"}]}
        code, message = daemon.refused("session/prompt", prompt)
        assert code == -32004 and "initialize" in message
        daemon.request("initialize", WHERE)
        assert daemon.request("session/list")["sessions"] == []
        assert (mock.requests, daemon.sessions.exists()) == ([], False)


def test_a_prompt_of_eight_megabytes_is_taken_and_a_line_over_the_limit_is_one_error(tmp_path: Path) -> None:
    """Case 7."""
    sizes = []

    def reply(request: Received) -> Reply:
        sizes.append(len(request.json["messages"][-1]["content"]))
        return text("ok")

    with MockModelThread(reply, keeps_requests=False) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        limit_bytes = daemon.initialize()["maxFrameBytes"]
        daemon.run("s", "x" * 8 * MIB)
        start = len(daemon.frames)
        blocks = [{"type": "text", "text": "y" * 100 * MIB}]
        daemon.send_raw(frame("huge", "session/prompt", {"sessionId": "s", "contentBlocks": blocks}))
        daemon.request("rpc.ping")
        [refused, _] = daemon.frames[start:]
        assert (refused["id"], refused["error"]["code"]) == (None, -32600)
        assert str(limit_bytes) in refused["error"]["message"]
        daemon.run("s", "z")
        assert sizes == [8 * MIB, 1]


def test_a_lone_surrogate_of_the_model_is_an_escape_everywhere(tmp_path: Path) -> None:
    """Case 9; decided otherwise than there: on the model's wire it survives, too."""
    broken = RawReply(
        [b'data: {"choices":[{"delta":{"content":"bad \\ud83d end"},"finish_reason":"stop"}]}\n\n']
    )
    with MockModelThread([broken, text("ok")]) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        daemon.initialize()
        events = daemon.run("s", "x")
        said = next(event["data"]["message"] for event in events if event["type"] == "assistant/message")
        assert said["content"] == [{"type": "text", "text": "bad \ud83d end"}]
        assert b"bad \\ud83d end" in next(daemon.sessions.glob("*/s/session.jsonl")).read_bytes()
        daemon.run("s", "y")
        assert b'"bad \\ud83d end"' in mock.requests[1].body
        assert mock.requests[1].json["messages"][2]["content"] == "bad \ud83d end"


def noisy(tmp_path: Path, by: str) -> Path:
    """A composition that makes noise of that kind at its start."""
    path = tmp_path / "noisy.cordis.yml"
    minimal = (Path(__file__).parents[2] / "minimal.cordis.yml").read_text()
    path.write_text(f"{minimal}\n- {{id: noise, name: 'noise_entries:NoiseEntry', config: {{by: {by}}}}}\n")
    return path


def test_a_daemon_whose_stderr_nobody_reads_answers_all_the_same(tmp_path: Path) -> None:
    """Case 11: what does not fit is left out, and what is said is ASCII."""
    with subprocess.Popen(
        [sys.executable, "-m", "cordisd", "serve", "--stdio", str(noisy(tmp_path, "log"))],
        cwd=tmp_path,
        env=clean_environment(DSH_SESSION_ROOT=str(tmp_path / "logs"), PYTHONPATH=python_path()),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdin.write(frame(1, "initialize", WHERE))
        process.stdin.flush()
        assert b"serverInfo" in process.stdout.readline()
        process.stdin.close()
        noise = process.stderr.read()
        assert process.wait(SOON_S) == 0
    assert noise.isascii() and rb"WARNING: warn \udcff \xe9 0 xxx" in noise
    assert len(noise) < 200_000


def test_the_client_drains_a_noisy_stderr_and_keeps_its_last_words(tmp_path: Path) -> None:
    """Case 11."""
    composition = noisy(tmp_path, "write")
    heard: list[str] = []
    environment = {"PYTHONPATH": python_path()}
    with Client(
        cwd=tmp_path,
        composition=composition,
        session_root=tmp_path / "logs",
        env=environment,
        on_stderr=heard.append,
    ) as client:
        client.ping()
    assert client.stderr_tail.splitlines()[-1] == "x" * 99
    assert heard[0] == "warn \ufffd" and len(heard) == 2001


def test_control_behind_work_and_unread_output_is_answered_in_order(tmp_path: Path) -> None:
    """Case 12: 200 kB wait to be read, a tool runs; cancel, cancel, and once more after the end."""
    flood = [delta({"content": "x" * 50_000})] * 4
    head = {
        "index": 0,
        "id": "c1",
        "function": {"name": "bash", "arguments": '{"command":"touch begun; sleep 600"}'},
    }
    working = RawReply([*flood, delta({"tool_calls": [head]}), delta({}, "tool_calls")])
    with MockModelThread([working]) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        daemon.pause_reading()
        daemon.initialize()
        blocks = [{"type": "text", "text": "go"}]
        daemon.send("session/prompt", {"sessionId": "s", "contentBlocks": blocks})
        wait_for_file(tmp_path / "begun")
        numbers = [daemon.send("session/cancel", {"sessionId": "s"}) for _ in range(2)]
        daemon.resume_reading()

        def answer(number: int) -> Any:
            return daemon.wait(lambda: daemon.answer(number), SOON_S)["result"]

        first, second = map(answer, numbers)
        assert first == {"cancelled": True, "turn": 1, "dropped": []}
        assert second in (first, {"cancelled": False, "dropped": [], "already": "finished"})
        daemon.wait_idle("s")
        again = daemon.request("session/cancel", {"sessionId": "s"})
        assert again == {"cancelled": False, "dropped": [], "already": "finished"}
        kinds = [event["type"] for event in daemon.events("s")]
        assert kinds.count("tool/call") == kinds.count("tool/result") == 1
        assert daemon.events("s")[-1]["data"]["reason"] == {"kind": "aborted", "reason": {"kind": "user"}}
        assert [event["seq"] for event in daemon.events("s")] == list(range(len(kinds)))
        assert daemon.request("shutdown") == {}

"""Every prompt is told of; what is told of a failed log is marked, and nobody takes it for what is stored."""

from __future__ import annotations

import json
import resource
from pathlib import Path

from cordisd.mock import Hang, MockModelThread, RawReply, call, delta, text
from daemon import Daemon

HANGS = RawReply([delta({"content": "…"}), Hang()])


def completions(daemon: Daemon) -> list[tuple[str, int | None, str]]:
    return [
        (frame["params"]["messageId"], frame["params"]["turn"], frame["params"]["stopReason"])
        for frame in daemon.frames
        if frame.get("method") == "session.completed"
    ]


def test_a_prompt_that_is_dropped_is_told_of_as_cancelled(tmp_path: Path) -> None:
    with MockModelThread([HANGS]) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        daemon.initialize()
        running = daemon.prompt("s", "go")
        waiting = [daemon.prompt("s", "later"), daemon.prompt("s", "last")]
        assert daemon.request("session/get", {"sessionId": "s"})["waiting"] == 2
        daemon.request("session/cancel", {"sessionId": "s"})
        daemon.wait_idle("s")
        assert daemon.request("session/get", {"sessionId": "s"})["waiting"] == 0
        ends = completions(daemon)
        assert sorted(ends) == sorted(
            [(running, 1, "cancelled"), *((one, None, "cancelled") for one in waiting)]
        )


def test_a_shutdown_tells_of_the_prompts_that_it_drops(tmp_path: Path) -> None:
    with MockModelThread([HANGS]) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        daemon.initialize()
        daemon.prompt("s", "go")
        waiting = daemon.prompt("s", "later")
        daemon.request("shutdown")
        assert (waiting, None, "cancelled") in completions(daemon)


def test_what_is_told_after_a_log_has_failed_is_marked_and_not_counted(tmp_path: Path) -> None:
    script = [call("c1", "bash", {"command": "until [ -e go ]; do sleep .05; done"}), text("never")]
    with MockModelThread(script) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        daemon.initialize()
        daemon.prompt("s", "go")
        daemon.wait(lambda: any(event["type"] == "tool/call" for event in daemon.events("s")))
        [log] = daemon.sessions.glob("*/s/session.jsonl")
        size = log.stat().st_size
        resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (size, size))
        (tmp_path / "go").touch()
        daemon.wait_idle("s")
        got = daemon.request("session/get", {"sessionId": "s"})
        told = [frame["params"] for frame in daemon.frames if frame.get("method") == "session.event"]
        stored = [one["event"] for one in told if "stored" not in one]
        lost = [one for one in told if "stored" in one]
        written = [json.loads(line) for line in log.read_bytes().splitlines()[1:]]
        assert [event["type"] for event in stored if event["type"] != "assistant/chunk"] == [
            event["type"]
            for event in written
            if not event["type"].endswith("-chunks") and event["type"] != "assistant/chunk"
        ]
        assert {one["stored"] for one in lost} == {False}
        assert [one["event"]["type"] for one in lost][-1] == "turn/end"
        assert stored[-1]["seq"] == got["lastSeq"]
        assert got["failure"].startswith(f"cannot write the session log {log}: ")

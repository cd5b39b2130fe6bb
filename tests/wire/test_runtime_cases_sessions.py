"""Section E of the runtime cases: many sessions at once, and ids that are asked for twice."""

from __future__ import annotations

import json
from pathlib import Path

from cordisd.mock import MockModelThread, Received, Reply, call, text
from daemon import Daemon
from measure import comes

N_SESSIONS = 64


def test_64_sessions_at_once_all_wait_together(tmp_path: Path) -> None:
    """Case 43: none of their commands ends before all have begun."""

    def reply(request: Received) -> Reply:
        prompt, *results = (m["content"] for m in request.json["messages"] if m["role"] in ("user", "tool"))
        command = f"touch begun.{prompt}; until [ -e all ]; do sleep .2; done; echo {prompt}"
        return text("end") if results else call("c1", "bash", {"command": command})

    with MockModelThread(reply) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        daemon.initialize()
        names = [f"s{number}" for number in range(N_SESSIONS)]
        for name in names:
            blocks = [{"type": "text", "text": name}]
            daemon.send("session/prompt", {"sessionId": name, "contentBlocks": blocks})
        assert comes(lambda: len(list(tmp_path.glob("begun.*"))) == N_SESSIONS)
        (tmp_path / "all").touch()
        for name in names:
            daemon.wait_idle(name)
            [result] = [event["data"] for event in daemon.events(name) if event["type"] == "tool/result"]
            assert result["message"]["content"][0]["content"][0]["text"] == name


def test_the_same_new_id_asked_for_twice_at_once_is_one_session(tmp_path: Path) -> None:
    """Case 43."""
    with Daemon(tmp_path) as daemon:
        daemon.initialize()
        frames = [
            {"jsonrpc": "2.0", "id": one, "method": "session/create", "params": {"sessionId": "s"}}
            for one in ("first", "second")
        ]
        daemon.send_raw(b"".join(json.dumps(frame).encode() + b"\n" for frame in frames))
        daemon.wait(lambda: {"first", "second"} <= {frame.get("id") for frame in daemon.frames})
        answers = {frame["id"]: frame for frame in daemon.frames if "id" in frame}
        assert answers["first"]["result"]["sessionId"] == "s"
        assert answers["second"]["error"]["code"] == -32001
        assert [one["sessionId"] for one in daemon.request("session/list")["sessions"]] == ["s"]

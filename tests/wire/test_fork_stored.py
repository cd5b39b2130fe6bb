"""Forks of sessions that are not live here: closed, of an earlier process, or open in another one."""

from __future__ import annotations

import asyncio
import signal
import threading
from pathlib import Path
from typing import Any

from cordisd.mock import Hang, MockModelThread, RawReply, Received, Reply, call, delta, text
from daemon import Daemon
from frozen_presets import freeze, host_daemon, lock, refused


def fork(daemon: Daemon, child: str, **params: object) -> dict[str, Any]:
    return daemon.request("session/fork", {"sessionId": "s", "newSessionId": child, **params})


def contents(request: Received) -> list[str]:
    return [one["content"] for one in request.json["messages"] if one["role"] != "system"]


def log_bytes(daemon: Daemon, session: str) -> bytes:
    [path] = daemon.sessions.glob(f"*/{session}/session.jsonl")
    return path.read_bytes()


def test_a_stored_session_is_forked_as_it_would_go_on_and_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    script = [call("c1", "bash", {"command": "echo set"}), text("one"), *[text("next")] * 2]
    with MockModelThread(script) as mock:
        with Daemon(tmp_path, model_url=mock.url) as daemon:
            daemon.initialize()
            daemon.request("session/create", {"sessionId": "s", "maxTokens": 9, "rolloutId": "r"})
            daemon.run("s", "first")
            daemon.request("session/working-directory/set", {"sessionId": "s", "path": "sub"})
        before = log_bytes(daemon, "s")
        with Daemon(tmp_path, model_url=mock.url) as daemon:
            daemon.initialize(model="not-used-so-far")
            made = fork(daemon, "child")
            assert made["cwd"] == str(tmp_path / "sub")
            daemon.run("child", "and then?")
            assert log_bytes(daemon, "s") == before
            daemon.request("session/resume", {"sessionId": "s"})
            daemon.run("s", "and then?")
    of_child, of_parent = mock.requests[2:]
    assert of_child.body == of_parent.body
    assert of_child.json["max_tokens"] == 9
    child, parent = log_bytes(daemon, "child"), before
    assert child.split(b"\n", 1)[1].startswith(parent.split(b"\n", 1)[1]), "the seed is copied to the byte"


def test_a_session_that_was_killed_in_a_turn_is_forked_where_the_last_one_ended(tmp_path: Path) -> None:
    script = [text("one"), RawReply([delta({"content": "…"}), Hang()]), text("two")]
    with MockModelThread(script) as mock:
        with Daemon(tmp_path, model_url=mock.url) as daemon:
            daemon.initialize()
            daemon.run("s", "first")
            daemon.prompt("s", "hangs")
            daemon.wait(lambda: len(mock.requests) == 2)
            daemon.process.send_signal(signal.SIGKILL)
            daemon.end()
        with Daemon(tmp_path, model_url=mock.url) as daemon:
            daemon.initialize()
            before = log_bytes(daemon, "s")
            fork(daemon, "child")
            assert log_bytes(daemon, "s") == before, "not even repaired"
            daemon.run("child", "instead")
            assert contents(mock.requests[2]) == ["first", "one", "instead"]


def test_a_session_of_another_process_is_forked_where_its_last_turn_ended(tmp_path: Path) -> None:
    with MockModelThread([text("one"), text("two"), text("three")]) as mock:
        with Daemon(tmp_path, model_url=mock.url) as first, Daemon(tmp_path, model_url=mock.url) as second:
            first.initialize()
            second.initialize()
            first.run("s", "first")
            steering = [{"type": "text", "text": "later"}]
            first.request("session/steer", {"sessionId": "s", "contentBlocks": steering})
            fork(second, "child")
            assert first.refused("session/fork", {"sessionId": "s", "newSessionId": "child"})[0] == -32003
            second.run("child", "on")
            assert contents(mock.requests[1]) == ["first", "one", "on"]
            first.run("s", "second")
            assert contents(mock.requests[2]) == ["first", "one", "later", "second"]


def test_prompts_that_wait_in_the_parent_are_cancelled_in_the_fork(tmp_path: Path) -> None:
    is_queued = threading.Event()

    async def script(request: Received) -> Reply:
        match contents(request)[-1]:
            case "first":
                while not is_queued.is_set():
                    await asyncio.sleep(0.01)
                return text("one")
            case "waits":
                return RawReply([delta({"content": "…"}), Hang()])
        return text("fine")

    with MockModelThread(script) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        daemon.initialize()
        daemon.prompt("s", "first")
        daemon.prompt("s", "waits")
        is_queued.set()
        daemon.wait(lambda: len(mock.requests) == 2)
        fork(daemon, "child")
        daemon.run("child", "mine")
        assert contents(mock.requests[2]) == ["first", "one", "mine"]
        seed_length = daemon.log("child")[0]["seedLength"]
        asked = {"sessionId": "child", "from": seed_length, "limit": 2}
        mark, cancelled = daemon.request("session/events", asked)["events"]
        assert mark["type"] == "session/end-seed"
        assert cancelled["data"].pop("outcome") == "canceled"
        assert cancelled["data"] == {"target": "next-turn", "start": 0, "removedCount": 1, "inserted": []}
        assert daemon.events("child")[0]["seq"] == seed_length + 2


def test_a_frozen_session_is_forked_with_what_was_locked_or_not_at_all(tmp_path: Path) -> None:
    root = tmp_path / "presets"
    path = freeze(root, "one-v1")
    with (
        MockModelThread([text("one"), text("two")]) as mock,
        host_daemon(tmp_path / "w", root, mock.url) as daemon,
    ):
        daemon.initialize(preset="one-v1")
        lock(daemon, root, "one-v1")
        parent = daemon.request("session/create", {"sessionId": "s"})
        daemon.run("s", "first")
        made = fork(daemon, "child")
        assert made["profile"] == parent["profile"]
        daemon.run("child", "on")
        verified = [row["data"]["id"] for row in daemon.log("child") if row["type"] == "profile/verified"]
        assert verified == ["one-v1"], "once, in the seed: its trajectory is one segment"
        daemon.request("session/close", {"sessionId": "s"})
        path.write_text(path.read_text().replace("300000", "1"))
        asked = {"sessionId": "s", "newSessionId": "late"}
        code, name, _ = refused(daemon, "session/fork", asked)
        assert (code, name) == (2301, "profile_hash_mismatch")
        assert not list(daemon.sessions.glob("*/late"))

"""Ids of sessions and keys of prompts: when they are taken, free again, and remembered."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from cordisd.mock import Hang, MockModelThread, RawReply, delta, text
from daemon import Daemon, blocks


def test_a_creation_that_failed_can_be_tried_again(tmp_path: Path) -> None:
    with MockModelThread([text("ok")]) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        daemon.initialize()
        daemon.sessions.write_text("in the way")
        code, _ = daemon.refused("session/prompt", {"sessionId": "s", "contentBlocks": blocks("x")})
        assert code <= -32010
        daemon.sessions.unlink()
        assert daemon.run("s", "x")[-1]["data"]["reason"] == {"kind": "completed"}


def test_a_key_is_remembered_over_a_restart_unless_its_turn_was_cut(tmp_path: Path) -> None:
    script = [text("done"), RawReply([delta({"content": "…"}), Hang()]), text("again")]
    with MockModelThread(script) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        daemon.initialize()
        first = daemon.prompt("s", "one", idempotencyKey="A")
        daemon.wait_idle("s")
        cut = daemon.prompt("s", "two", idempotencyKey="B")
        daemon.wait(lambda: len(mock.requests) == 2)
        daemon.process.send_signal(signal.SIGKILL)
        daemon.end()
        with Daemon(tmp_path, model_url=mock.url) as again:
            again.initialize()
            again.request("session/resume", {"sessionId": "s"})
            assert again.prompt("s", "one", idempotencyKey="A") == first
            [told] = [f["params"] for f in again.frames if f.get("method") == "session.completed"]
            assert told["messageId"] == first
            assert again.prompt("s", "two", idempotencyKey="B") != cut
            again.wait_idle("s")
            assert len(mock.requests) == 3


def test_the_key_of_a_dropped_prompt_may_be_used_again(tmp_path: Path) -> None:
    with MockModelThread([RawReply([delta({"content": "…"}), Hang()]), text("ok")]) as mock:
        with Daemon(tmp_path, model_url=mock.url) as daemon:
            daemon.initialize()
            daemon.prompt("s", "runs")
            first = daemon.prompt("s", "waits", idempotencyKey="k")
            daemon.wait(lambda: mock.requests)
            assert daemon.request("session/cancel", {"sessionId": "s"})["dropped"] == [first]
            daemon.wait_idle("s")
            assert daemon.prompt("s", "waits", idempotencyKey="k") != first
            daemon.wait(lambda: len(mock.requests) == 2)


def test_what_a_session_was_created_with_survives_a_resume(tmp_path: Path) -> None:
    with MockModelThread([text("a"), text("b")]) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        daemon.initialize(model="base")
        daemon.request("session/create", {"sessionId": "s", "model": "ckpt-7", "maxTokens": 64})
        daemon.run("s", "x")
        daemon.request("session/close", {"sessionId": "s"})
        daemon.request("session/resume", {"sessionId": "s"})
        daemon.run("s", "y")
        asked = [(request.json["model"], request.json["max_tokens"]) for request in mock.requests]
        assert asked == [("ckpt-7", 64)] * 2


def test_an_empty_session_leaves_its_id_free(tmp_path: Path) -> None:
    with MockModelThread([text("ok")]) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        daemon.initialize()
        daemon.request("session/create", {"sessionId": "s"})
        daemon.request("session/close", {"sessionId": "s"})
        assert daemon.run("s", "x")[-1]["data"]["reason"] == {"kind": "completed"}


def test_a_directory_that_does_not_exist_makes_no_session(tmp_path: Path) -> None:
    with Daemon(tmp_path) as daemon:
        daemon.initialize(cwd=str(tmp_path / "typo"))
        code, message = daemon.refused("session/prompt", {"sessionId": "s", "contentBlocks": blocks("x")})
        assert code == -32602
        assert str(tmp_path / "typo") in message
        assert daemon.request("session/list")["sessions"] == []


@pytest.mark.parametrize("length", [240, 250, 255])
def test_an_id_may_be_as_long_as_a_file_name(length: int, tmp_path: Path) -> None:
    with MockModelThread([text("ok")]) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        daemon.initialize()
        assert daemon.run("i" * length, "x")[-1]["data"]["reason"] == {"kind": "completed"}

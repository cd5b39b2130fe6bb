"""A daemon that lets idle sessions go from memory; to its clients and its model nothing has changed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from conversations import Conversations, hosted
from cordisd.mock import Answer, call, text
from daemon import Daemon
from measure import PATIENCE_S

WATCH = {"id": "watch", "name": "memory_entries:WatchEntry"}


@contextmanager
def evicting(folder: Path, after_s: float | None = 0.02) -> Iterator[tuple[Daemon, Conversations]]:
    """A daemon with that `evictAfterSeconds`, and a tool that tells which sessions it has evicted."""
    rows = [{"insert": [WATCH]}, {"id": "sessions", "config": {"evictAfterSeconds": after_s}}]
    with hosted(folder, json.dumps(rows), composition="minimal") as found:
        yield found


def wait_evicted(daemon: Daemon, model: Conversations, *names: str) -> None:
    """Wait until these sessions have given up their past; another session looks."""
    end = time.monotonic() + PATIENCE_S
    while True:
        model.plan("watch", call("w", "evicted", {}), text("seen"))
        events = daemon.run("watch", "watch", PATIENCE_S)
        [told] = [event["data"]["message"] for event in events if event["type"] == "tool/result"]
        if set(names) <= set(told["content"][0]["content"][0]["text"].split(",")):
            return
        assert time.monotonic() < end
        time.sleep(0.02)


def bash(command: str) -> Answer:
    return call("c1", "bash", {"command": command})


def talk(daemon: Daemon, model: Conversations, *, evicts: bool) -> list[bytes]:
    """A conversation of four turns with a shell that lives on; the bodies of its requests."""
    daemon.request("session/create", {"sessionId": "s", "limits": {"maxSessionModelTokens": 1000}})
    model.plan("0", bash("X=7; echo one"), text("a"), bash("echo $X"), text("\ud800"), text(""), text("c"))
    for number in range(4):
        daemon.run("s", str(number), PATIENCE_S)
        if evicts:
            wait_evicted(daemon, model, "s")
        if number == 1:
            steered = [{"type": "text", "text": "by the way"}]
            daemon.request("session/steer", {"sessionId": "s", "contentBlocks": steered})
            daemon.request("session/working-directory/set", {"sessionId": "s", "path": "/tmp"})
    return model.bodies["0"]


def test_every_request_is_as_if_the_session_had_never_been_evicted(tmp_path: Path) -> None:
    bodies, gots, logs = [], [], []
    for after_s in (None, 0.02):
        folder = tmp_path / str(after_s)
        folder.mkdir()
        with evicting(folder, after_s) as (daemon, model):
            bodies.append(talk(daemon, model, evicts=after_s is not None))
            gots.append(daemon.request("session/get", {"sessionId": "s"}))
            logs.append([row["type"] for row in daemon.log("s")])
    assert bodies[0] == bodies[1]
    assert b'"7"' in bodies[1][3], "the shell was not evicted"
    assert gots[0] == gots[1]
    assert logs[0] == logs[1]


def test_list_get_and_cancel_answer_without_bringing_a_session_back(tmp_path: Path) -> None:
    with evicting(tmp_path) as (daemon, model):
        for words in ("go", "again"):
            daemon.run("s", words, PATIENCE_S)
        wait_evicted(daemon, model, "s")
        listed = daemon.request("session/list")["sessions"]
        assert [(one["status"], one["turns"]) for one in listed if one["sessionId"] == "s"] == [("idle", 2)]
        got = daemon.request("session/get", {"sessionId": "s"})
        assert (got["status"], got["usage"], got["turns"]) == (
            "idle",
            {"inputTokens": 40, "outputTokens": 8},
            2,
        )
        assert daemon.request("session/cancel", {"sessionId": "s"})["already"] == "finished"
        wait_evicted(daemon, model, "s")


def outcomes(daemon: Daemon) -> list[str]:
    """The message ids of all `session.completed` so far."""
    return [f["params"]["messageId"] for f in daemon.frames if f.get("method") == "session.completed"]


def test_prompts_that_race_find_one_session_and_run_in_order(tmp_path: Path) -> None:
    with evicting(tmp_path) as (daemon, model):
        first = daemon.prompt("s", "go", idempotencyKey="k")
        daemon.wait_idle("s")
        wait_evicted(daemon, model, "s")
        numbers = []
        for word in ("a", "b", "c"):
            blocks = [{"type": "text", "text": word}]
            numbers.append(daemon.send("session/prompt", {"sessionId": "s", "contentBlocks": blocks}))
        assert daemon.prompt("s", "go", idempotencyKey="k") == first, "keys are known again"
        assert outcomes(daemon).count(first) == 2, "and their outcomes"
        ids = [daemon.wait(lambda n=number: daemon.answer(n))["result"]["messageId"] for number in numbers]
        daemon.wait(lambda: outcomes(daemon)[-1] == ids[-1], PATIENCE_S)
        asked = [
            [message["content"] for message in body["messages"] if message["role"] == "user"]
            for body in model.received["go"]
        ]
        assert asked == [["go"], ["go", "a"], ["go", "a", "b"], ["go", "a", "b", "c"]]
        seqs = [event["seq"] for event in daemon.events("s")]
        assert seqs == list(range(len(seqs)))


def test_a_log_that_was_damaged_meanwhile_refuses_the_prompt_and_is_left_alone(tmp_path: Path) -> None:
    with evicting(tmp_path) as (daemon, model):
        daemon.run("s", "go", PATIENCE_S)
        wait_evicted(daemon, model, "s")
        [path] = daemon.sessions.glob("*/s/session.jsonl")
        log = path.read_bytes()
        path.write_bytes(log[: len(log) // 2])
        params: dict[str, Any] = {"sessionId": "s", "contentBlocks": [{"type": "text", "text": "on"}]}
        for _ in range(2):
            code, message = daemon.refused("session/prompt", params)
            assert code == -32012
            assert str(path) in message
        assert path.read_bytes() == log[: len(log) // 2]
        assert daemon.request("session/get", {"sessionId": "s"})["status"] == "idle"
        path.write_bytes(log)
        daemon.run("s", "on", PATIENCE_S)
        assert [one["content"] for one in model.received["go"][-1]["messages"]][1:] == ["go", "ok", "on"]


def test_an_evicted_session_closes_and_the_daemon_ends_as_ever(tmp_path: Path) -> None:
    with evicting(tmp_path) as (daemon, model):
        for name in ("closed", "left"):
            daemon.run(name, name, PATIENCE_S)
        wait_evicted(daemon, model, "closed", "left")
        daemon.request("session/close", {"sessionId": "closed"})
        daemon.request("session/resume", {"sessionId": "closed"})
        wait_evicted(daemon, model, "closed", "left")
        daemon.run("closed", "on", PATIENCE_S)
        asked = [one["content"] for one in model.received["closed"][-1]["messages"]]
        assert asked[1:] == ["closed", "ok", "on"]
        assert daemon.end() == 0


def test_a_fork_of_an_evicted_session_is_as_of_any_and_is_evicted_too(tmp_path: Path) -> None:
    with evicting(tmp_path) as (daemon, model):
        daemon.prompt("s", "go", idempotencyKey="k")
        daemon.wait_idle("s", 0, PATIENCE_S)
        wait_evicted(daemon, model, "s")
        daemon.request("session/fork", {"sessionId": "s", "newSessionId": "child"})
        wait_evicted(daemon, model, "s", "child")
        assert daemon.request("session/get", {"sessionId": "child"})["turns"] == 1
        assert daemon.prompt("child", "on", idempotencyKey="k"), "its parent's keys are not its own"
        daemon.wait(lambda: len(model.received["go"]) == 2, PATIENCE_S)
        daemon.run("s", "on", PATIENCE_S)
        bodies = model.bodies["go"]
        assert bodies[1] == bodies[2]
        assert [one["content"] for one in model.received["go"][1]["messages"]][1:] == ["go", "ok", "on"]

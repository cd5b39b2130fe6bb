"""A long rollout of a frozen profile, resumed: one header, one growing history, one agent (FP-6 to FP-9)."""

from __future__ import annotations

import hashlib
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from cordisd.agent.fingerprint import canonical_json
from cordisd.agent.profile import LOCK_FILE
from cordisd.mock import MockModel, MockModelThread, Received, Reply, calls, text
from daemon import Daemon
from frozen_presets import freeze, host_daemon, lock, refused

MISMATCH = (2301, "profile_hash_mismatch")
TRIGGERS = (
    "Use search tools. Start the server in the background, load_tools glob, remember this, browse the web, "
    "ask me if unsure, /setup capabilities.discovery=adaptive, 使用搜索工具"
)
STEPS_PER_TURN = 10
ID = "one-v1"


def answer(request: Received) -> Reply:
    """Nine steps of tool calls, then the end of the turn."""
    messages = request.json["messages"]
    n_steps = 0
    while messages[-1 - n_steps]["role"] != "user":
        n_steps += 1
    n_done = sum(message["role"] == "assistant" for message in messages[len(messages) - n_steps :])
    if n_done == STEPS_PER_TURN - 1:
        return text("done, ", "and well")
    n = len(messages)
    view = {"command": "view", "path": "/etc/hostname"}
    return calls((f"b{n}", "bash", {"command": f"echo {n}"}), (f"e{n}", "str_replace_editor", view))


def rows(log: Path, kind: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in log.read_bytes().splitlines()]
    return [row for row in found if row["type"] == kind]


def without_messages(request: Received) -> dict[str, Any]:
    return {name: value for name, value in request.json.items() if name != "messages"}


def test_a_rollout_of_thirty_steps_and_a_resume_is_one_header_and_one_growing_history(tmp_path: Path) -> None:
    root, work = tmp_path / "presets", tmp_path / "w"
    freeze(root, ID)
    with MockModelThread(answer) as mock:
        with host_daemon(work, root, mock.url) as daemon:
            daemon.initialize()
            lock(daemon, root, ID)
            made = daemon.request("session/create", {"sessionId": "s", "preset": ID})
            daemon.run("s", "Say what is here.")
            (work / "sub").mkdir()
            daemon.request("session/working-directory/set", {"sessionId": "s", "path": "sub"})
            daemon.run("s", TRIGGERS)
            got = daemon.request("session/get", {"sessionId": "s"})
            described = daemon.request("profile/get", {"sessionId": "s"})
        with host_daemon(work, root, mock.url) as daemon:
            daemon.initialize()
            daemon.request("session/resume", {"sessionId": "s"})
            assert daemon.request("session/get", {"sessionId": "s"})["profile"] == made["profile"]
            daemon.run("s", "Go on.")
        [log] = daemon.sessions.glob("*/s/session.jsonl")
    check_history(mock, n_turns=3)
    header = json.loads(log.read_bytes().splitlines()[0])
    assert header["cordisd"]["profile"] == made["profile"] == got["profile"]
    assert made["profile"] == {"id": ID, **json.loads((root / LOCK_FILE).read_text())[ID]}
    assert header["cordisd"]["digest"] == got["digest"] == f"sha256:{made['profile']['profile_sha256']}"
    assert {name: described[name] for name in made["profile"]} == made["profile"]
    check_hashes(mock, made["profile"], described)
    assert len(rows(log, "request/header")) == 1
    [verified] = rows(log, "profile/verified")
    assert verified["ignorable"] is True
    assert verified["data"] == made["profile"]
    assert [row["data"]["reason"]["kind"] for row in rows(log, "turn/end")] == ["completed"] * 3


def check_history(mock: MockModel, n_turns: int) -> None:
    """Each request's messages begin with those of the one before, and all else is the same."""
    histories = [[canonical_json(one) for one in request.json["messages"]] for request in mock.requests]
    assert len(histories) == n_turns * STEPS_PER_TURN
    for before, after in pairwise(histories):
        assert after[: len(before)] == before
        assert len(after) > len(before)
    assert all(without_messages(request) == without_messages(mock.requests[0]) for request in mock.requests)
    said = [message["content"] for message in mock.requests[-1].json["messages"] if message["role"] == "user"]
    assert said == ["Say what is here.", TRIGGERS, "Go on."], "and nobody told it where it works"


def check_hashes(mock: MockModel, profile: dict[str, str], described: dict[str, Any]) -> None:
    """The hashes are of what was sent, in every request."""
    for request in mock.requests:
        system = request.json["messages"][0]["content"]
        assert hashlib.sha256(system.encode()).hexdigest() == profile["prompt_sha256"]
        tools = [tool["function"] for tool in request.json["tools"]]
        assert hashlib.sha256(canonical_json(tools)).hexdigest() == profile["tools_sha256"]
        assert (described["system"], described["tools"]) == (system, tools)


def resumed(daemon: Daemon) -> dict[str, Any]:
    """The outcome of a prompt to the resumed session."""
    daemon.request("session/resume", {"sessionId": "s"})
    [end] = [event for event in daemon.run("s", "again") if event["type"] == "turn/end"]
    data: dict[str, Any] = end["data"]["reason"]
    return data


@pytest.mark.parametrize("relocked", [False, True])
def test_a_session_is_not_resumed_under_changed_content_and_its_log_stays_as_it_is(
    relocked: bool, tmp_path: Path
) -> None:
    root, work = tmp_path / "presets", tmp_path / "w"
    path = freeze(root, ID)
    with MockModelThread(lambda _: text("ok")) as mock, host_daemon(work, root, mock.url) as daemon:
        daemon.initialize()
        lock(daemon, root, ID)
        daemon.request("session/create", {"sessionId": "s", "preset": ID})
        daemon.run("s", "hi")
        daemon.request("session/close", {"sessionId": "s"})
        [log] = daemon.sessions.glob("*/s/session.jsonl")
        before, stat = log.read_bytes(), log.stat()
        files = sorted(log.parent.iterdir())
        content, locks = path.read_text(), (root / LOCK_FILE).read_text()
        path.write_text(content.replace("300000", "300001"))
        if relocked:
            (root / LOCK_FILE).unlink()
            lock(daemon, root, ID)
        for _ in range(2):
            code, name, message = refused(daemon, "session/resume", {"sessionId": "s"})
            assert (code, name) == MISMATCH
            assert ID in message
        assert (log.read_bytes(), log.stat().st_mtime_ns) == (before, stat.st_mtime_ns)
        assert sorted(log.parent.iterdir()) == files
        path.write_text(content)
        (root / LOCK_FILE).write_text(locks)
        assert resumed(daemon) == {"kind": "completed"}
    assert log.read_bytes().startswith(before)
    assert len(mock.requests) == 2


def test_a_session_that_is_resumed_with_another_model_sends_nothing(tmp_path: Path) -> None:
    root, work = tmp_path / "presets", tmp_path / "w"
    freeze(root, ID)
    with MockModelThread(lambda _: text("ok")) as mock, host_daemon(work, root, mock.url) as daemon:
        daemon.initialize()
        lock(daemon, root, ID)
        daemon.request("session/create", {"sessionId": "s", "preset": ID})
        daemon.run("s", "hi")
        daemon.request("session/close", {"sessionId": "s"})
        daemon.initialize(model="another")
        reason = resumed(daemon)
        assert reason["error"]["code"] == "PROFILE_OVERRIDE_REFUSED"
        assert "'model': 'another'" in reason["error"]["message"]
        daemon.request("session/close", {"sessionId": "s"})
        daemon.initialize()
        assert resumed(daemon) == {"kind": "completed"}
        [log] = daemon.sessions.glob("*/s/session.jsonl")
    assert len(rows(log, "request/header")) == 1
    assert [request.json["model"] for request in mock.requests] == ["deepseek-v4-flash"] * 2


def test_sampling_that_changes_before_a_resume_is_logged_and_a_frozen_session_does_not_go_on(
    tmp_path: Path,
) -> None:
    root, work = tmp_path / "presets", tmp_path / "w"
    freeze(root, ID)
    config = "provider: deepseek-official, apiKeyEnv: DEEPSEEK_API_KEY, parameters: {top_p: %s}"
    row = f"- {{id: deepseek, config: {{{config}}}}}\n"
    with MockModelThread(lambda _: text("ok")) as mock:
        with host_daemon(work, root, mock.url, row % 0.5) as daemon:
            daemon.initialize()
            lock(daemon, root, ID)
            daemon.request("session/create", {"sessionId": "s", "preset": ID})
            for session in ("s", "free"):
                daemon.run(session, "hi")
        with host_daemon(work, root, mock.url, row % 0.9) as daemon:
            daemon.initialize()
            reason = resumed(daemon)
            assert reason["error"]["code"] == "PROFILE_OVERRIDE_REFUSED"
            assert "'top_p': 0.9" in reason["error"]["message"]
            daemon.request("session/resume", {"sessionId": "free"})
            daemon.run("free", "again")
        [log] = daemon.sessions.glob("*/free/session.jsonl")
    logged = [row["data"] for row in rows(log, "request/header")]
    assert [data["parameters"] for data in logged] == [{"top_p": 0.5}, {"top_p": 0.9}]
    assert (logged[1]["reason"], logged[1]["cause"]) == ("resume", ["parameters"])
    assert [request.json["top_p"] for request in mock.requests] == [0.5, 0.5, 0.9]

"""Limits across the life of a session: other processes, kills, and what else has a say in them."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from conversations import hosted
from cordisd.mock import Hang, RawReply, call, delta, text
from cordisd.session.store import SessionStore
from daemon import Daemon
from measure import PATIENCE_S

TOKENS = 24
"""Of each answer of the scripted model."""
PRESETS = ("minimal", "rl-minimal-v1")


def run(daemon: Daemon, session: str, words: str = "go") -> dict[str, Any]:
    """The data of the `turn/end` of a prompt."""
    data: dict[str, Any] = daemon.run(session, words, PATIENCE_S)[-1]["data"]
    return data


def used(end: dict[str, Any]) -> tuple[str, float]:
    return end["limit"]["name"], end["limit"]["used"]


def test_what_a_session_has_used_is_counted_on_by_another_process(tmp_path: Path) -> None:
    limits = {"maxSessionTurns": 3, "maxTurns": 3}
    with hosted(tmp_path, composition="minimal") as (daemon, model):
        daemon.request("session/create", {"sessionId": "s", "limits": limits})
        model.plan("go", call("c1", "bash", {"command": "true"}), text("one"))
        assert run(daemon, "s")["stopReason"] == "completed"
        model.plan("go", RawReply([delta({"content": "…"}), Hang()]))
        daemon.prompt("s", "killed")
        daemon.prompt("s", "parked", maxTurns=2)
        daemon.wait(lambda: len(model.received["go"]) == 3)
        assert daemon.log("s")[0]["cordisd"]["limits"] == limits
        daemon.process.send_signal(signal.SIGKILL)
        daemon.end()
    with hosted(tmp_path, composition="minimal") as (daemon, model):
        daemon.request("session/resume", {"sessionId": "s"})
        got = daemon.request("session/get", {"sessionId": "s"})
        assert got["limits"] == limits
        assert (got["turns"], got["usage"]["outputTokens"]) == (2, 2 * 4)
        model.plan("go", *(call(f"d{n}", "bash", {"command": "true"}) for n in range(4)))
        run(daemon, "s")
        ends = [event["data"] for event in daemon.events("s") if event["type"] == "turn/end"]
        assert [used(end) for end in ends] == [("maxTurns", 2), ("maxSessionTurns", 3)], (
            "parked, and this one"
        )
        assert len(model.received["go"]) == 2


def test_a_fork_has_the_limits_of_its_parent_and_has_used_as_much(tmp_path: Path) -> None:
    limits = {"maxSessionModelTokens": 3 * TOKENS}
    with hosted(tmp_path, composition="minimal") as (daemon, model):
        daemon.request("session/create", {"sessionId": "s", "limits": limits})
        model.plan("go", call("c1", "bash", {"command": "true"}), text("one"))
        run(daemon, "s")
        daemon.request("session/fork", {"sessionId": "s", "newSessionId": "child"})
        assert daemon.request("session/get", {"sessionId": "child"})["limits"] == limits
        model.plan("go", call("c2", "bash", {"command": "true"}))
        assert used(run(daemon, "child")) == ("maxSessionModelTokens", 3 * TOKENS)
        assert run(daemon, "s")["stopReason"] == "completed"


def test_the_time_of_a_session_is_used_up_in_every_process(tmp_path: Path) -> None:
    with hosted(tmp_path, composition="minimal") as (daemon, model):
        daemon.request("session/create", {"sessionId": "s", "limits": {"sessionTimeoutSeconds": 0.5}})
        model.plan("go", RawReply([Hang()]))
        assert run(daemon, "s")["stopReason"] == "timeout"
    with hosted(tmp_path, composition="minimal") as (daemon, model):
        daemon.request("session/resume", {"sessionId": "s"})
        end = run(daemon, "s")
        assert end["stopReason"] == "timeout"
        assert end["limit"]["used"] >= 0.5
        assert not model.received


def test_a_log_whose_limits_cannot_be_kept_is_not_resumed_and_stays_as_it_is(tmp_path: Path) -> None:
    with hosted(tmp_path, composition="minimal") as (daemon, _):
        daemon.request("session/create", {"sessionId": "s", "limits": {"maxTurns": 5}})
        run(daemon, "s")
        daemon.request("session/close", {"sessionId": "s"})
        [path] = daemon.sessions.glob("*/s/session.jsonl")
        for name, code in (("maxWishes", -32012), ("maxCost", -32602)):
            log = path.read_bytes()
            path.write_bytes(log.replace(b'"maxTurns"', f'"{name}"'.encode(), 1))
            before = path.read_bytes()
            assert before != log
            refused = daemon.refused("session/resume", {"sessionId": "s"})
            assert refused[0] == code
            assert f"limits.{name}" in refused[1]
            assert path.read_bytes() == before
            path.write_bytes(log)
        daemon.request("session/resume", {"sessionId": "s"})
        assert daemon.request("session/get", {"sessionId": "s"})["limits"] == {"maxTurns": 5}


def test_a_composition_limits_every_session_and_a_client_only_tightens_that(tmp_path: Path) -> None:
    config = {"maxTurns": 2, "maxSessionTurns": 9, "noticeTurns": 1}
    patch = json.dumps([{"insert": [{"id": "limits", "name": "limits", "config": config}]}])
    with hosted(tmp_path, "[]\n") as (daemon, _):
        digests = [daemon.request("session/create", {"preset": name})["digest"] for name in PRESETS]
    with hosted(tmp_path, patch) as (daemon, model):
        model.plan("go", *(call(f"c{n}", "bash", {"command": "true"}) for n in range(9)))
        assert used(run(daemon, "lazy")) == ("maxTurns", 2)
        own = {"maxTurns": 50, "maxSessionTurns": 3}
        for preset, digest, notice in zip(PRESETS, digests, ({"noticeTurns": 4}, {}), strict=True):
            made = daemon.request("session/create", {"preset": preset, "limits": own | notice})
            assert made["digest"] == digest, "limits are no part of an agent"
            got = daemon.request("session/get", {"sessionId": made["sessionId"]})
            assert got["limits"] == {"maxTurns": 2, "maxSessionTurns": 3, **notice}, (
                "a frozen agent gets no notice"
            )


def test_another_preset_leaves_the_limits_as_they_are(tmp_path: Path) -> None:
    limits = {"maxTurns": 1, "noticeTurns": 1}
    with hosted(tmp_path) as (daemon, _):
        daemon.request("session/create", {"sessionId": "s", "limits": limits})
        daemon.request("preset/select", {"sessionId": "s", "preset": "minimal"})
        assert daemon.request("session/get", {"sessionId": "s"})["limits"] == limits
        code, message = daemon.refused("preset/select", {"sessionId": "s", "preset": "rl-minimal-v1"})
        assert (code, "limits.noticeTurns" in message) == (2303, True)
        got = daemon.request("session/get", {"sessionId": "s"})
        assert (got["preset"], got["limits"]) == ("minimal", limits), "the session is as it was"


@pytest.mark.parametrize("after_s", [0.2, 0.3, 0.4])
def test_a_signal_while_a_limit_ends_a_run_leaves_one_end_and_a_sound_log(
    after_s: float, tmp_path: Path
) -> None:
    with hosted(tmp_path, composition="minimal") as (daemon, model):
        names = [f"s{n}" for n in range(6)]
        for name in names:
            daemon.request("session/create", {"sessionId": name, "limits": {"timeoutSeconds": 0.3}})
            model.plan(name, call("c1", "bash", {"command": "sleep 300"}))
            daemon.prompt(name, name)
            daemon.prompt(name, "queued")
        daemon.wait(lambda: all(daemon.events(name) for name in names), PATIENCE_S)
        time.sleep(after_s)
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.wait(PATIENCE_S) == 0
        daemon.end()
        store = SessionStore(daemon.sessions)
        for name in names:
            with_end = [row for row in daemon.log(name) if row["type"] in ("turn/start", "turn/end")]
            assert [row["type"] for row in with_end] == ["turn/start", "turn/end"] * (len(with_end) // 2)
            assert with_end[1]["data"]["stopReason"] in ("timeout", "cancelled")
            before = len(daemon.log(name))
            stored = store.open(name)
            stored.file.close()
            assert stored.damage is None
            assert [event.type for event in stored.events[-1:]] == ["session/end-seed"]
            assert len(daemon.log(name)) == before + 1, "nothing was left open"

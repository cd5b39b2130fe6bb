"""`rpc.discover` tells the truth: a daemon is driven through everything, each frame is held against it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from contract import Contract, broken
from conversations import Conversations, hosted
from cordisd.mock import Hang, RawReply, call, delta, error, text
from daemon import Daemon

SAMPLES = [None, True, -1, 0, 1, 1.5, 300, 2**53 - 1, 2**53, "", "x", "5", [], ["x"], {}, {"x": "y"}]
ON_TCP = {("initialize", "token")}
INITIALIZE = {"cwd": ".", "provider": "deepseek-official", "model": "m"}


def blocks(words: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": words}]


class Driven(NamedTuple):
    """What a daemon was asked and has said, until its end."""

    asked: dict[int, tuple[str, Any]]
    frames: list[dict[str, Any]]
    contract: Contract


def drive(daemon: Daemon, model: Conversations) -> None:
    """Use every method, each in the ways in which its answer differs, with all that it takes."""
    ask = daemon.request
    ask("rpc.ping")
    model.plan("works", call("c1", "bash", {"command": "echo hi"}), call("c2", "nope", {}), text("done"))
    rollout = {"rolloutId": "r", "groupId": "g", "attempt": 0}
    choices = {"provider": "deepseek-official", "model": "m", "maxTokens": 9, "cwd": "."}
    limits = {"maxTurns": 50, "maxModelTokens": 10**6, "timeoutSeconds": 300.5, "maxSessionTurns": 50}
    ask("session/create", {"sessionId": "a", "preset": "minimal", "limits": limits, **choices, **rollout})
    ask("session/create")
    ask("session/get", {"sessionId": "a"})
    works = {"sessionId": "a", "contentBlocks": blocks("works"), "maxTurns": 40, "timeoutSeconds": 200}
    ask("session/prompt", {**works, "idempotencyKey": "k"})
    daemon.wait_idle("a")
    ask("session/get", {"sessionId": "a"})
    ask("session/cancel", {"sessionId": "a"})
    ask("session/detach", {"sessionId": "a"})
    ask("session/attach", {"sessionId": "a", "from": 0})
    ask("session/steer", {"sessionId": "a", "contentBlocks": blocks("by the way")})

    model.plan("hangs", RawReply([delta({"content": "…"}), Hang()]))
    daemon.prompt("hanging", "hangs")
    queued = daemon.prompt("hanging", "waits")
    daemon.wait(lambda: any(event["type"] == "assistant/chunk" for event in daemon.events("hanging")))
    ask("session/list")
    cancelled = ask("session/cancel", {"sessionId": "hanging", "queue": "drop"})
    assert cancelled == {"cancelled": True, "turn": 1, "dropped": [queued]}
    daemon.wait_idle("hanging")

    ask("session/metrics", {"sessionId": "a"})
    ask("session/outcome", {"sessionId": "a", "class": "success"})
    ask("session/outcome", {"sessionId": "a", "class": "timeout", "reward": -0.5, "data": {"tests": [1]}})
    ask("session/metrics", {"sessionId": "a"})
    ask("session/get", {"sessionId": "a"})
    ask("session/events", {"sessionId": "a", "from": 2, "limit": 500})
    ask("session/fork", {"sessionId": "a"})
    ask("session/fork", {"sessionId": "a", "newSessionId": "fork of a", "atTurn": 1})

    model.plan("fails", error(400, "no"))
    model.plan("limited", call("c1", "bash", {"command": "echo hi"}))
    limited = {"sessionId": "limited", "contentBlocks": blocks("limited")}
    ask("session/prompt", {**limited, "maxTurns": 1})
    daemon.wait_idle("limited")
    daemon.run("failing", "fails")

    ask("session/working-directory/set", {"sessionId": "a", "path": ".."})
    ask("session/working-directory/get", {"sessionId": "a"})
    ask("session/close", {"sessionId": "a"})
    ask("session/resume", {"sessionId": "a"})
    daemon.run("a", "again")
    ask("preset/list")
    ask("preset/render", {"preset": "minimal", "prompt": "p", **choices})
    ask("preset/render")
    frozen = ask("session/create", {"preset": "rl-minimal-v1"})
    ask("profile/get", {"sessionId": frozen["sessionId"]})
    ask("preset/select", {"sessionId": frozen["sessionId"], "preset": "minimal"})
    ask("profile/get", {"preset": "rl-minimal-v1"})
    limits = {"maxTokens": 9, "reasoningEffort": "high"}
    ask("initialize", {**INITIALIZE, **limits})
    ask("initialize", {**INITIALIZE, "preset": "rl-minimal-v1", "requirePreset": frozen["digest"]})
    ask("session/create", {"preset": "rl-minimal-v1", "requirePreset": frozen["digest"]})
    refuse(daemon)
    ask("shutdown")


def refuse(daemon: Daemon) -> None:
    """Requests that each find another reason to be refused."""
    some = {"sessionId": "a", "contentBlocks": blocks("x")}
    refusals = [
        (-32002, "session/get", {"sessionId": "none"}),
        (-32002, "session/steer", {**some, "sessionId": "none"}),
        (-32001, "session/create", {"sessionId": "a"}),
        (-32001, "session/resume", {"sessionId": "a"}),
        (-32005, "preset/select", {"sessionId": "a", "preset": "minimal"}),
        (-32020, "session/create", {"preset": "none"}),
        (-32021, "session/create", {"preset": "minimal", "requirePreset": "sha256:0"}),
        (-32602, "session/create", {"maxTokens": 0}),
        (-32602, "profile/get", {"preset": "minimal"}),
        (-32603, "initialize", {**INITIALIZE, "provider": "nobody"}),
        (-32021, "initialize", {**INITIALIZE, "requirePreset": "sha256:0"}),
    ]
    for code, method, params in refusals:
        assert daemon.refused(method, params)[0] == code, (method, params)


@pytest.fixture(scope="module")
def driven(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driven]:
    with hosted(tmp_path_factory.mktemp("driven")) as (daemon, model):
        contract = Contract(daemon.request("rpc.discover"))
        drive(daemon, model)
        assert daemon.end() == 0
    yield Driven(daemon.asked, daemon.frames, contract)


def test_all_that_a_daemon_says_is_as_documented(driven: Driven) -> None:
    assert broken(driven.contract, driven.asked, driven.frames) == []


def test_every_documented_method_and_notification_was_seen(driven: Driven) -> None:
    """A new method needs a call above."""
    served = {driven.asked[frame["id"]][0] for frame in driven.frames if "result" in frame}
    assert served == driven.contract.methods.keys()
    sent = {frame["method"] for frame in driven.frames if "method" in frame}
    assert sent == driven.contract.notifications.keys()


def test_every_documented_param_was_given(driven: Driven) -> None:
    given = {
        (method, name)
        for frame in driven.frames
        if "result" in frame
        for method, params in [driven.asked[frame["id"]]]
        for name in params or ()
    }
    documented = {
        (name, one["name"]) for name, method in driven.contract.methods.items() for one in method["params"]
    }
    assert documented - given == ON_TCP


def test_the_document_can_be_had_before_initialize_and_is_not_what_initialize_waits_for(
    tmp_path: Path,
) -> None:
    with Daemon(tmp_path) as daemon:
        document = daemon.request("rpc.discover")
        assert document["openrpc"].startswith("1.3.")
        capabilities = daemon.initialize()["capabilities"]
    assert [method["name"] for method in document["methods"]] == capabilities["methods"]
    assert [one["name"] for one in document["x-notifications"]] == capabilities["notifications"]


def test_initialize_takes_what_the_document_says(tmp_path: Path) -> None:
    """It is checked by hand, without the schemas."""
    with Daemon(tmp_path) as daemon:
        contract = Contract(daemon.request("rpc.discover"))
        names = [one["name"] for one in contract.methods["initialize"]["params"]]
        tried = [{**INITIALIZE, name: sample} for name in (*names, "unknown") for sample in SAMPLES]
        tried += [{key: INITIALIZE[key] for key in INITIALIZE if key != missing} for missing in INITIALIZE]
        for params in tried:
            answer = daemon.ask("initialize", params)
            is_taken = answer.get("error", {}).get("code") != -32602
            assert is_taken == (contract.problems("params", "initialize", params) == []), (params, answer)

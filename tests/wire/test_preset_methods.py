"""`preset/list`, `preset/render`, `preset/select` and the digest, as a client of the daemon sees them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from conversations import PERSONA, Conversations, hosted, persona, system_of, tools_of, write_preset
from cordisd.mock import call
from daemon import Daemon
from measure import comes
from processes import descendants

AGENT = {"id": "agent", "name": "agent", "config": {"parameters": {"temperature": 0.25, "max_tokens": 77}}}
HERE = [persona("Work in {{cwd}}.", complete=False), AGENT, {"id": "bash", "name": "bash"}]
PRESETS = {
    "here": HERE,
    "changed": [persona("Work in {{cwd}}!", complete=False), *HERE[1:]],
    "failing": [{"id": "f", "name": "preset_entries:FaultyEntry", "config": {"mount": "fail"}}],
    "host-row": [{"id": "f", "name": "runtime-context"}],
}


class World(NamedTuple):
    daemon: Daemon
    model: Conversations
    presets: Path
    listed: dict[str, dict[str, Any]]

    def make(self, name: str, **params: Any) -> dict[str, Any]:
        return self.daemon.request("session/create", {"sessionId": name, **params})

    def first(self, name: str) -> dict[str, Any]:
        """The first request of the session, whose first prompt is its name."""
        self.daemon.run(name, name)
        return self.model.received[name][0]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("methods")
    presets = folder / "home" / ".agent-presets"
    for name, rows in PRESETS.items():
        write_preset(presets, name, rows)
    write_preset(presets, "here", HERE, "{name: Here, description: It says where it is., order: -5}")
    with hosted(folder) as (daemon, model):
        answer = daemon.request("preset/list")
        assert answer["default"] is None
        yield World(daemon, model, presets, {one["name"]: one for one in answer["presets"]})


def test_the_list_has_every_preset_in_order_and_broken_ones_with_their_reason(world: World) -> None:
    assert list(world.listed) == ["here", "minimal", "rl-minimal-v1", "changed", "failing", "host-row"]
    assert world.listed["here"] == {
        "name": "here",
        "title": "Here",
        "description": "It says where it is.",
        "trust": "user",
        "path": str(world.presets / "here"),
        "digest": world.make("listed", preset="here")["digest"],
        "profile": None,
        "problem": None,
    }
    assert world.listed["minimal"]["trust"] == "system"
    for name, reason in (("failing", "mounting fails"), ("host-row", "lives as long as the daemon")):
        assert (world.listed[name]["digest"], world.listed[name]["profile"]) == (None, None)
        assert reason in world.listed[name]["problem"]
        code, message = world.daemon.refused("session/create", {"preset": name})
        assert code == -32020 and reason in message
    code, message = world.daemon.refused("session/create", {"preset": "heer"})
    assert (code, message) == (
        -32020,
        'agent-presets: preset "heer" not found (did you mean "here"?) '
        "(available: changed, failing, here, host-row, minimal, rl-minimal-v1)",
    )


def test_the_digest_of_a_session_is_the_same_wherever_it_is_told(world: World) -> None:
    made = world.make("told", preset="here")
    world.first("told")
    header = world.daemon.log("told")[0]
    selected = [row for row in world.daemon.log("told") if row["type"] == "agent-preset/selected"]
    digest = world.listed["here"]["digest"]
    got = world.daemon.request("session/get", {"sessionId": "told"})
    [row] = [one for one in world.daemon.request("session/list")["sessions"] if one["sessionId"] == "told"]
    assert digest.startswith("sha256:") and len(digest) == 71
    assert made == {"sessionId": "told", "preset": "here", "digest": digest, "cwd": str(world.daemon.cwd)}
    assert (got["preset"], got["digest"], row["preset"]) == ("here", digest, "here")
    assert header["agentPreset"] == header["cordisd"]["preset"] == "here"
    assert header["cordisd"]["digest"] == digest
    assert [event["data"] for event in selected] == [{"agentPreset": "here"}]


def test_a_directory_does_not_change_the_digest_and_a_character_does(world: World, tmp_path: Path) -> None:
    made = world.make("elsewhere", preset="here", cwd=str(tmp_path))
    assert made["digest"] == world.listed["here"]["digest"] != world.listed["changed"]["digest"]
    assert f"Work in {tmp_path}." in str(system_of(world.first("elsewhere")))


@pytest.mark.parametrize("preset", ["minimal", "here", None])
def test_what_is_rendered_is_what_the_model_receives(world: World, preset: str | None) -> None:
    name = f"rendered-{preset}"
    chosen = {} if preset is None else {"preset": preset}
    rendered = world.daemon.request("preset/render", {"prompt": name, **chosen})
    made = world.make(name, **chosen)
    body = world.first(name)
    assert world.model.bodies[name][0].decode() == rendered["request"]
    assert (rendered["preset"], rendered["digest"]) == (preset, made["digest"])
    assert rendered["system"] == system_of(body)
    assert rendered["tools"] == [tool["function"] for tool in body["tools"]]
    assert rendered["parameters"].items() <= body.items()


def test_rendering_makes_no_session_and_starts_no_process(world: World) -> None:
    before = descendants(world.daemon.process.pid), world.daemon.request("session/list")
    where = {"cwd": "sub", "model": "other", "maxTokens": 5}
    for _ in range(5):
        rendered = world.daemon.request("preset/render", {"preset": "minimal", "prompt": "p", **where})
    request = json.loads(rendered["request"])
    assert (request["model"], request["max_tokens"]) == ("other", 5)
    assert (descendants(world.daemon.process.pid), world.daemon.request("session/list")) == before


def test_the_parameters_of_an_agent_are_sent_logged_and_the_clients_to_leave(world: World) -> None:
    world.make("set", preset="here")
    body = world.first("set")
    assert (body["temperature"], body["max_tokens"]) == (0.25, 77)
    [header] = [row["data"] for row in world.daemon.log("set") if row["type"] == "request/header"]
    assert header["parameters"].items() >= AGENT["config"]["parameters"].items()  # type: ignore[index]
    assert header["header"]["config"]["temperature"] == 0.25
    code, message = world.daemon.refused("session/create", {"preset": "here", "maxTokens": 5})
    assert code == -32602 and 'preset "here" sets the parameter max_tokens itself' in message
    world.make("free", preset="minimal", maxTokens=5)
    assert world.first("free")["max_tokens"] == 5
    assert "temperature" not in world.model.received["free"][0]


def test_a_blank_session_can_have_another_preset_and_keeps_all_else(world: World, tmp_path: Path) -> None:
    who = {"rolloutId": "r-1", "groupId": "g", "attempt": 3}
    made = world.make("switched", cwd=str(tmp_path), model="m-2", maxTokens=9, **who)
    assert made["preset"] is None
    selected = world.daemon.request("preset/select", {"sessionId": "switched", "preset": "minimal"})
    minimal = world.listed["minimal"]["digest"]
    assert selected == {"sessionId": "switched", "preset": "minimal", "digest": minimal, "cwd": str(tmp_path)}
    world.model.plan("switched", call("c", "bash", {"command": "pwd"}))
    body = world.first("switched")
    assert (system_of(body), tools_of(body)) == (PERSONA, ["bash", "str_replace_editor"])
    assert (body["model"], body["max_tokens"]) == ("m-2", 9)
    assert len(body["messages"]) == 2
    assert str(tmp_path) in str(world.model.received["switched"][1]["messages"][-1])
    got = world.daemon.request("session/get", {"sessionId": "switched"})
    assert got.items() >= {"preset": "minimal", "digest": minimal, "model": "m-2", **who}.items()
    kinds = [event["type"] for event in world.daemon.events("switched")]
    assert kinds.count("agent-preset/selected") == 1
    assert [row["type"] for row in world.daemon.log("switched")[1:]] == kinds
    code, message = world.daemon.refused("preset/select", {"sessionId": "switched", "preset": "here"})
    assert code == -32005 and "has begun" in message
    assert world.daemon.request("session/get", {"sessionId": "switched"})["preset"] == "minimal"


def test_requests_about_one_session_are_served_in_their_order(world: World) -> None:
    daemon, blocks = world.daemon, [{"type": "text", "text": "hurried"}]
    made = [daemon.send("session/create", {"sessionId": "hurried", "preset": p}) for p in ("here", "changed")]
    selected = daemon.send("preset/select", {"sessionId": "hurried", "preset": "minimal"})
    daemon.send("session/prompt", {"sessionId": "hurried", "contentBlocks": blocks})
    late = daemon.send("preset/select", {"sessionId": "hurried", "preset": "here"})
    daemon.wait_idle("hurried")
    daemon.wait(lambda: daemon.answer(late))
    answers = [daemon.answer(number) or {} for number in (*made, selected, late)]
    assert answers[0]["result"]["preset"] == "here"
    assert answers[1]["error"]["code"] == -32001
    assert answers[2]["result"]["preset"] == "minimal"
    assert answers[3]["error"]["code"] == -32005
    assert world.model.systems("hurried") == [PERSONA]


def test_a_refused_selection_leaves_the_session_as_it_was(world: World) -> None:
    world.make("kept", preset="minimal")
    for preset, code in (("failing", -32020), ("nope", -32020), ("host-row", -32020), ("", -32602)):
        assert world.daemon.refused("preset/select", {"sessionId": "kept", "preset": preset})[0] == code
    assert world.daemon.refused("preset/select", {"sessionId": "none", "preset": "here"})[0] == -32002
    assert system_of(world.first("kept")) == PERSONA
    assert [row["type"] for row in world.daemon.log("kept")[1:]] == [
        event["type"] for event in world.daemon.events("kept")
    ]


def test_selecting_again_and_again_leaves_nothing_open(world: World) -> None:
    def held() -> tuple[int, int]:
        pid = world.daemon.process.pid
        return len(list(Path(f"/proc/{pid}/fd").iterdir())), len(descendants(pid))

    world.make("often")
    before = held()
    for number in range(10):
        preset = ("minimal", "here")[number % 2]
        world.daemon.request("preset/select", {"sessionId": "often", "preset": preset})
    assert comes(lambda: held() == before), (before, held())
    start = len(world.daemon.frames)
    world.first("often")
    turns = [event for event in world.daemon.events("often", start) if event["type"] == "turn/start"]
    assert len(turns) == 1


def test_a_required_digest_is_held_by_everything_that_makes_a_session(world: World) -> None:
    daemon, minimal = world.daemon, world.listed["minimal"]["digest"]

    def refusal(method: str, **params: Any) -> None:
        answer = daemon.ask(method, params)
        assert answer["error"]["code"] == -32021
        assert answer["error"]["data"] == {"code": "preset_mismatch"}
        assert minimal in answer["error"]["message"]

    sessions = daemon.request("session/list")
    where = {"cwd": str(daemon.cwd), "provider": "deepseek-official", "model": "deepseek-v4-flash"}
    refusal("session/create", sessionId="strict", requirePreset=minimal)
    refusal("initialize", **where, requirePreset=minimal)
    assert daemon.initialize(preset="minimal", requirePreset=minimal)["digest"] == minimal
    try:
        refusal("session/create", sessionId="strict", preset="here")
        assert daemon.request("session/list") == sessions
        assert not list(daemon.sessions.glob("*/strict*"))
        blocks = [{"type": "text", "text": "strict"}]
        daemon.request("session/prompt", {"sessionId": "strict", "contentBlocks": blocks})
        daemon.wait_idle("strict")
        assert system_of(world.model.received["strict"][0]) == PERSONA
        world.make("blank")
        refusal("preset/select", sessionId="blank", preset="here")
        world.make("own-demand", preset="here", requirePreset=world.listed["here"]["digest"])
        daemon.request("session/close", {"sessionId": "own-demand"})
    finally:
        daemon.initialize()

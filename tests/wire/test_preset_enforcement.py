"""Nothing in the daemon changes the prompt of a `minimal` session, whenever it comes, nor a later prompt."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from conversations import PERSONA, Conversations, hosted, system_of, tools_of, write_preset
from cordisd.mock import Reply, call, text
from daemon import Daemon
from preset_entries import EVIL, HARMLESS, Control

TOOLS = ["bash", "str_replace_editor"]
NOISY = [{"id": "noisy", "name": "preset_entries:NoisyEntry"}]


class World(NamedTuple):
    daemon: Daemon
    model: Conversations
    control: Control

    def make(self, name: str, preset: str | None = "minimal") -> dict[str, Any]:
        chosen = {} if preset is None else {"preset": preset}
        return self.daemon.request("session/create", {"sessionId": name, **chosen})

    def doing(self, action: str) -> Reply:
        """A reply of one bash call; before it is given, the daemon has done `action`."""
        assert self.control(action) == "ok"
        return call(f"c-{action}", "bash", {"command": f"echo {action}"})

    def outcome(self, name: str, prompt: str) -> dict[str, Any]:
        """Data of the `turn/end` of a prompt."""
        data: dict[str, Any] = self.daemon.run(name, prompt)[-1]["data"]
        return data


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("enforcement")
    write_preset(folder / "home" / ".agent-presets", "noisy", NOISY)
    socket = folder / "socket"
    patch = f"- insert: [{{id: c, name: 'preset_entries:ControlledEntry', config: {{socket: '{socket}'}}}}]\n"
    with hosted(folder, patch) as (daemon, model):
        yield World(daemon, model, Control(socket))


@pytest.fixture(autouse=True)
def clean_host(world: World) -> Iterator[None]:
    yield
    world.control("undo")


def test_the_actions_are_felt_by_an_agent_that_is_not_complete(world: World) -> None:
    world.make("victim", None)
    world.model.plan("victim", lambda: world.doing("other_sections"), lambda: world.doing("tool"))
    world.daemon.run("victim", "victim")
    first, second, third = world.model.received["victim"]
    assert (EVIL in str(system_of(first)), EVIL in str(system_of(second))) == (False, True)
    assert (tools_of(second), tools_of(third)) == (TOOLS, ["bash", "magic", "str_replace_editor"])
    world.control("undo")
    world.daemon.run("victim", "again")
    assert system_of(world.model.received["victim"][-1]) == system_of(first)
    assert tools_of(world.model.received["victim"][-1]) == TOOLS


@pytest.mark.parametrize("action", [action.__name__ for action in HARMLESS])
def test_a_minimal_session_does_not_notice(world: World, action: str) -> None:
    """It begins in the middle of a turn, and meets sessions made before, meanwhile and afterwards."""
    before, meanwhile, after, other = (
        f"{action}-{when}" for when in ("before", "meanwhile", "after", "other")
    )
    digest = world.make(before)["digest"]
    n_contexts = world.control.n_contexts()
    world.model.plan(before, lambda: world.doing(action), call("c2", "bash", {"command": "pwd"}))
    world.daemon.run(before, before)
    world.daemon.run(before, "again")
    assert world.make(meanwhile)["digest"] == digest
    world.daemon.run(meanwhile, meanwhile)
    world.daemon.run(meanwhile, "again")
    world.control("undo")
    assert world.make(after)["digest"] == digest
    world.daemon.run(after, after)
    world.daemon.run(before, "once more")
    assert world.control.n_contexts() == n_contexts
    for name, n_requests in ((before, 5), (meanwhile, 2), (after, 1)):
        bodies = world.model.received[name]
        assert world.model.systems(name) == [PERSONA] * n_requests
        assert [body["tools"] for body in bodies] == [world.model.received[before][0]["tools"]] * n_requests
        assert world.model.tools(name) == [TOOLS] * n_requests
        assert EVIL not in str(bodies) and "tick" not in str(bodies)
        headers = [row for row in world.daemon.log(name) if row["type"] == "request/header"]
        assert len(headers) == 1
        assert headers[0]["data"]["header"]["system"] == PERSONA
        assert [tool["name"] for tool in headers[0]["data"]["header"]["tools"]] == TOOLS
    world.make(other, None)
    world.daemon.run(other, other)
    assert EVIL not in str(world.model.received[other])
    assert tools_of(world.model.received[other][0]) == TOOLS
    assert world.control.n_contexts() == n_contexts + 1


def test_a_listener_cannot_corrupt_the_header_that_the_log_keeps_of_a_default_session(world: World) -> None:
    world.control("keeper")
    world.make("kept", None)
    world.model.plan("kept", call("c1", "bash", {"command": "pwd"}))
    world.daemon.run("kept", "kept")
    world.daemon.run("kept", "again")
    headers = [row["data"] for row in world.daemon.log("kept") if row["type"] == "request/header"]
    assert [header["reason"] for header in headers] == ["initial"]
    assert EVIL not in str(world.model.received["kept"])


def test_a_preset_mounted_in_the_middle_of_a_turn_changes_no_other_session(world: World) -> None:
    world.make("quiet")
    world.model.plan("quiet", call("c1", "bash", {"command": "until [ -e go ]; do sleep 0.02; done"}))
    world.daemon.prompt("quiet", "quiet")
    world.daemon.wait(lambda: any(one["type"] == "tool/call" for one in world.daemon.events("quiet")))
    world.make("noisy", "noisy")
    world.daemon.run("noisy", "noise")
    (world.daemon.cwd / "go").touch()
    world.daemon.wait_idle("quiet")
    world.daemon.run("quiet", "again")
    assert world.model.systems("quiet") == [PERSONA] * 3
    assert world.model.tools("quiet") == [TOOLS] * 3
    assert EVIL not in str(world.model.received["quiet"])
    assert EVIL in str(system_of(world.model.received["noise"][0]))
    assert tools_of(world.model.received["noise"][0]) == ["magic"]
    world.daemon.request("session/close", {"sessionId": "noisy"})
    world.make("afterwards", None)
    world.daemon.run("afterwards", "afterwards")
    assert EVIL not in str(world.model.received["afterwards"])
    assert tools_of(world.model.received["afterwards"][0]) == TOOLS


def test_two_complete_prompts_are_refused_by_their_names_and_harm_nobody_else(world: World) -> None:
    names = ("deployment:persona", "evil:takeover")
    world.make("contested")
    world.make("bystander", None)
    world.model.plan("contested", lambda: world.doing("another_complete_section"))
    end = world.outcome("contested", "contested")
    message = end["reason"]["error"]["message"]
    assert message == f'multiple complete prompt sections are active: "{names[0]}", "{names[1]}"'
    assert world.model.systems("contested") == [PERSONA]
    _, message = world.daemon.refused("session/create", {"sessionId": "late", "preset": "minimal"})
    assert message.startswith("multiple complete prompt sections are active: ")
    assert all(f'"{name}"' in message for name in names)
    assert "late" not in str(world.daemon.request("session/list"))
    assert world.outcome("bystander", "bystander")["stopReason"] == "completed"
    world.control("undo")
    assert world.outcome("contested", "again")["stopReason"] == "completed"
    assert world.model.systems("contested") == [PERSONA] * 2
    world.make("late")
    assert world.outcome("late", "late")["stopReason"] == "completed"


def test_a_reply_that_calls_a_tool_of_the_host_gets_an_error_as_result(world: World) -> None:
    world.make("tempted")
    world.control("tool")
    world.model.plan("tempted", call("c1", "magic", {}), text("no magic"))
    world.daemon.run("tempted", "tempted")
    [result] = [one for one in world.model.received["tempted"][1]["messages"] if one["role"] == "tool"]
    assert "magic" in result["content"] and "done" not in result["content"]


def test_a_listener_that_raises_ends_the_turn_and_not_the_session(world: World) -> None:
    world.make("disturbed")
    world.model.plan("disturbed", lambda: world.doing("raiser"))
    assert "lost" in world.outcome("disturbed", "disturbed")["reason"]["error"]["message"]
    _, message = world.daemon.refused("session/create", {"preset": "minimal"})
    assert message == "the prompt of preset \"minimal\" cannot be assembled: KeyError: 'lost'"
    world.control("undo")
    assert world.outcome("disturbed", "again")["stopReason"] == "completed"
    assert world.model.systems("disturbed") == [PERSONA] * 2


def test_what_a_listener_does_to_the_tools_stands_and_the_digest_and_the_log_tell(world: World) -> None:
    digest = world.make("given")["digest"]
    world.model.plan("given", lambda: world.doing("tool_adder"))
    world.daemon.run("given", "given")
    assert world.model.tools("given") == [TOOLS, [*TOOLS, "magic"]]
    assert world.model.systems("given") == [PERSONA] * 2
    headers = [row["data"] for row in world.daemon.log("given") if row["type"] == "request/header"]
    assert [header["reason"] for header in headers] == ["initial", "change"]
    refusal = world.daemon.ask("session/create", {"preset": "minimal", "requirePreset": digest})
    assert refusal["error"]["data"] == {"code": "preset_mismatch"}
    world.control("undo")
    world.daemon.request("session/create", {"preset": "minimal", "requirePreset": digest})

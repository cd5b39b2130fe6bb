"""A session with the preset `minimal` and one of the host composition, side by side in one daemon."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from conversations import PERSONA, Conversations, hosted, system_of, tools_of
from cordisd.mock import call, text
from daemon import Daemon
from preset_entries import Control

PATCH = """
- {id: identity, config: {name: 'harness:identity', order: -100, text: You are the agent of a test.}}
- id: orientation
  config: {name: 'harness:orientation', order: 50, text: 'Look around in {{cwd}} first.'}
- insert:
    - {id: test, name: host-section, config: {name: 'test:section', order: 60, text: This is a test.}}
    - {id: control, name: 'preset_entries:ControlledEntry', config: {socket: SOCKET}}
"""
MINIMAL, DEFAULT = ("early-minimal", "minimal", "late-minimal"), ("early-default", "default", "late-default")


class World(NamedTuple):
    """What was left when both kinds of sessions had run."""

    daemon: Daemon
    model: Conversations
    rendered: dict[str, Any]
    """`preset/render` of `minimal`, asked for between the sessions."""
    digests: dict[str, str]
    n_contexts: int

    @property
    def default_system(self) -> str:
        orientation = f"Look around in {self.daemon.cwd} first."
        return f"You are the agent of a test.\n\n{PERSONA}\n\n{orientation}\n\nThis is a test."


def plan(model: Conversations, name: str, folder: Path) -> None:
    """Two bash calls of which the second needs what the first left in the shell, and an edit; a turn each."""
    file = str(folder / "notes.txt")
    folder.mkdir()
    (folder / "notes.txt").write_text(f"old text of {name}\n")
    first = {"command": f"export MINE='{name}' && cd '{folder}' && pwd"}
    edit = {"command": "str_replace", "path": file, "old_str": "old text", "new_str": "new text"}
    model.plan(name, call("c1", "bash", first), text("entered"))
    model.plan(name, call("c2", "bash", {"command": 'echo "$MINE in $PWD"'}), text("looked"))
    model.plan(name, call("c3", "str_replace_editor", edit), text("edited"))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("together")
    with hosted(folder, PATCH.replace("SOCKET", str(folder / "socket"))) as (daemon, model):
        control, digests = Control(folder / "socket"), {}
        for name in MINIMAL + DEFAULT:
            plan(model, name, folder / "w" / name)

        def make(name: str) -> None:
            preset = {"preset": "minimal"} if name in MINIMAL else {}
            digests[name] = daemon.request("session/create", {"sessionId": name, **preset})["digest"]

        def turn(*names: str) -> None:
            start = len(daemon.frames)
            for name in names:  # the turns of these sessions run at once
                daemon.prompt(name, name if not model.received[name] else "go on")
            for name in names:
                daemon.wait_idle(name, start)

        make("early-minimal")
        turn("early-minimal")
        assert control.n_contexts() == 0
        make("early-default")
        turn("early-default")
        make("minimal")
        make("default")
        for _ in range(3):
            turn("minimal", "default")
        rendered = daemon.request("preset/render", {"preset": "minimal", "prompt": "minimal"})
        make("late-default")
        make("late-minimal")
        turn("late-minimal", "late-default")
        for _ in range(2):
            turn("early-minimal", "early-default", "late-minimal", "late-default")
        yield World(daemon, model, rendered, digests, control.n_contexts())


def contents(body: dict[str, Any]) -> list[tuple[str, Any]]:
    """Role and content of each message; the calls in the place of an assistant's content."""
    return [
        (
            one["role"],
            [each["function"]["arguments"] for each in one["tool_calls"]]
            if "tool_calls" in one
            else one["content"],
        )
        for one in body["messages"]
    ]


@pytest.mark.parametrize("name", MINIMAL + DEFAULT)
def test_each_session_works_in_a_shell_and_on_files_of_its_own(world: World, name: str) -> None:
    folder = world.daemon.cwd / name
    said = [content for role, content in contents(world.model.received[name][-1]) if role == "tool"]
    assert [one.split("\n")[0] for one in said[:2]] == [str(folder), f"{name} in {folder}"]
    assert (folder / "notes.txt").read_text() == f"new text of {name}\n"


@pytest.mark.parametrize("name", MINIMAL)
def test_every_request_of_a_minimal_session_is_its_own_and_nothing_else(world: World, name: str) -> None:
    bodies = world.model.received[name]
    assert len(bodies) == 6
    for body in bodies:
        assert system_of(body) == PERSONA
        assert [tool["function"] for tool in body["tools"]] == world.rendered["tools"]
        assert tools_of(body) == ["bash", "str_replace_editor"]
        assert body.keys() == bodies[0].keys()
        roles = [role for role, _ in contents(body)]
        turns = ["user", "assistant", "tool", "assistant"] * 3
        assert roles == ["system", *turns[: len(roles) - 1]]
        users = [content for role, content in contents(body) if role == "user"]
        assert users == [name, "go on", "go on"][: len(users)]
    for before, after in pairwise(bodies):
        assert after["messages"][: len(before["messages"])] == before["messages"]


def test_the_first_request_of_a_minimal_session_is_what_was_rendered(world: World) -> None:
    assert world.model.bodies["minimal"][0].decode() == world.rendered["request"]


@pytest.mark.parametrize("name", DEFAULT)
def test_every_request_of_a_default_session_has_all_that_the_host_contributes(
    world: World, name: str
) -> None:
    bodies = world.model.received[name]
    assert len(bodies) == 6
    for body in bodies:
        assert system_of(body) == world.default_system
        assert tools_of(body) == ["bash", "str_replace_editor"]
        users = [content for role, content in contents(body) if role == "user"]
        said, told = users[::2], users[1::2]
        assert said == [name, "go on", "go on"][: len(said)]
        for context in told:
            assert context.startswith("Current runtime context:\n\nWorking directory: /")
        assert len({context.split("tick ")[1] for context in told}) == len(told)


def test_a_context_is_asked_for_once_by_each_step_of_a_default_session_and_by_nothing_else(
    world: World,
) -> None:
    assert world.n_contexts == sum(len(world.model.received[name]) for name in DEFAULT) == 18


def test_sessions_of_a_kind_have_one_digest_whenever_they_were_made(world: World) -> None:
    assert {world.digests[name] for name in MINIMAL} == {world.rendered["digest"]}
    assert len({world.digests[name] for name in DEFAULT}) == 1
    assert world.digests["default"] != world.digests["minimal"]


def test_a_session_has_one_header_event_and_names_its_preset_in_the_log(world: World) -> None:
    for name in MINIMAL + DEFAULT:
        kinds = [row["type"] for row in world.daemon.log(name)]
        assert kinds.count("request/header") == 1
        assert kinds.count("agent-preset/selected") == (name in MINIMAL)
        header = world.daemon.log(name)[0]
        assert header.get("agentPreset") == ("minimal" if name in MINIMAL else None)
        assert header["cordisd"]["digest"] == world.digests[name]

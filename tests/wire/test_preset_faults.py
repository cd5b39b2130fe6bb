"""Many presets at once, presets that change, hang or fail, and daemons that end meanwhile."""

from __future__ import annotations

import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from conversations import PERSONA, hosted, persona, python_path, system_of, tools_of, write_preset
from cordisd.mock import call
from daemon import Daemon, wait_for_file
from measure import PATIENCE_S, SOON_S
from processes import alive, descendants, gone, gone_within

HANGING = [{"id": "f", "name": "preset_entries:FaultyEntry", "config": {"mount": "hang"}}]
FAILING = [{"id": "f", "name": "preset_entries:FaultyEntry", "config": {"mount": "fail"}}]


def serve(folder: Path, composition: str, patch: str = "[]\n", **environment: str) -> Daemon:
    """A daemon that may not come up."""
    (folder / "patch.yml").write_text(patch)
    (folder / "w").mkdir(exist_ok=True)
    command = [sys.executable, "-m", "cordisd", "serve", "--stdio", composition]
    return Daemon(
        folder / "w",
        argv=[*command, "--patch", str(folder / "patch.yml")],
        PYTHONPATH=python_path(),
        DSH_HOME=str(folder / "home"),
        **environment,
    )


def user_presets(folder: Path) -> Path:
    return folder / "home" / ".agent-presets"


def test_twenty_sessions_of_three_presets_made_at_once_are_each_their_own(tmp_path: Path) -> None:
    kinds: list[tuple[dict[str, str], list[str]]] = [
        ({"preset": "minimal"}, ["bash", "str_replace_editor"]),
        ({"preset": "only-bash"}, ["bash"]),
        ({}, ["bash", "str_replace_editor"]),
    ]
    only = [persona("Bash and nothing else."), {"id": "bash", "name": "bash"}]
    write_preset(user_presets(tmp_path), "only-bash", only)
    write_preset(user_presets(tmp_path), "failing", FAILING)
    with hosted(tmp_path) as (daemon, model):
        names = [f"s{number:02}" for number in range(21)]
        numbers = []
        for number, name in enumerate(names):
            chosen, _ = kinds[number % 3]
            model.plan(name, call("c", "bash", {"command": f"export MINE={name}; echo $MINE"}))
            model.plan(name, call("d", "bash", {"command": "echo again $MINE"}))
            numbers.append(daemon.send("session/create", {"sessionId": name, **chosen}))
            failing = daemon.send("session/create", {"sessionId": f"f-{name}", "preset": "failing"})
            blocks = [{"type": "text", "text": name}]
            daemon.send("session/prompt", {"sessionId": name, "contentBlocks": blocks})
        for name in names:
            daemon.wait_idle(name)
        answers = [daemon.answer(number) for number in numbers]
        assert "mounting fails" in str(daemon.wait(lambda: daemon.answer(failing)))
        digests: dict[int, set[str]] = {0: set(), 1: set(), 2: set()}
        for number, (name, answer) in enumerate(zip(names, answers, strict=True)):
            assert answer is not None
            digests[number % 3].add(answer["result"]["digest"])
            bodies = model.received[name]
            assert len(bodies) == 3
            assert [tools_of(body) for body in bodies] == [kinds[number % 3][1]] * 3
            [system] = set(model.systems(name))
            expected = (PERSONA, "Bash and nothing else.")
            assert (
                system == expected[number % 3] if number % 3 < 2 else "Look at the workspace" in str(system)
            )
            said = [one["content"].split("\n")[0] for one in bodies[2]["messages"] if one["role"] == "tool"]
            assert said == [name, f"again {name}"]
        assert [len(found) for found in digests.values()] == [1, 1, 1]
        assert len(set.union(*digests.values())) == 3
        sessions = daemon.request("session/list")["sessions"]
        assert sorted(one["sessionId"] for one in sessions) == names


def test_a_changed_preset_is_that_of_later_sessions_only(tmp_path: Path) -> None:
    presets = user_presets(tmp_path)
    write_preset(presets, "moving", [persona("first")])
    with hosted(tmp_path) as (daemon, model):

        def make(name: str) -> str:
            made = daemon.request("session/create", {"sessionId": name, "preset": "moving"})
            daemon.run(name, name)
            digest: str = made["digest"]
            return digest

        first = make("one")
        write_preset(presets, "moving", [persona("second")])
        second = make("two")
        write_preset(presets, "moving", "[")
        assert daemon.refused("session/create", {"preset": "moving"})[0] == -32020
        daemon.run("one", "more")
        write_preset(presets, "moving", [persona("first")])
        assert make("three") == first != second
        daemon.run("one", "more")
        (presets / "moving" / "agent.cordis.yml").unlink()
        daemon.run("two", "more")
        assert set(model.systems("one")) == {"first"}
        assert set(model.systems("two")) == {"second"}
        assert daemon.request("session/get", {"sessionId": "one"})["digest"] == first
        assert "moving" not in str(daemon.request("preset/list"))


def test_what_comes_right_behind_initialize_has_its_settings_however_long_it_takes(tmp_path: Path) -> None:
    row = {"id": "f", "name": "preset_entries:FaultyEntry", "config": {"mount": "pause"}}
    write_preset(user_presets(tmp_path), "slow", [row])
    write_preset(user_presets(tmp_path), "hanging", HANGING)
    with hosted(tmp_path) as (daemon, _):
        where = {"cwd": str(tmp_path), "provider": "deepseek-official", "model": "m"}
        made = []
        for preset in ("slow", "minimal"):
            daemon.send("initialize", {**where, "preset": preset})
            made.append(daemon.send("session/create", {"sessionId": f"of-{preset}"}))
        answers = [daemon.wait(partial(daemon.answer, number))["result"] for number in made]
        assert [answer["preset"] for answer in answers] == ["slow", "minimal"]
        assert {answer["cwd"] for answer in answers} == {str(tmp_path)}
        daemon.send("initialize", {**where, "preset": "hanging"})
        live = daemon.request("session/working-directory/get", {"sessionId": "of-slow"})
        assert live == {"cwd": str(tmp_path)}


def test_what_an_agent_has_started_ends_with_the_session_that_it_does_not_get(tmp_path: Path) -> None:
    row = {"id": "l", "name": "preset_entries:LeavingEntry"}
    write_preset(user_presets(tmp_path), "leaving", [row])
    with hosted(tmp_path) as (daemon, _):
        before = descendants(daemon.process.pid)
        taken = daemon.sessions / "project" / "taken" / "session.jsonl"
        taken.parent.mkdir(parents=True)
        taken.write_text("{}")
        assert daemon.refused("session/create", {"sessionId": "taken", "preset": "leaving"})[0] == -32001
        assert gone(descendants(daemon.process.pid) - before)


def test_two_ways_to_launch_the_minimal_agent_are_one_contract(tmp_path: Path) -> None:
    digests, bodies = [], []
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    where = {"cwd": str(tmp_path)}
    for folder, composition, preset in (("a", "minimal", {}), ("b", "host", {"preset": "minimal"})):
        with hosted(tmp_path / folder, composition=composition) as (daemon, model):
            digests.append(daemon.request("session/create", {"sessionId": "s", **preset, **where})["digest"])
            model.plan("s", call("c1", "bash", {"command": "echo $((6 * 7)); pwd"}))
            daemon.run("s", "s")
            bodies.append(model.bodies["s"])
    assert digests[0] == digests[1]
    assert bodies[0] == bodies[1]


def test_a_deployment_may_choose_the_prompt_of_the_process_but_not_of_the_preset(tmp_path: Path) -> None:
    with hosted(tmp_path, composition="minimal", DSH_SYSTEM_PROMPT="Other.") as (daemon, model):
        daemon.run("s", "s")
        assert model.systems("s") == ["Other."]
    with hosted(tmp_path, DSH_SYSTEM_PROMPT="Other.") as (daemon, model):
        daemon.request("session/create", {"sessionId": "t", "preset": "minimal"})
        daemon.run("t", "t")
        assert model.systems("t") == [PERSONA]


def test_the_roster_names_the_default_preset_and_a_broken_one_ends_the_start(tmp_path: Path) -> None:
    patch = "- {id: presets, config: {default: NAME}}\n"
    with hosted(tmp_path, patch.replace("NAME", "minimal")) as (daemon, model):
        answer = daemon.initialize()
        assert answer["preset"] == "minimal" == daemon.request("preset/list")["default"]
        daemon.run("s", "s")
        assert system_of(model.received["s"][0]) == PERSONA
        assert daemon.log("s")[0]["agentPreset"] == "minimal"
    write_preset(user_presets(tmp_path), "failing", FAILING)
    for name, reason in (("failing", b"mounting fails"), ("minimel", b'did you mean "minimal"')):
        daemon = serve(tmp_path, "host", patch.replace("NAME", name))
        assert daemon.process.wait(PATIENCE_S) == 2
        assert daemon.end() == 2
        assert reason in daemon.stderr and b"Traceback" not in daemon.stderr


@pytest.mark.parametrize("how", ["shutdown", "end of input", "SIGTERM", "SIGKILL"])
def test_a_daemon_ends_while_a_preset_hangs_in_its_mount(tmp_path: Path, how: str) -> None:
    write_preset(user_presets(tmp_path), "hanging", HANGING)
    with hosted(tmp_path, CASE_MARKER=str(tmp_path)) as (daemon, model):
        model.plan("s", call("c", "bash", {"command": "sleep 306"}))
        daemon.request("session/create", {"sessionId": "s", "preset": "minimal"})
        daemon.prompt("s", "s")
        daemon.wait(lambda: any(event["type"] == "tool/call" for event in daemon.events("s")))
        hanging = daemon.send("session/create", {"sessionId": "h", "preset": "hanging"})
        waiting = daemon.send("preset/select", {"sessionId": "h", "preset": "minimal"})
        listing = daemon.send("preset/list")
        assert daemon.request("rpc.ping") == {}
        began, below = time.monotonic(), descendants(daemon.process.pid)
        if how == "shutdown":
            assert daemon.request("shutdown") == {}
        elif how == "end of input":
            assert daemon.process.stdin is not None
            daemon.process.stdin.close()
        else:
            daemon.process.send_signal(getattr(signal, how))
        assert daemon.process.wait(SOON_S) == (-signal.SIGKILL if how == "SIGKILL" else 0)
        assert time.monotonic() - began < SOON_S
        daemon.end()
        if how != "SIGKILL":
            answers = [daemon.wait(partial(daemon.answer, number)) for number in (hanging, waiting, listing)]
            assert [answer["error"]["code"] for answer in answers] == [-32004] * 3
        assert gone(below), alive(below)
        assert gone_within(f"CASE_MARKER={tmp_path}")
        assert b"Traceback" not in daemon.stderr
        assert not list(daemon.sessions.glob("*/h"))


def test_a_signal_ends_a_daemon_whose_start_hangs(tmp_path: Path) -> None:
    config = f"{{mount: hang, touch: '{tmp_path}/mounting'}}"
    row = f"{{id: f, name: 'preset_entries:HostFaultyEntry', config: {config}}}"
    daemon = serve(tmp_path, "minimal", f"- insert: [{row}]\n", CASE_MARKER=str(tmp_path))
    wait_for_file(tmp_path / "mounting")
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(SOON_S) == 0
    daemon.end()
    assert gone_within(f"CASE_MARKER={tmp_path}")
    assert b"Traceback" not in daemon.stderr


def test_a_killed_daemon_leaves_logs_that_name_their_presets(tmp_path: Path) -> None:
    with hosted(tmp_path) as (daemon, model):
        for name, chosen in (("m", {"preset": "minimal"}), ("d", {})):
            daemon.request("session/create", {"sessionId": name, **chosen})
            daemon.run(name, name)
        daemon.process.kill()
        daemon.process.wait(SOON_S)
        daemon.end()
    with hosted(tmp_path) as (daemon, model):

        def resumed(name: str) -> dict[str, Any]:
            daemon.request("session/resume", {"sessionId": name})
            daemon.run(name, "more")
            got = daemon.request("session/get", {"sessionId": name})
            return {"preset": got["preset"], "digest": got["digest"], "system": model.systems(name)[-1]}

        minimal, default = resumed("m"), resumed("d")
        assert (minimal["preset"], default["preset"]) == ("minimal", None)
        assert minimal["system"] == PERSONA != default["system"]
        for name, found in (("m", minimal), ("d", default)):
            log = daemon.log(name)
            assert log[0]["cordisd"]["digest"] == found["digest"]
            assert len([row for row in log if row["type"] == "request/header"]) == 1
            assert [row["type"] for row in log].count("agent-preset/selected") == (name == "m")

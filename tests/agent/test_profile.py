"""Frozen profiles without a daemon: what can be frozen, what a lock holds, what a request must be."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agents import Agents
from cordisd.agent.agent import Agent
from cordisd.agent.preset import Root, Roster
from cordisd.agent.profile import (
    LOCK_FILE,
    check_not_locked,
    check_other_locks,
    read_locks,
    unwritten_keys,
    write_lock,
)
from cordisd.errors import (
    CompositionError,
    PresetError,
    ProfileError,
    ProfileHashMismatchError,
    ProfileOverrideError,
)
from cordisd.services.prompt import PromptRegistry, Section
from cordisd.services.tools import ToolSchema

ID = "one-v1"
FROZEN = """
- {id: profile, name: profile, config: {id: one-v1}}
- id: persona
  name: persona
  config: {text: Be brief., complete: true, includeRuntimeContext: false}
- {id: bash, name: bash, config: {timeoutMs: 300000}}
- {id: editor, name: str-replace-editor}
"""


def refusal(agents: Agents, text: str, name: str = ID, host: Any = lambda _: None) -> str:
    with pytest.raises((ProfileError, PresetError, CompositionError)) as caught:
        agents.fingerprint(text, name, host)
    return str(caught.value)


@pytest.mark.parametrize(
    "tool", ["web_fetch", "web_search", "fetch", "fetch_url", "browser", "browser_open", "Fetch"]
)
def test_a_web_tool_is_refused_by_its_name(tool: str, agents: Agents) -> None:
    text = FROZEN + f'- {{name: "agents:OfferEntry", config: {{tool: {tool}}}}}\n'
    assert f'must not offer the web tool "{tool}"' in refusal(agents, text)


@pytest.mark.parametrize("tool", ["refetch", "my_web_view", "webpack", "prefetch"])
def test_a_tool_is_no_web_tool_for_part_of_its_name(tool: str, agents: Agents) -> None:
    text = FROZEN + f'- {{name: "agents:OfferEntry", config: {{tool: {tool}}}}}\n'
    assert tool in [found["name"] for found in agents.fingerprint(text, ID).document["tools"]]


@pytest.mark.parametrize("text", ["In {{cwd}}.", "By {{model}}", "A {{{{ brace", "An open {{", "{{nothing}}"])
def test_a_prompt_with_variables_cannot_be_frozen(text: str, agents: Agents) -> None:
    assert "must not hold {{variables}}" in refusal(agents, FROZEN.replace("Be brief.", f'"{text}"'))


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("complete: true", "complete: false", "needs one complete section"),
        (
            "- id: persona\n  name: persona\n",
            "- id: persona\n  name: persona\n  disabled: true\n",
            "needs one complete",
        ),
        ("300000", "!!js 300000", "agent.cordis.yml:6"),
        ("Be brief.", "!!js process.env.X ?? 'a'", "agent.cordis.yml:5"),
        ("name: bash,", "name: bash, disabled: !!js process.env.X,", "agent.cordis.yml:6"),
        ("id: one-v1", "id: other-v1", 'must be the name of its folder, "one-v1"'),
        ("id: one-v1", "id: one", "$.id"),
        ("id: one-v1", "id: one-v0", "$.id"),
        ("id: one-v1", "id: one-v1, sha256: abc", "$.sha256"),
        ("name: profile,", "name: profile, isolate: {profile: true},", "is not frozen by its profile"),
        ("- id: persona", "- {name: profile, config: {id: one-v1}}\n- id: persona", "already provided"),
    ],
)
def test_what_cannot_be_frozen_is_refused_and_said(
    old: str, new: str, complaint: str, agents: Agents
) -> None:
    changed = FROZEN.replace(old, new)
    assert changed != FROZEN
    assert complaint in refusal(agents, changed)


def test_js_in_a_frozen_preset_is_refused_in_words(agents: Agents) -> None:
    message = refusal(agents, FROZEN.replace("300000", "!!js 300000"))
    assert "a frozen preset writes every value out; !!js is refused in it" in message


def test_a_runtime_context_cannot_be_frozen_and_a_suppressed_one_is_none(agents: Agents) -> None:
    def host(prompts: PromptRegistry) -> None:
        prompts.add_context(Section("weather", 0, "rain"))

    assert agents.fingerprint(FROZEN, ID, host).document["contexts"] == []
    told = FROZEN.replace(", includeRuntimeContext: false", "")
    assert "write includeRuntimeContext: false" in refusal(agents, told, host=host)


def locked(agents: Agents, agent: Agent) -> Agent:
    """`agent`, whose hashes have been locked and met."""
    assert agent.profile is not None
    write_lock(agents.root / LOCK_FILE, ID, agent.fingerprint.hashes)
    agent.profile.check_locked(agent.fingerprint, {})
    return agent


def in_place(tools: list[ToolSchema]) -> list[ToolSchema]:
    tools[0].parameters["properties"]["command"]["description"] += " "
    return tools


DRIFT: dict[str, Callable[[list[ToolSchema]], list[ToolSchema]]] = {
    "a tool more": lambda tools: [*tools, ToolSchema("more", "", {})],
    "a tool less": lambda tools: tools[:1],
    "no tool": lambda tools: [],
    "another order": lambda tools: tools[::-1],
    "a blank in a description": lambda tools: [
        tools[0]._replace(description=tools[0].description + " "),
        tools[1],
    ],
    "a schema changed in place": in_place,
    "a schema's keys in another order": lambda tools: [
        tools[0]._replace(parameters=dict(reversed(tools[0].parameters.items()))),
        tools[1],
    ],
    "what is not JSON": lambda tools: [tools[0]._replace(parameters={"x": object()}), tools[1]],
}


@pytest.mark.parametrize("kind", DRIFT)
def test_a_request_whose_tools_are_not_those_that_were_locked_is_refused(kind: str, agents: Agents) -> None:
    with agents.mounted(FROZEN, ID) as agent:
        profile = locked(agents, agent).profile
        assert profile is not None
        assembly = agent.scope.get(PromptRegistry).assemble(agent.fingerprint.assembly.tools)
        tools = [tool._replace(parameters=json.loads(json.dumps(tool.parameters))) for tool in assembly.tools]
        assert profile.check_request("Be brief.", tools, []) == tools
        with pytest.raises(ProfileHashMismatchError, match=ID):
            profile.check_request("Be brief.", DRIFT[kind](tools), [])


@pytest.mark.parametrize(("system", "contexts"), [("Be brief. ", []), ("", []), ("Be brief.", ["told"])])
def test_a_request_with_another_prompt_or_a_context_is_refused(
    system: str, contexts: list[str], agents: Agents
) -> None:
    with agents.mounted(FROZEN, ID) as agent:
        profile = locked(agents, agent).profile
        assert profile is not None
        with pytest.raises(ProfileHashMismatchError, match=ID):
            profile.check_request(system, agent.fingerprint.assembly.tools, contexts)


def test_what_is_sent_is_a_copy_that_nobody_else_can_change(agents: Agents) -> None:
    with agents.mounted(FROZEN, ID) as agent:
        profile = locked(agents, agent).profile
        assert profile is not None
        given = [
            tool._replace(parameters=json.loads(json.dumps(tool.parameters)))
            for tool in agent.fingerprint.assembly.tools
        ]
        sent = profile.check_request("Be brief.", given, [])
        given[0].parameters.clear()
        assert sent[0].parameters["type"] == "object"


def test_a_lock_is_met_by_the_same_agent_only_and_beside_no_override(agents: Agents) -> None:
    with agents.mounted(FROZEN, ID) as agent:
        profile = locked(agents, agent).profile
        assert profile is not None
        with pytest.raises(ProfileOverrideError, match="DSH_SYSTEM_PROMPT"):
            profile.check_locked(agent.fingerprint, {"DSH_SYSTEM_PROMPT": ""})
    with agents.mounted(FROZEN.replace("300000", "300001"), ID) as changed:
        assert changed.profile is not None
        with pytest.raises(ProfileHashMismatchError) as caught:
            changed.profile.check_locked(changed.fingerprint, {})
    message = str(caught.value)
    assert "profile_sha256 is" in message
    assert "prompt_sha256" not in message


HASH = "0123456789abcdef" * 4
HASHES = {"prompt_sha256": HASH, "tools_sha256": HASH, "profile_sha256": HASH}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '"one-v1"',
        "[" * 100_000,
        "\x00",
        '{"one-v1": 5}',
        '{"one-v1": {}}',
        json.dumps({ID: HASHES | {"more": HASH}}),
        json.dumps({ID: HASHES | {"tools_sha256": HASH[:-1]}}),
        json.dumps({ID: HASHES | {"tools_sha256": HASH.upper()}}),
        json.dumps({ID: HASHES | {"tools_sha256": None}}),
        json.dumps({ID: HASHES})[:-1] + ", " + json.dumps({ID: HASHES})[1:],
    ],
)
def test_a_malformed_lock_file_is_an_error_that_names_it(text: str, tmp_path: Path) -> None:
    path = tmp_path / LOCK_FILE
    path.write_text(text)
    with pytest.raises(ProfileError, match=str(path)):
        read_locks(path)


def test_a_lock_file_that_is_no_file_is_an_error_and_a_missing_one_locks_nothing(tmp_path: Path) -> None:
    assert read_locks(tmp_path / "none") == {}
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(ProfileError, match="cannot be read"):
            read_locks(path)


def test_a_locked_profile_is_never_locked_anew(agents: Agents) -> None:
    path = agents.root / LOCK_FILE
    first = agents.fingerprint(FROZEN, ID).hashes
    write_lock(path, ID, first)
    write_lock(path, "other-v1", first)
    before = path.read_bytes()
    write_lock(path, ID, first)
    with pytest.raises(ProfileError, match="give the changed preset a new id"):
        write_lock(path, ID, first._replace(tools_sha256=HASH))
    assert path.read_bytes() == before
    assert read_locks(path) == {ID: first, "other-v1": first}
    assert [found.name for found in agents.root.iterdir() if found.is_file()] == [LOCK_FILE]


def test_a_preset_that_is_locked_but_no_longer_frozen_is_refused(agents: Agents) -> None:
    thawed = FROZEN.replace("- {id: profile, name: profile, config: {id: one-v1}}\n", "")
    with agents.mounted(thawed, ID) as agent:
        check_not_locked(agent.preset)
        write_lock(agents.root / LOCK_FILE, ID, agent.fingerprint.hashes)
        with pytest.raises(ProfileHashMismatchError, match='has no entry "profile" any more'):
            check_not_locked(agent.preset)
    with agents.mounted(thawed, "plain") as plain:
        (agents.root / LOCK_FILE).write_text("broken")
        check_not_locked(plain.preset)


def test_an_id_that_any_folder_of_the_roster_has_locked_stands_for_one_content(
    agents: Agents, tmp_path: Path
) -> None:
    released, mine = tmp_path / "released", tmp_path / "mine"
    released.mkdir()
    mine.mkdir()
    agents.root = mine
    write_lock(released / LOCK_FILE, ID, agents.fingerprint(FROZEN, ID).hashes)
    as_mine = Roster([Root(mine, "user"), Root(released)])
    thawed = FROZEN.replace("- {id: profile, name: profile, config: {id: one-v1}}\n", "")
    for text, is_same in ((FROZEN, True), (FROZEN.replace("300000", "1"), False), (thawed, False)):
        with agents.mounted(text, ID) as agent:
            hashes = agent.fingerprint.hashes
        if is_same:
            check_other_locks(as_mine.get(ID), hashes)
            continue
        with pytest.raises(ProfileHashMismatchError, match=f"locked in {released}/{LOCK_FILE}"):
            check_other_locks(as_mine.get(ID), hashes)
        check_other_locks(Roster([Root(mine), Root(released, "user")]).get(ID), hashes)  # users bind nobody
        check_other_locks(Roster([Root(mine)]).get(ID), hashes)


def test_the_keys_that_a_preset_leaves_to_defaults_are_told(agents: Agents) -> None:
    text = FROZEN + "- {id: agent, name: agent, config: {sessionTitle: {maxTitleBytes: 80}}}\n"
    with agents.mounted(text, ID) as agent:
        found = unwritten_keys(agent.preset.entries)
    assert 'entry "bash": $.trailer' in found
    assert 'entry "agent": $.sessionTitle.fallbackMaxWords' in found
    assert 'entry "agent": $.parameters' in found
    assert not [key for key in found if "persona" in key or "timeoutMs" in key or "maxTitleBytes" in key]

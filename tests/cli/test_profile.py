"""`cordisd profile`: any change of a locked profile is found, whichever way it comes about."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import MODEL, ROSTER, Folder
from cordisd.entries import bash, str_replace_editor
from cordisd.services.tools import ToolSchema
from cordisd.shipped import presets_folder

RL = "rl-minimal-v1"
HASHES = ("prompt_sha256", "tools_sha256", "profile_sha256")
COMPLETE = "config: {text: Hi., complete: true, includeRuntimeContext: false}"


def _frozen(name: str, persona: str = COMPLETE, more: str = "") -> str:
    return (
        f"- {{id: f, name: profile, config: {{id: {name}}}}}\n- {{id: p, name: persona, {persona}}}\n{more}"
    )


def _differing(folder: Folder, *words: str) -> set[str]:
    """The hashes that `profile verify` says differ; it must fail."""
    ended = folder.run("profile", "verify", *words)
    assert ended.code == 1, ended
    assert ended.out == ""
    assert f"{RL}: undo the change, or give the changed preset a new id, rl-minimal-v2" in ended.err
    assert all(line.startswith(f"cordisd: {RL}: ") for line in ended.err.splitlines())
    return {name for name in HASHES if f"{name} is " in ended.err}


def _locks(folder: Folder) -> dict[str, dict[str, str]]:
    locks: dict[str, dict[str, str]] = json.loads((folder.presets / "profiles.lock").read_text())
    return locks


def test_the_shipped_profiles_are_what_was_locked(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSH_SYSTEM_PROMPT", "a matter of sessions, not of the lock")
    ended = folder.run_bare("profile", "verify")
    lock = json.loads((presets_folder() / "profiles.lock").read_text())
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == f"ok: {RL} sha256:{lock[RL]['profile_sha256']}\n"
    assert folder.run("profile", "verify", RL).out == ended.out


@pytest.mark.parametrize(
    ("old", "new", "differing"),
    [
        (
            "Run commands in a bash shell.",
            "Run commands in a bash shell,",
            {"tools_sha256", "profile_sha256"},
        ),
        ("View, create and edit", "View, create & edit", {"tools_sha256", "profile_sha256"}),
        ("text: You are a helpful", "text: You are  a helpful", {"prompt_sha256", "profile_sha256"}),
        ("timeoutMs: 300000", "timeoutMs: 300001", {"profile_sha256"}),
        ("parameters: {}", "parameters: {temperature: 0}", {"profile_sha256"}),
        ("    undoEdit: false\n", "", {"profile_sha256"}),
        (
            "toolOrder: null",
            'toolOrder: [str_replace_editor, "<unlisted-tools>"]',
            {"tools_sha256", "profile_sha256"},
        ),
    ],
)
def test_one_changed_character_of_a_locked_preset_is_found(
    folder: Folder, old: str, new: str, differing: set[str]
) -> None:
    folder.change(RL, old, new)
    assert _differing(folder) == differing
    assert _differing(folder, RL) == differing


def test_a_changed_schema_in_the_code_is_found(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    original = bash._schema

    def changed(description: str) -> ToolSchema:
        schema = original(description)
        schema.parameters["properties"]["command"]["description"] += " "
        return schema

    monkeypatch.setattr(bash, "_schema", changed)
    assert _differing(folder) == {"tools_sha256", "profile_sha256"}


@pytest.mark.parametrize("tool", [bash.BashTool, str_replace_editor.EditorTool])
def test_results_of_another_shape_are_found(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, tool: type[Any]
) -> None:
    monkeypatch.setattr(tool, "contract", tool.contract + 1)
    assert _differing(folder) == {"profile_sha256"}


def test_another_default_in_the_code_changes_no_frozen_preset(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = folder.run("preset", "list", "--json").out
    for name, value in (("description", "Another text."), ("timeout_ms", 1.0)):
        monkeypatch.setattr(bash.BashConfig.model_fields[name], "default", value)
    bash.BashConfig.model_rebuild(force=True)
    try:
        assert folder.run("profile", "verify").code == 0
        assert folder.run("preset", "list", "--json").out != before  # `minimal` is another one now
    finally:
        monkeypatch.undo()
        bash.BashConfig.model_rebuild(force=True)


def test_a_lock_without_its_preset_is_found(folder: Folder) -> None:
    lock = folder.presets / "profiles.lock"
    lock.write_text(json.dumps({**_locks(folder), "gone-v1": _locks(folder)[RL]}))
    ended = folder.run("profile", "verify")
    assert (ended.code, ended.out.count("ok: ")) == (1, 1)
    assert ended.err == "cordisd: gone-v1: locked in presets/profiles.lock, but its folder is gone\n"


def test_a_locked_preset_that_is_broken_or_frozen_no_more_is_found(folder: Folder) -> None:
    folder.change(RL, "name: bash\n", "name: bassh\n")
    broken = folder.run("profile", "verify")
    assert broken.code == 1
    assert (
        f'{RL}/agent.cordis.yml:28, entry "bash": ' in broken.err and '(did you mean "bash"?)' in broken.err
    )
    folder.change(RL, "name: bassh\n", "name: bash\n")
    folder.change(RL, "- id: profile\n  name: profile\n  config:\n    id: rl-minimal-v1\n", "")
    thawed = folder.run("profile", "verify")
    assert thawed.code == 1
    assert 'its entry "profile" is gone' in thawed.err
    assert folder.run("profile", "verify", RL).code == 2
    checked = folder.run("preset", "check")
    assert checked.code == 2 and f'{RL}/agent.cordis.yml: profile "{RL}" is locked in' in checked.err


def test_a_preset_in_the_place_of_a_released_profile_is_told(folder: Folder) -> None:
    roots = "[{path: presets}, {path: mine, trust: user}]"
    for order in (roots, "[{path: mine, trust: user}, {path: presets}]"):
        roster = ROSTER.replace("[{path: presets}]", order) + MODEL
        (folder.root / "roster.yml").write_text(roster)
        mine = folder.root / "mine" / RL
        mine.mkdir(parents=True, exist_ok=True)
        (mine / "agent.cordis.yml").write_text("- {name: persona, config: {text: Mine.}}\n")
        checked = folder.run("preset", "check", RL)
        assert checked.code == (0 if order == roots else 2)
    assert "is not the profile of that id that is locked in presets/profiles.lock" in checked.err
    [listed] = [
        line for line in folder.run("preset", "list").out.splitlines() if "is not the profile" in line
    ]
    assert str(mine) in listed


def test_every_other_preset_is_checked_when_one_fails(folder: Folder) -> None:
    folder.add("two-v1", _frozen("two-v1"))
    ended = folder.run("profile", "verify")
    assert (ended.code, ended.out.split()[:2]) == (1, ["ok:", RL])
    assert "`cordisd profile lock two-v1` locks it as it is now" in ended.err
    assert folder.run("profile", "lock", "two-v1").code == 0
    assert folder.run("profile", "verify").out.count("ok: ") == 2


@pytest.mark.parametrize("text", ["{", "[]", '{"rl-minimal-v1": {}}', '{"rl-minimal-v1": "abc"}'])
def test_a_lock_file_that_cannot_be_read_is_one_failure(folder: Folder, text: str) -> None:
    lock = folder.presets / "profiles.lock"
    lock.write_text(text)
    for words in (["verify"], ["verify", RL], ["lock", RL], ["show", RL]):
        ended = folder.run("profile", *words)
        assert (ended.code, ended.out, ended.err.count("\n")) == (1, "", 1), words
        assert "presets/profiles.lock" in ended.err
    assert lock.read_text() == text


def test_nothing_frozen_is_said_and_no_failure(folder: Folder) -> None:
    (folder.root / "none").mkdir()
    (folder.root / "roster.yml").write_text(ROSTER.replace("path: presets", "path: none"))
    ended = folder.run("profile", "verify")
    assert ended == (0, "", "warning: no preset of the roster is frozen\n")


def test_show_tells_hashes_lock_prompt_and_tools(folder: Folder) -> None:
    shown = folder.run("profile", "show", RL)
    assert shown.code == 0
    lines = shown.out.splitlines()
    assert lines[0] == f"{RL} (locked)"
    assert "  You are a helpful software engineer assistant." in lines and "tool str_replace_editor:" in lines
    assert all(value in shown.out for value in _locks(folder)[RL].values())
    document = json.loads(folder.run("profile", "show", RL, "--json").out)
    assert {name: document[name] for name in HASHES} == document["locked"] == _locks(folder)[RL]
    assert document["digest"] == f"sha256:{document['profile_sha256']}"
    assert [tool["name"] for tool in document["tools"]] == ["bash", "str_replace_editor"]

    folder.change(RL, "onTimeout: keep", "onTimeout: reset")
    assert json.loads(folder.run("profile", "show", RL, "--json").out)["status"] == "differs from its lock"
    assert f", locked {document['profile_sha256']}" in folder.run("profile", "show", RL).out
    refused = folder.run("profile", "show", "minimal")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == 'cordisd: preset "minimal" is not a frozen profile: it has no entry "profile"\n'


def test_lock_adds_a_profile_once_and_for_good(folder: Folder) -> None:
    folder.add("two-v1", _frozen("two-v1"))
    before = _locks(folder)
    locked = folder.run("profile", "lock", "two-v1")
    assert (locked.code, locked.err) == (0, "")
    assert locked.out.startswith("locked: two-v1 sha256:")
    written = (folder.presets / "profiles.lock").read_text()
    assert _locks(folder) == {**before, "two-v1": _locks(folder)["two-v1"]}
    assert folder.run("profile", "lock", "./presets/two-v1").out.startswith("already locked: two-v1")

    folder.change("two-v1", "text: Hi.", "text: Hi")
    refused = folder.run("profile", "lock", "two-v1")
    assert (refused.code, refused.out) == (1, "")
    assert "a released profile never changes" in refused.err
    assert (folder.presets / "profiles.lock").read_text() == written
    assert sorted(path.name for path in folder.presets.iterdir()) == [
        "demo.cordis.yml", "host.cordis.yml", "minimal", "profiles.lock", "recordings", RL, "two-v1"
    ]  # fmt: skip


def test_a_lock_file_that_cannot_be_written_stays_as_it_was(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    folder.add("two-v1", _frozen("two-v1"))
    before, files = _locks(folder), sorted(folder.presets.iterdir())
    monkeypatch.setattr(os, "fsync", full)
    ended = folder.run("profile", "lock", "two-v1")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == "cordisd: presets/profiles.lock cannot be written: No space left on device\n"
    assert (_locks(folder), sorted(folder.presets.iterdir())) == (before, files)


@pytest.mark.parametrize(
    ("agent", "messages"),
    [
        (
            _frozen("x-v1", more="- {id: b, name: bash, config: {timeoutMs: 5}}\n"),
            ['entry "b": $.trailer', "$.stdin"],
        ),
        (
            _frozen("x-v1", "config: {text: Hi., complete: true, includeRuntimeContext: true}"),
            ["a runtime context"],
        ),
        (
            _frozen("x-v1", COMPLETE.replace("complete: true", "complete: false")),
            ["needs one complete section"],
        ),
        (_frozen("x-v1", COMPLETE.replace("Hi.", "'{{cwd}}'")), ["must not hold {{variables}}"]),
    ],
)
def test_what_could_change_by_itself_is_not_locked(folder: Folder, agent: str, messages: list[str]) -> None:
    (folder.root / "roster.yml").write_text(ROSTER + "- {id: c, name: runtime-context}\n")
    folder.add("x-v1", agent)
    before = _locks(folder)
    ended = folder.run("profile", "lock", "x-v1")
    assert (ended.code, ended.out) == (1, "")
    assert all(message in ended.err for message in messages)
    assert ended.err.startswith("cordisd: ")
    assert _locks(folder) == before


def test_what_is_not_frozen_or_not_there_cannot_be_locked(folder: Folder, tmp_path: Path) -> None:
    folder.add("y-v1", _frozen("x-v1"))
    folder.add("z-v1", _frozen("z-v1", COMPLETE.replace("Hi.", '!!js "process.env.X"')))
    for name, message in (
        ("minimal", "is not a frozen profile"),
        ("minimal.cordis.yml", "the composition's own agent is not a frozen profile"),
        ("rl-minimal-v2", '(did you mean "rl-minimal-v1"?)'),
        (
            "y-v1",
            'agent.cordis.yml:1, entry "f": failed to mount: the id of the profile must be the name of its',
        ),
        ("z-v1", 'agent.cordis.yml:2, entry "p": '),
    ):
        ended = folder.run("profile", "lock", name)
        assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1), ended
        assert message in ended.err

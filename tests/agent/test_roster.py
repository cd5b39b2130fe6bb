"""Which presets a roster finds, what it says of broken ones, and that it notices changed files."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from conversations import persona, write_preset
from cordisd.agent.preset import Preset, Root, Roster
from cordisd.entries.presets import PresetsEntry
from cordisd.errors import PresetError
from cordisd.kernel.scope import Scope
from editor_calls import without_capabilities

GOOD = [persona("good")]


def text_of(preset: Preset) -> str:
    """The text of the preset's persona."""
    [entry] = [entry for entry in preset.entries if entry.id == "persona"]
    text: str = entry.config.text  # type: ignore[attr-defined]
    return text


def rows(*written: dict[str, Any]) -> str:
    return json.dumps(written)


def problems(roster: Roster) -> dict[str, str | None]:
    return {one.name: one.problem for one in roster.list()}


def test_the_first_root_that_has_a_name_counts_even_with_a_broken_preset(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    write_preset(first, "both", [persona("of the first")])
    write_preset(second, "both", [persona("of the second")])
    write_preset(first, "broken", "[")
    write_preset(second, "broken", GOOD)
    write_preset(second, "later", GOOD)
    roster = Roster([Root(first), Root(tmp_path / "missing"), Root(second, "user")])
    assert text_of(roster.get("both")) == "of the first"
    assert {one.name: (one.folder, one.trust) for one in roster.list()} == {
        "both": (first / "both", "system"),
        "broken": (first / "broken", "system"),
        "later": (second / "later", "user"),
    }
    with pytest.raises(
        PresetError, match=r'preset "broken" failed to mount: .*first/broken/agent\.cordis\.yml:'
    ):
        roster.get("broken")


def test_only_folders_with_a_proper_name_and_an_agent_file_are_presets(tmp_path: Path) -> None:
    for name in ("a", "0", "a-b-", "Upper", "under_score", "-dash", "a.b", "ä", "sp ace", "a\n"):
        write_preset(tmp_path, name, GOOD)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "folder" / "agent.cordis.yml").mkdir(parents=True)
    (tmp_path / "loop").mkdir()
    (tmp_path / "loop" / "agent.cordis.yml").symlink_to("agent.cordis.yml")
    (tmp_path / "linked").symlink_to("a")
    assert list(problems(Roster([Root(tmp_path)]))) == ["0", "a", "a-b-", "linked"]


def test_labels_are_for_people_and_put_presets_in_order(tmp_path: Path) -> None:
    write_preset(tmp_path, "none", GOOD)
    write_preset(tmp_path, "last", GOOD, "{name: Last one, description: 'It is, really', order: 2.5}")
    write_preset(tmp_path, "first", GOOD, "{order: -1, more: ignored}")
    listed = Roster([Root(tmp_path)]).list()
    assert [one.name for one in listed] == ["first", "last", "none"]
    assert listed[1].label == ("Last one", "It is, really", 2.5)
    assert listed[2].label == (None, None, None)


@pytest.mark.parametrize(
    "label",
    ["[", "- list", "name", "{name: a, name: b}", "{name: !!js process.env.X}", "", "\x00", "a: &a [*a]"],
)
def test_a_malformed_label_is_ignored(tmp_path: Path, label: str) -> None:
    write_preset(tmp_path, "p", GOOD, label)
    [listed] = Roster([Root(tmp_path)]).list()
    assert (listed.label, listed.problem) == ((None, None, None), None)


@pytest.mark.parametrize("label", [{"name": 5, "description": [1], "order": "x"}, {"order": True}])
def test_a_label_of_the_wrong_types_is_ignored(tmp_path: Path, label: object) -> None:
    write_preset(tmp_path, "p", GOOD, str(label))
    assert Roster([Root(tmp_path)]).list()[0].label == (None, None, None)


def test_a_label_that_cannot_be_read_is_ignored(tmp_path: Path) -> None:
    write_preset(tmp_path, "bytes", GOOD)
    (tmp_path / "bytes" / "preset.yml").write_bytes(b"name: \xff")
    write_preset(tmp_path, "folder", GOOD)
    (tmp_path / "folder" / "preset.yml").mkdir()
    assert problems(Roster([Root(tmp_path)])) == {"bytes": None, "folder": None}


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ("- {id: a, name: [", "agent.cordis.yml:"),
        ("id: a", "must be a list"),
        ("- {id: a, name: personna}", 'did you mean "persona"'),
        ("- {id: a, name: persona, config: {text: x, complet: true}}", 'did you mean "complete"'),
        ("- {id: a, name: persona, config: {}}", "text"),
        ("- {id: a, name: sessions-jsonl}", "lives as long as the daemon"),
        ("- {id: a, name: host-section, config: {name: a, text: b}}", "lives as long as the daemon"),
        ("- {id: a, name: presets}", "lives as long as the daemon"),
        ("- {id: a, name: cordis:include, config: {path: gone.yml}}", "gone.yml"),
        ("- {id: a, name: persona, config: {text: !!js nope()}}", 'entry "a"'),
        ("- {id: a, name: persona, config: {text: x}}\n- {id: a, name: bash}", "duplicate"),
    ],
)
def test_a_broken_preset_is_listed_with_its_reason_and_cannot_be_had(
    tmp_path: Path, broken: str, reason: str
) -> None:
    write_preset(tmp_path, "broken", broken)
    write_preset(tmp_path, "sound", GOOD)
    roster = Roster([Root(tmp_path)])
    found = problems(roster)
    assert found["sound"] is None
    assert reason in str(found["broken"]) and "agent.cordis.yml" in str(found["broken"])
    with pytest.raises(PresetError) as caught:
        roster.get("broken")
    assert str(caught.value) == f'agent-presets: preset "broken" failed to mount: {found["broken"]}'
    assert text_of(roster.get("sound")) == "good"


def test_an_unknown_name_is_answered_with_those_there_are_and_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(PresetError) as caught:
        Roster([Root(tmp_path)]).get("minimal")
    assert str(caught.value) == 'agent-presets: preset "minimal" not found (available: none)'
    for name in ("minimal", "code"):
        write_preset(tmp_path, name, GOOD)
    for asked, hint in (("minimel", ' (did you mean "minimal"?)'), ("../code", ' (did you mean "code"?)')):
        with pytest.raises(PresetError) as caught:
            Roster([Root(tmp_path)]).get(asked)
        assert str(caught.value) == (
            f'agent-presets: preset "{asked}" not found{hint} (available: code, minimal)'
        )
    write_preset(tmp_path, "Mine", GOOD)
    with pytest.raises(PresetError, match=r"; names of presets match \[a-z0-9\]\[a-z0-9-\]\*"):
        Roster([Root(tmp_path)]).get("Mine")


def test_a_preset_may_have_includes_groups_and_patches(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "base.yml").write_text(
        "- {id: persona, name: persona, config: {text: base}}\n- {id: bash, name: bash}\n"
    )
    folder = write_preset(
        tmp_path / "presets",
        "p",
        """
        - id: base
          name: cordis:include
          config:
            path: ../../parts/base.yml
            patches:
              - {id: persona, config: {text: patched}}
              - {id: bash, disabled: true}
              - insert: [{id: more, group: true, config: [{id: editor, name: str-replace-editor}]}]
        """,
    )
    roster = Roster([Root(folder.parent)])
    assert [entry.id for entry in roster.get("p").entries] == ["persona", "editor"]
    assert text_of(roster.get("p")) == "patched"
    (tmp_path / "parts" / "base.yml").write_text("- {id: persona, name: persona, config: {text: x}}\n")
    assert [entry.id for entry in roster.get("p").entries] == ["persona", "editor"]


PUBLISHED = """
- {id: persona, name: '@deepseek-ai/dsh-persona', config: {text: good, complete: true}}
- id: terminals
  name: cordis:group
  isolate: {terminals: true}
  config:
    - {id: pty, name: '@deepseek-ai/dsh-terminal'}
    - {id: terminal-bash, name: '@deepseek-ai/dsh-terminal-bash', config: {timeoutMs: 300000}}
    - {id: bash, name: '@deepseek-ai/dsh-tool-bash-persistent', config: {timeoutMs: 300000}}
- id: files
  name: cordis:group
  isolate: {fs: true}
  config:
    - {id: fs, name: '@deepseek-ai/dsh-fs-local'}
    - {id: editor, name: '@deepseek-ai/dsh-tool-str-replace-editor', config: {maxOutputChars: 16000}}
"""


def test_a_preset_in_the_published_names_has_the_rows_that_are_only_checked(tmp_path: Path) -> None:
    write_preset(tmp_path, "published", PUBLISHED)
    write_preset(
        tmp_path,
        "wrong",
        PUBLISHED.replace("{timeoutMs: 300000}}\n    - {id: bash", "{timeoutMs: no}}\n    - {id: bash"),
    )
    roster = Roster([Root(tmp_path)])
    assert [entry.id for entry in roster.get("published").entries] == ["persona", "bash", "editor"]
    assert "timeoutMs" in str(problems(roster)["wrong"])


def test_a_preset_is_read_again_when_one_of_its_files_has_changed(tmp_path: Path) -> None:
    (tmp_path / "part.yml").write_text(rows(persona("one")))
    include = "- {id: i, name: cordis:include, config: {path: ../../part.yml}}"
    folder = write_preset(tmp_path / "presets", "p", include)
    roster = Roster([Root(folder.parent)])
    assert text_of(roster.get("p")) == "one"
    (tmp_path / "part.yml").write_text(rows(persona("two")))
    assert text_of(roster.get("p")) == "two"
    (tmp_path / "new.yml").write_text(rows(persona("six")))
    os.replace(tmp_path / "new.yml", tmp_path / "part.yml")
    assert text_of(roster.get("p")) == "six"
    (tmp_path / "part.yml").unlink()
    assert "part.yml" in str(problems(roster)["p"])
    write_preset(tmp_path / "presets", "p", [persona("own")])
    assert text_of(roster.get("p")) == "own"
    (folder / "agent.cordis.yml").unlink()
    with pytest.raises(PresetError, match="not found"):
        roster.get("p")


def test_a_preset_is_kept_as_long_as_its_files_are_as_they_were(tmp_path: Path) -> None:
    folder = write_preset(tmp_path, "p", GOOD)
    roster = Roster([Root(tmp_path)])
    time.sleep(0.2)
    kept = roster.get("p")
    assert roster.get("p") is kept
    os.utime(folder / "agent.cordis.yml", ns=(1, 1))
    assert roster.get("p") is not kept
    time.sleep(0.2)
    assert roster.get("p") is roster.get("p")
    write_preset(tmp_path, "p", [persona("evil")])
    assert text_of(roster.get("p")) == "evil"


def test_no_change_is_missed_however_fast_it_follows_the_last(tmp_path: Path) -> None:
    """The times of a file move in steps: writes of one size within a step cannot be told apart by them."""
    roster = Roster([Root(tmp_path)])
    for number in range(100, 160):
        write_preset(tmp_path, "p", [persona(str(number))])
        assert text_of(roster.get("p")) == str(number)


def test_a_change_while_the_file_is_read_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cordisd.agent import preset

    write_preset(tmp_path, "p", [persona("old")])
    time.sleep(0.2)
    read = preset.load

    def read_and_replace(*args: object, **options: object) -> object:
        loaded = read(*args, **options)  # type: ignore[arg-type]
        write_preset(tmp_path, "p", [persona("new")])
        return loaded

    roster = Roster([Root(tmp_path)])
    monkeypatch.setattr(preset, "load", read_and_replace)
    assert text_of(roster.get("p")) == "old"
    monkeypatch.undo()
    assert text_of(roster.get("p")) == "new"


LIST = """
import sys
from pathlib import Path
from cordisd.agent.preset import Root, Roster
print({one.name: one.problem for one in Roster([Root(Path(sys.argv[1]))]).list()})
"""


def test_a_preset_that_must_not_be_read_is_broken_and_a_folder_that_must_not_be_looked_into_is_none(
    tmp_path: Path,
) -> None:
    write_preset(tmp_path, "closed", GOOD).chmod(0)
    secret = write_preset(tmp_path, "secret", GOOD) / "agent.cordis.yml"
    secret.chmod(0)
    command = [sys.executable, "-c", LIST, str(tmp_path)]
    done = subprocess.run([*without_capabilities(), *command], capture_output=True, text=True, check=True)
    (tmp_path / "closed").chmod(0o755)
    assert done.stdout.startswith("{'secret': '") and "Permission denied" in done.stdout


async def roster_of(raw: dict[str, object]) -> Roster:
    scope = Scope("host")
    async with PresetsEntry(PresetsEntry.read_config(raw)).mount(scope):
        return scope.get(Roster)


def test_the_folder_of_the_user_comes_last_and_can_be_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("DSH_HOME", str(tmp_path / "home"))
    theirs = write_preset(tmp_path / "home" / ".agent-presets", "minimal", [persona("mine")])
    write_preset(theirs.parent, "own", GOOD)
    shipped = {one.name: one.trust for one in asyncio.run(roster_of({})).list()}
    assert shipped.items() >= {"minimal": "system", "rl-minimal-v1": "system", "own": "user"}.items()
    assert "own" not in problems(asyncio.run(roster_of({"includeUserRoot": False})))
    roots = [{"path": str(tmp_path / "empty"), "trust": "user"}]
    assert list(problems(asyncio.run(roster_of({"roots": roots})))) == ["minimal", "own"]
    caplog.clear()
    assert problems(asyncio.run(roster_of({"roots": roots, "includeUserRoot": False}))) == {}
    assert caplog.messages == [f"presets: the root {tmp_path}/empty is no folder; there are no presets in it"]
    monkeypatch.delenv("DSH_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "elsewhere"))
    write_preset(tmp_path / "elsewhere" / ".dsh" / ".agent-presets", "homely", GOOD)
    assert "homely" in problems(asyncio.run(roster_of({})))

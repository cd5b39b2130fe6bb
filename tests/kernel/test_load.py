from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cordisd.errors import CompositionError
from cordisd.kernel.load import load
from daemon import module_path
from kernel.conftest import Folder

REFERENCE = Path(__file__).resolve().parents[3] / "shared" / "bench" / "reference.cordis.yml"


def test_entries_come_in_file_order_and_split_by_lifetime(folder: Folder) -> None:
    composition = folder.load("""
        - {id: a, name: $Sample, config: {text: hello}}
        - {id: b, name: $SessionSample}
        - {id: c, name: $Sample}
    """)
    assert [entry.id for entry in composition.entries] == ["a", "b", "c"]
    assert [entry.id for entry in composition.host] == ["a", "c"]
    assert [entry.id for entry in composition.session] == ["b"]
    assert composition.entries[0].config.text == "hello"
    assert composition.entries[0].where == f'{folder.path}/c.yml:2, entry "a"'
    assert composition.path == folder.path / "c.yml"
    assert composition.warnings == ()


def test_an_empty_list_is_a_composition_of_nothing(folder: Folder) -> None:
    assert folder.load("[]").entries == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "c.yml: is empty; write a list of entries, or [] for none"),
        ("id: a\n", "c.yml:1: must be a list of entries, not a mapping"),
        ("just text\n", "c.yml:1: must be a list of entries, not 'just text'"),
        ("- text\n", "c.yml:1: an entry must be a mapping with a name, not 'text'"),
        ("-\n", "c.yml:1: an entry must be a mapping with a name, not nothing"),
        ("- {id: a}\n", 'c.yml:1, entry "a": has no name; an entry names what it loads'),
        ("- {id: a, name: 5}\n", "c.yml:1, entry \"a\": name must be a non-empty string, not '5'"),
        ("- {id: a, name: ''}\n", "c.yml:1, entry \"a\": name must be a non-empty string, not ''"),
        ("- {id: 5, name: $Sample}\n", "c.yml:1, entry \"#1\": id must be a non-empty string, not '5'"),
        (
            "- {id: a, name: $Sample, config: [1]}\n",
            'c.yml:1, entry "a": config must be a mapping, not a list',
        ),
        (
            "- {id: a, name: $Sample, disabled: 'yes'}\n",
            "c.yml:1, entry \"a\": disabled must be true, false or !!js, not 'yes'",
        ),
        (
            "- {id: a, name: $Sample, group: maybe}\n",
            "c.yml:1, entry \"a\": group must be true or false, not 'maybe'",
        ),
        (
            "- {id: a, name: $Sample, confg: {}}\n",
            'c.yml:1, entry "a": unknown entry field "confg" (did you mean "config"?); '
            "allowed: id, name, config, disabled, group, inject, intercept, isolate",
        ),
        (
            "- id: a\n  name: !!js process.env.NAME\n",
            'c.yml:2, entry "a": name must be written out; !!js is evaluated in config and disabled only',
        ),
        (
            "- id: a\n  name: $Sample\n  isolate:\n    x: !!js process.env.Y\n",
            'c.yml:4, entry "a": isolate must be written out; !!js is evaluated in config and disabled only',
        ),
        (
            "- id: a\n  name: $Sample\n  config:\n    text: !!js JSON.parse(process.env.A ?? '')\n",
            "c.yml:4, entry \"a\": JSON.parse: '' is not JSON: Expecting value: line 1 column 1 (char 0)",
        ),
        (
            "- id: a\n  name: $Sample\n  config:\n    extra: [1, !!js process.env.A]\n",
            'c.yml:4, entry "a": is undefined; a list cannot hold that',
        ),
    ],
)
def test_a_malformed_row_is_one_problem_at_its_place(folder: Folder, text: str, problem: str) -> None:
    found = folder.problems(text)
    assert found[0] == problem
    assert all("name must be" in extra for extra in found[1:])


@pytest.mark.parametrize(
    "text",
    [
        "- &a {id: a, name: $Sample, config: {extra: *a}}\n",
        "- {id: g, name: cordis:group, config: &a [{id: h, name: cordis:group, config: *a}]}\n",
        "- {id: a, name: $Sample, config: {extra: !!int x}}\n",
        "- {id: a, name: $Sample, disabled: !!js {x: 1}}\n",
        "- {id: a, name: $Sample, config: !!js [1]}\n",
        "- {id: a, name: !!seq x}\n",
        "- !!map x\n",
        "!!js 1\n",
    ],
)
def test_a_document_that_is_unsound_is_not_read_on(folder: Folder, text: str) -> None:
    (problem,) = folder.problems(text)
    assert "levels" in problem or "tag" in problem or "must be a list" in problem


def test_a_missing_file_and_a_directory_are_one_problem(tmp_path: Path) -> None:
    for path, message in [(tmp_path / "no.yml", "config file not found"), (tmp_path, "is a directory")]:
        with pytest.raises(CompositionError) as caught:
            load(path)
        assert [problem.where for problem in caught.value.problems] == [str(path)]
        assert message in str(caught.value)


def test_a_relative_path_is_named_as_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.yml").write_text("- {}\n")
    with pytest.raises(CompositionError, match=r'^c\.yml:1, entry "#1": has no name'):
        load("c.yml")


def test_every_problem_is_reported_in_file_order(folder: Folder) -> None:
    problems = folder.problems("""
        - {id: a, name: $Sample, config: {timeoutMs: 0}}
        - {id: b, name: nowhere}
        - {id: a, name: $Sample}
        - id: c
          name: $Sample
          config: {timeoutMs: "5", ratio: .nan, ratio: 1}
          disbled: true
        - {id: d, name: $Sample, disabled: !!js oops}
    """)
    assert [problem.split(":")[1].split(",")[0] for problem in problems] == [
        "2",
        "3",
        "4",
        "7",
        "7",
        "8",
        "9",
    ]


def test_a_duplicate_id_names_both_lines_and_counts_disabled_rows(folder: Folder) -> None:
    assert folder.problems("""
        - {id: a, name: $Sample, disabled: true}
        - {id: b, name: $Sample}
        - {id: a, name: $Sample}
    """) == ['c.yml:4, entry "a": duplicate loader entry id: "a" is already used at c.yml:2']


def test_lists_of_different_groups_may_use_the_same_id(folder: Folder) -> None:
    composition = folder.load("""
        - {id: a, name: $Sample}
        - {id: g, name: cordis:group, config: [{id: a, name: $Sample}]}
    """)
    assert [entry.id for entry in composition.entries] == ["a", "a"]


def test_rows_without_an_id_are_called_by_their_place(folder: Folder) -> None:
    text = "- name: $Sample\n- {id: x, name: $Sample}\n- name: $Sample\n"
    assert [entry.id for entry in folder.load(text).entries] == ["#1", "x", "#3"]
    assert [entry.id for entry in folder.load(text).entries] == ["#1", "x", "#3"]


def test_groups_are_flattened_in_order(folder: Folder) -> None:
    composition = folder.load("""
        - {id: a, name: $Sample}
        - id: g
          name: cordis:group
          config:
            - {id: b, name: $Sample}
            - {id: h, group: true, config: [{id: c, name: $Sample}]}
        - {id: empty, name: cordis:group}
        - {id: off, name: cordis:group, disabled: true, config: [{id: x, name: nowhere}]}
        - {id: d, name: $Sample}
    """)
    assert [entry.id for entry in composition.entries] == ["a", "b", "c", "d"]
    assert composition.entries[2].where.endswith('c.yml:7, entry "c"')


def test_a_group_holds_a_list_and_has_no_other_name(folder: Folder) -> None:
    assert folder.problems("""
        - {id: g, name: cordis:group, config: {a: 1}}
        - {id: h, name: $Sample, group: true, config: []}
    """) == [
        "c.yml:2: must be a list of entries, not a mapping",
        'c.yml:3, entry "h": a group is named cordis:group or has no name, not "$Sample"',
    ]


def test_disabled_is_evaluated_and_its_row_is_not_imported(folder: Folder) -> None:
    folder.env = {"ON": "1"}
    composition = folder.load("""
        - {id: a, name: kernel.broken_entries:Nothing, disabled: true}
        - {id: b, name: nowhere, disabled: !!js process.env.ON === '1'}
        - {id: c, name: $Sample, disabled: !!js process.env.OFF}
        - {id: d, name: $Sample, disabled: false}
        - {id: e, name: $Sample, disabled: null}
        - {id: f, name: nowhere, disabled: !!js "process.env.OFF === undefined ? true : false"}
    """)
    assert [entry.id for entry in composition.entries] == ["c", "d", "e"]
    assert "kernel.broken_entries" not in sys.modules


def test_inject_and_intercept_are_accepted_and_isolate_is_kept(folder: Folder) -> None:
    composition = folder.load("""
        - id: g
          name: cordis:group
          isolate: {terminals: true, files: shared-files}
          config:
            - {id: a, name: $Sample, inject: [bash], intercept: {http: {}}}
            - {id: b, name: $Sample, inject: {bash: {}}, isolate: {files: false}}
        - {id: c, name: $Sample}
    """)
    private = f'private {folder.path}/c.yml:2, entry "g"'
    assert [dict(entry.isolate) for entry in composition.entries] == [
        {"terminals": private, "files": "shared shared-files"},
        {"terminals": private},
        {},
    ]
    assert [folder.short(str(warning)) for warning in composition.warnings] == [
        'c.yml:6, entry "a": intercept has no effect yet'
    ]


def test_nothing_is_written_back_into_a_composition(folder: Folder) -> None:
    path = folder.write("- {id: a, name: $Sample, disabled: !!js process.env.X}\n")
    before = (path.read_bytes(), path.stat().st_mtime_ns)
    load(path)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert os.listdir(folder.path) == ["c.yml"]


def test_a_good_composition_is_loaded_without_the_modules_that_only_errors_need(folder: Folder) -> None:
    path = folder.write("- {id: a, name: $Sample, config: {text: !!js process.env.A ?? 'x'}}\n")
    script = (
        "import sys; from cordisd.kernel.load import load; load(sys.argv[1]); "
        "print([name for name in ('difflib', 'aiohttp', 'yaml.cyaml') if name in sys.modules])"
    )
    root = Path(__file__).resolve().parents[1]
    environment = {**os.environ, "PYTHONPATH": module_path(root)}
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "['yaml.cyaml']\n"


@pytest.mark.skipif(not REFERENCE.exists(), reason="the shared documents are not beside this checkout")
def test_the_reference_s_own_composition_loads() -> None:
    composition = load(REFERENCE, env={})
    by_id = {entry.id: entry for entry in composition.entries}
    expected = "rpc llm-deepseek sandbox sandbox-policy subprocess pty terminal-bash fs-local agent-spine"
    assert " ".join(by_id) == f"{expected} persistent-bash str-replace-editor sessions"
    assert composition.warnings == ()
    assert by_id["persistent-bash"].entry_class.lifetime == "session"

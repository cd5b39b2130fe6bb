"""A path in a configuration is relative to the file that it is written in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cordisd.kernel.load import load
from kernel.conftest import Folder
from kernel.sample_entries import Rooted


def _path(folder: Folder, path: str) -> str:
    return folder.load(f"- {{id: a, name: $Rooted, config: {{path: {path}}}}}\n").entries[0].config.path


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("presets", "presets"),
        ("./a/../b/", "b"),
        (".", "."),
        ("'~/presets'", "~/presets"),
        ("'~'", "~"),
        ("' a '", " a "),
        ("!!js process.env.ROOTS ?? 'presets'", "presets"),
        ("!!js process.env.SET ?? 'presets'", "from/environment"),
    ],
)
def test_a_path_is_relative_to_its_file(folder: Folder, written: str, read: str) -> None:
    folder.env = {"SET": "from/environment"}
    assert _path(folder, written) == os.path.normpath(folder.path / read)


def test_an_absolute_path_stays(folder: Folder) -> None:
    assert _path(folder, "/etc/x") == "/etc/x"
    assert _path(folder, "!!js process.cwd() + '/x'") == f"{os.getcwd()}/x"


def test_a_path_may_be_deep_in_a_configuration(folder: Folder) -> None:
    config = (
        folder.load("""
        - id: a
          name: $Rooted
          config:
            roots: [{path: one, trust: system}, {path: ../two}]
            byName: {x: three, y: null}
    """)
        .entries[0]
        .config
    )
    assert [root.path for root in config.roots] == [f"{folder.path}/one", f"{folder.path.parent}/two"]
    assert config.by_name == {"x": f"{folder.path}/three", "y": None}
    assert config.path == "default"


def test_included_files_and_patches_have_folders_of_their_own(folder: Folder) -> None:
    folder.write("- {id: a, name: $Rooted, config: {path: x}}\n- {id: b, name: $Rooted}\n", "part/part.yml")
    patch = folder.write("- {id: a, config: {path: x}}\n", "patches/patch.yml")
    text = "- id: i\n  name: cordis:include\n  config:\n    path: part/part.yml\n    patches:\n"
    text += "      - {id: b, config: {path: x}}\n"
    paths = [entry.config.path for entry in folder.load(text).entries]
    assert paths == [f"{folder.path}/part/x", f"{folder.path}/x"]
    paths = [entry.config.path for entry in folder.load(text, patches=[patch]).entries]
    assert paths == [f"{folder.path}/patches/x", f"{folder.path}/x"]


def test_a_composition_named_by_a_relative_path_gives_absolute_ones(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write("- {id: a, name: $Rooted, config: {path: x}}\n", "part/c.yml")
    monkeypatch.chdir(folder.path / "part")
    assert load("c.yml").entries[0].config.path == f"{folder.path}/part/x"


@pytest.mark.parametrize("path", ["''", r'"a\0b"', "5", "!!js process.env.EMPTY"])
def test_what_can_be_no_path_is_a_problem_of_its_key(folder: Folder, path: str) -> None:
    folder.env = {"EMPTY": ""}
    [problem] = folder.problems(f"- id: a\n  name: $Rooted\n  config:\n    path: {path}\n")
    assert problem.startswith('c.yml:4, entry "a": invalid config: $.path')


@pytest.mark.parametrize(
    ("entry", "root"), [("RootedWithKeywords", "{folder}/mine"), ("RootedInItsWay", "{here}/mine")]
)
def test_an_entry_that_reads_its_configuration_itself_still_loads(
    folder: Folder, entry: str, root: str
) -> None:
    config = folder.load(f"- {{id: a, name: ${entry}, config: {{}}}}\n").entries[0].config
    assert config.roots[0].path == root.format(folder=folder.path, here=os.getcwd())


def test_without_a_file_a_path_is_relative_to_the_working_directory(tmp_path: Path) -> None:
    assert Rooted.read_config({"path": "x"}).path == f"{os.getcwd()}/x"
    assert Rooted.read_config({"path": "x"}, folder=str(tmp_path)).path == f"{tmp_path}/x"

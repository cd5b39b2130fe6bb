from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cordisd.kernel.names import OURS, PUBLISHED, EntryNameError, resolve
from kernel.conftest import Folder


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the import path; distributions with entry points are written into it."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    return site


def _install(site: Path, distribution: str, entry_points: str) -> None:
    info = site / f"{distribution}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[cordisd.entries]\n{entry_points}\n")


def test_published_names_work_with_and_without_their_scope() -> None:
    for name in PUBLISHED:
        for spelled in (name, f"@deepseek-ai/{name}"):
            assert resolve(spelled).reference == PUBLISHED[name]
            assert resolve(spelled).is_published


def test_our_names_are_not_lenient_but_their_aliases_are() -> None:
    assert resolve("bash") == resolve("bash")
    assert not resolve("bash").is_published
    assert resolve("dsh-tool-bash-persistent").reference == OURS["bash"]


def test_an_entry_point_of_an_installed_plug_in_is_found(folder: Folder, installed: Path) -> None:
    _install(installed, "one", "my-tool = kernel.sample_entries:Sample")
    assert list(folder.configs("- {id: a, name: my-tool}")) == ["a"]


def test_a_plug_in_cannot_shadow_a_built_in_or_published_name(installed: Path) -> None:
    _install(installed, "one", "bash = evil:Bash\ndsh-terminal = evil:T\n@deepseek-ai/dsh-terminal = evil:T")
    assert resolve("bash").reference == OURS["bash"]
    assert resolve("dsh-terminal").reference == PUBLISHED["dsh-terminal"]
    assert resolve("@deepseek-ai/dsh-terminal").reference == PUBLISHED["dsh-terminal"]


def test_a_name_that_two_plug_ins_register_is_refused(installed: Path) -> None:
    _install(installed, "one", "my-tool = a:A")
    _install(installed, "two", "my-tool = b:B")
    with pytest.raises(EntryNameError, match='"my-tool" is registered by several plug-ins: a:A, b:B'):
        resolve("my-tool")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bsh", 'failed to import loader entry: unknown name "bsh" (did you mean "bash"?)'),
        ("@deepseek-ai/dsh-llm-deepsek", '(did you mean "dsh-llm-deepseek"?)'),
        ("@other/dsh-terminal", 'unknown name "@other/dsh-terminal"'),
        ("deepseek", "known are agent, bash, host-section, limits, openai, persona, presets, profile, "),
        ("./plugin.js", 'unknown name "./plugin.js"'),
        (
            "kernel.nowhere:Thing",
            "failed to import kernel.nowhere:Thing: ModuleNotFoundError: No module named",
        ),
        (
            "kernel.broken_entries:X",
            "failed to import kernel.broken_entries:X: ValueError: this plug-in is broken",
        ),
        ("$Missing", "$Missing does not exist"),
        ("$NotAnEntry", "$NotAnEntry is not a subclass of cordisd.kernel.entry.Entry"),
        ("$Annotated", "$Annotated is not a subclass of"),
    ],
)
def test_a_name_that_stands_for_nothing_is_one_problem_with_the_nearest(
    folder: Folder, name: str, message: str
) -> None:
    (problem,) = folder.problems(f"\n- id: a\n  name: '{name}'\n")
    assert problem.startswith('c.yml:3, entry "a": ')
    assert message in problem


def test_only_modules_of_used_entries_are_imported(folder: Folder) -> None:
    sys.modules.pop("cordisd.entries.plumbing", None)
    folder.load("- {id: a, name: $Sample}")
    assert "cordisd.entries.plumbing" not in sys.modules

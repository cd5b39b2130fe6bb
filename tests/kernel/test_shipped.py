from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import cordisd.shipped
from cordisd.shipped import composition_path, shipped, shipped_names, shipped_recording

ROOT = Path(cordisd.shipped.__file__).resolve().parents[2]


def test_the_minimal_composition_of_a_checkout_is_found_by_all_its_names() -> None:
    path = shipped("minimal")
    assert path == ROOT / "minimal.cordis.yml"
    assert shipped("sdk") == shipped("sdk-minimal") == path
    assert "minimal" in shipped_names()
    assert "sdk" not in shipped_names()


@pytest.mark.parametrize(
    "name", ["nothing", "", "../minimal", "./minimal", "MINIMAL", "minimal.cordis.yml", "a/b"]
)
def test_anything_else_is_not_shipped(name: str) -> None:
    assert shipped(name) is None
    assert composition_path(name) == Path(name)


def test_a_shipped_name_wins_over_a_file_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("minimal").touch()
    assert composition_path("minimal") == shipped("minimal")
    assert composition_path("./minimal") == Path("minimal")


def test_an_installed_package_finds_its_own_files_and_nothing_outside(tmp_path: Path) -> None:
    site = tmp_path / "runtime-less" / "site-packages"
    presets = site / "cordisd" / "_presets"
    (presets / "presets" / "recordings").mkdir(parents=True)
    shutil.copy(cordisd.shipped.__file__, site / "cordisd" / "shipped.py")
    (site / "cordisd" / "__init__.py").touch()
    for relative in ("minimal.cordis.yml", "presets/demo.cordis.yml", "presets/recordings/demo.jsonl"):
        (presets / relative).touch()
    (tmp_path / "outside.cordis.yml").touch()
    script = (
        "from cordisd.shipped import *; "
        "print(shipped('minimal'), shipped('demo'), shipped_recording('demo'), "
        "shipped('outside'), shipped_names())"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(site)!r}); {script}"],
        capture_output=True,
        text=True,
        check=True,
    )
    found = done.stdout.replace(f"{presets}/", "")
    assert found == (
        "minimal.cordis.yml presets/demo.cordis.yml presets/recordings/demo.jsonl None ['demo', 'minimal']\n"
    )


def test_a_recording_that_is_not_there_is_none() -> None:
    assert shipped_recording("no-such-recording") is None
    assert shipped_recording("../demo") is None

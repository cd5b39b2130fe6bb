"""The wheel holds what it should, and works in a fresh environment."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from daemon import clean_environment

ROOT = Path(__file__).parents[1]


def pip(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", *arguments, "-q", "--disable-pip-version-check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
    )
    if done.returncode and not os.environ.get("CI"):
        pytest.skip(f"the registry cannot be reached: {done.stderr[-200:]}")
    assert done.returncode == 0, done.stderr


@pytest.mark.timeout(300)
def test_the_wheel_runs_the_demo_in_a_fresh_environment(tmp_path: Path) -> None:
    pip("wheel", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT))
    [wheel] = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    top = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert top == {"cordisd", "cordisd_sdk"}
    assert "cordisd/_presets/minimal.cordis.yml" in names
    assert "cordisd/_presets/presets/recordings/demo.jsonl" in names
    assert "cordisd/_presets/presets/profiles.lock" in names
    venv.create(tmp_path / "fresh")
    python = tmp_path / "fresh" / "bin" / "python"
    pip("--python", str(python), "install", "--no-compile", str(wheel))
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    done = subprocess.run(
        [str(python.with_name("cordisd")), "demo"],
        cwd=folder,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "durations.py" in done.stdout
    assert "4 checks passed" in done.stderr
    verified = subprocess.run(
        [str(python.with_name("cordisd")), "profile", "verify"],
        cwd=folder,
        env=clean_environment(DSH_HOME=str(tmp_path / "home")),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (verified.returncode, verified.stderr) == (0, "")
    assert verified.stdout.startswith("ok: rl-minimal-v1 sha256:")
    assert list(folder.iterdir()) == []

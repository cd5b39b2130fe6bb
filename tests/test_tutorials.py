"""The tutorials run, without a key, and their claims hold."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from daemon import clean_environment

TUTORIALS = sorted((Path(__file__).parents[1] / "tutorials").glob("*.py"))


@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.name)
def test_a_tutorial_runs_as_written(tutorial: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(tutorial)],
        cwd=tmp_path,
        env=clean_environment(TMPDIR=str(tmp_path)),
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert list(tmp_path.iterdir()) == [], "a tutorial leaves nothing behind"

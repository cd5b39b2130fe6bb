"""`cordisd demo` needs no key and no network, and shows a whole rollout."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import processes
from cordisd.shipped import shipped, shipped_recording
from daemon import clean_environment

COMMAND = [sys.executable, "-m", "cordisd", "demo"]


def demo(*words: str, tmp: Path, **env: str) -> subprocess.CompletedProcess[str]:
    mark = f"TEST_{os.urandom(8).hex()}"
    done = subprocess.run(
        [*COMMAND, *words],
        env=clean_environment(TMPDIR=str(tmp), **{mark: "1"}, **env),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert processes.gone_within(mark)
    return done


def test_the_demo_runs_its_tools_for_real_and_cleans_up_whatever_the_environment_says(tmp_path: Path) -> None:
    settings = {"DSH_SNAPSHOT_FILE": "/nowhere", "DSH_SNAPSHOT_OVERRIDE": "/nowhere", "DSH_MODEL": "x"}
    done = demo(tmp=tmp_path, **settings)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("`durations.py` is done")
    story = done.stderr
    assert "$ python3 durations.py" in story
    assert "AssertionError: 45s: expected 45, got 5" in story
    assert story.index("AssertionError") < story.index("edit: str_replace") < story.index("4 checks passed")
    assert list(tmp_path.iterdir()) == []


def test_keep_leaves_the_workspace_and_the_log_and_says_where(tmp_path: Path) -> None:
    done = demo("--keep", "--session-root", str(tmp_path / "logs"), tmp=tmp_path)
    assert done.returncode == 0, done.stderr
    workspace = re.search(r"^workspace: (.*)$", done.stderr, re.MULTILINE)
    log = re.search(r"^log: (.*)$", done.stderr, re.MULTILINE)
    assert workspace and log
    assert r"(\d+)([hms])" in Path(workspace[1], "durations.py").read_text()
    assert Path(log[1]).is_relative_to(tmp_path / "logs")
    last = json.loads(Path(log[1]).read_bytes().splitlines()[-1])
    assert (last["type"], last["data"]["reason"]["kind"]) == ("turn/end", "completed")


def test_composition_and_recording_are_shipped() -> None:
    composition, recording = shipped("demo"), shipped_recording("demo")
    assert composition is not None and recording is not None
    lines = [json.loads(line) for line in recording.read_bytes().splitlines()]
    assert lines[0]["cwd"] == "{{cwd}}"
    assert all("seq" not in line and "time" not in line for line in lines[1:])

"""Tests of an agent without a model: record once, replay strictly, see what drifted, refresh.

    python tutorials/03_replay.py

The model is `cordisd.mock`, a server on loopback, so this runs without a key; put your endpoint in its place.
Every claim below is checked; the script fails if one is not true. It needs pytest.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from cordisd.mock import MockModelThread, call, text

# A test module. `cordisd_session` is a session of a real daemon with real tools, from the plugin that comes
# with the SDK; `cordisd_options` says what the daemon is started with, here for every test of the module.
TEST_MODULE = """
import os
import pytest

@pytest.fixture
def cordisd_options():
    return {"composition": "minimal", "base_url": os.environ.get("MODEL_URL", "http://no-model.invalid")}

def test_the_agent_counts_the_files(cordisd_session, cordisd_workspace):
    (cordisd_workspace / "one.txt").touch()
    (cordisd_workspace / "two.txt").touch()
    result = cordisd_session.run("How many files are here?")
    assert result.final_response == "There are 2 files."
"""
RECORDING = "recordings/test_agent/test_the_agent_counts_the_files.jsonl"


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_agent.py").write_text(TEST_MODULE)

        # 1. Record: the only time that there is a model. What it said and what it was asked are in one file,
        # a JSON object per line, without keys, to be reviewed and committed beside the test.
        script = [call("c1", "bash", {"command": "ls | wc -l"}), text("There are 2 files.")]
        with MockModelThread(script) as model:
            pytest_says(folder, "--cordisd-record", MODEL_URL=model.url)
        recording = folder / RECORDING
        recorded = recording.read_bytes()
        print("recorded:", len(recorded.splitlines()), "lines")

        # 2. Replay: no model, no key, no socket. The bash call has run for real, and its output was compared.
        pytest_says(folder)

        # 3. The prompt drifts. The test fails before anything is answered, and its failure is the difference,
        # whatever the test itself has seen of it. A tool, a parameter or a tool's result does the same.
        drifted = "You are a helpful assistant for software engineers."
        output = pytest_says(folder, fails=True, DSH_SYSTEM_PROMPT=drifted)
        print(output[output.index("request 1 of 2") : output.index("record it again")])
        assert "request 1 of 2: messages[0] (system).content differs" in output
        assert "-You are a helpful software engineer assistant." in output
        assert f"+{drifted}" in output
        assert "Traceback" not in output and "assert result" not in output

        # 4. The new prompt is meant: refresh. What is asked is written anew, the model's answers stay.
        pytest_says(folder, "--cordisd-refresh", DSH_SYSTEM_PROMPT=drifted)
        pytest_says(folder, DSH_SYSTEM_PROMPT=drifted)
        changed = set(recording.read_bytes().splitlines()) - set(recorded.splitlines())
        print("refreshed:", len(changed), "lines are others")
        assert {json.loads(line)["type"] for line in changed} <= {"request", "end"}  # the end has a hash

        # `cordisd replay` plays the same file, or a folder of them, without pytest: it sends the recorded
        # prompts itself. The workspace of this test was not empty, so here its tools' results are played too.
        # `cordisd record --out FOLDER TASK` makes such a file on the command line.
        command = [sys.executable, "-m", "cordisd", "replay", "--tools", "recorded", str(recording)]
        env = {**os.environ, "DSH_SYSTEM_PROMPT": drifted}
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        assert done.returncode == 0 and done.stdout.startswith("ok "), done


def pytest_says(folder: Path, *options: str, fails: bool = False, **environment: str) -> str:
    """The output of pytest in `folder`, which has to pass, or fail; it leaves nothing elsewhere."""
    inside = ["-p", "no:cacheprovider", "--basetemp", str(folder / "tmp")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "cordisd_sdk.pytest", *inside, *options],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == (1 if fails else 0), done.stdout + done.stderr
    return done.stdout


if __name__ == "__main__":
    main()

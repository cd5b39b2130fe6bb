"""The published clients, unmodified, drive our daemon."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cordisd.mock import MockModelThread, Received, Reply, calls, error, text
from daemon import clean_environment, module_path
from measure import SOON_S
from processes import gone_within

pytestmark = pytest.mark.alone  # the published clients allow a daemon one second, then they kill it

VERSIONS = ("0.1.1rc1", "0.1.5rc1", "0.2.1rc2")
DRIVER = Path(__file__).parent / "drive_published.py"


@pytest.fixture(scope="module", params=VERSIONS)
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A published client's version and the folder that it is installed in, alone."""
    version: str = request.param
    prepared = os.environ.get("CORDISD_CLIENTS")
    folder = Path(prepared, version) if prepared else tmp_path_factory.mktemp(version)
    if not (folder / "deepseek_harness").is_dir():
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder)]
        done = subprocess.run(
            [*command, f"deepseek-harness-sdk=={version}"], capture_output=True, text=True, timeout=120
        )
        if done.returncode and not os.environ.get("CI"):
            pytest.skip(f"the registry cannot be reached: {done.stderr[-200:]}")
        assert done.returncode == 0, done.stderr
    return version, folder


def answer(request: Received) -> Reply:
    """What the model says to the last prompt; after tool results it is done."""
    last = request.json["messages"][-1]
    if last["role"] == "tool":
        return text("tools are done")
    match last["content"].split():
        case ["tools"]:
            path = request.json["messages"][0]["content"].removeprefix("in ") + "/made.txt"
            create = {"command": "create", "path": path, "file_text": "one\n"}
            replace = {"command": "str_replace", "path": path, "old_str": "one", "new_str": "two"}
            return calls(
                ("c1", "bash", {"command": "export X=7; cd /tmp; echo $X"}),
                ("c2", "bash", {"command": "echo $X $PWD"}),
                ("c3", "str_replace_editor", create),
                ("c4", "str_replace_editor", replace),
                ("c5", "bash", {"command": f"cat {path}"}),
            )
        case ["sleep"]:
            return calls(("c1", "bash", {"command": "trap '' TERM; setsid sleep 311 & sleep 312"}))
        case ["error"]:
            return error(400, "the model is not in the mood")
        case ["queued", number]:
            return text(f"answer {number}")
        case _:
            return text("hel", "lo")


def drive(
    client: tuple[str, Path],
    scenario: str,
    work: Path,
    url: str,
    marker: str = "",
    command: str | None = None,
) -> Any:
    version, folder = client
    if command is None:
        command = shutil.which("cordisd", path=str(Path(sys.executable).parent)) or shutil.which("cordisd")
    assert command, "cordisd is not installed"
    done = subprocess.run(
        [sys.executable, str(DRIVER), version, scenario, command, str(work), url],
        env=clean_environment(
            PYTHONPATH=module_path(folder), DSH_SYSTEM_PROMPT="in {{cwd}}", CASE_MARKER=marker
        ),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_conversation_with_tools_a_queue_and_an_error(client: tuple[str, Path], tmp_path: Path) -> None:
    work = tmp_path / "w"
    work.mkdir()
    with MockModelThread(answer) as mock:
        seen = drive(client, "converse", work, mock.url)
    assert (seen["text"]["final"], seen["text"]["finish"]) == ("hello", "completed")
    assert seen["streamed"] >= 2
    results = seen["tools"]["results"]
    assert results[0] == "7"
    assert results[1] == "7 /tmp"
    assert results[4] == "two"
    assert (seen["tools"]["final"], seen["tools"]["finish"]) == ("tools are done", "completed")
    assert [seen["queued"][str(number)]["finish"] for number in range(3)] == ["completed"] * 3
    assert seen["queued"]["2"]["final"] == "answer 2"
    assert (seen["error"]["final"], seen["error"]["finish"]) == ("", "error")
    assert (seen["after"]["final"], seen["after"]["finish"]) == ("hello", "completed")
    assert seen["exit"] == 0
    if client[0] == "0.2.1rc2":
        assert seen["moved"] == seen["directory"] == str(work / "sub")
    logs = work.with_name("w-sessions") if client[0] == "0.1.1rc1" else work.with_name("w-home") / "sessions"
    [log] = logs.glob("*/talk/session.jsonl")
    assert json.loads(log.read_bytes().splitlines()[0])["id"] == "talk"


def test_closing_mid_command_is_prompt_and_leaves_no_process(
    client: tuple[str, Path], tmp_path: Path
) -> None:
    work = tmp_path / "w"
    work.mkdir()
    marker = f"close-{tmp_path.name}-{os.getpid()}"
    with MockModelThread(answer) as mock:
        seen = drive(client, "close_mid_command", work, mock.url, marker)
    assert seen["exit"] == 0
    assert seen["took_s"] < SOON_S, "the command would run for minutes"
    assert gone_within(f"CASE_MARKER={marker}")


def test_the_newest_client_resumes_a_stored_session(client: tuple[str, Path], tmp_path: Path) -> None:
    if client[0] != "0.2.1rc2":
        pytest.skip("older clients cannot resume")
    work = tmp_path / "w"
    work.mkdir()
    with MockModelThread(answer) as mock:
        drive(client, "converse", work, mock.url)
        seen = drive(client, "resume", work, mock.url)
        assert seen["after"]["final"] == "hello"
        assert len(mock.requests[-1].json["messages"]) > 10


def test_turns_that_limits_end_are_results_like_others(client: tuple[str, Path], tmp_path: Path) -> None:
    work = tmp_path / "w"
    work.mkdir()
    limits = {"id": "limits", "name": "limits", "config": {"maxTurns": 1, "maxSessionTurns": 2}}
    patch = tmp_path / "patch.yml"
    patch.write_text(json.dumps([{"insert": [limits]}]))
    command = tmp_path / "limited"
    serve = f"{sys.executable} -m cordisd serve --stdio minimal --patch {patch}"
    command.write_text(f"#!/bin/sh\nDSH_SESSION_ROOT={tmp_path}/logs exec {serve}\n")
    command.chmod(0o755)
    with MockModelThread(answer) as mock:
        seen = drive(client, "reach_limits", work, mock.url, command=str(command))
        assert len(mock.requests) == 3
    assert [seen[name]["finish"] for name in ("stopped", "second", "refused")] == ["aborted"] * 3
    assert len(seen["stopped"]["results"]) == 5
    assert seen["refused"]["kinds"][-3:] == ["user/message", "step/end", "turn/end"]
    assert (seen["other"]["finish"], seen["other"]["final"]) == ("completed", "hello")

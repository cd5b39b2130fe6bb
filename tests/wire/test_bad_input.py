"""Mistakes on purpose: each gives one clear message that names the place, and no traceback."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cordisd.mock import MockModelThread, call, text
from daemon import Daemon, clean_environment
from measure import PATIENCE_S

GOOD = Path(__file__).parents[2] / "minimal.cordis.yml"


def serve(composition: Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cordisd", str(composition)],
        cwd=cwd,
        env=clean_environment(**environment),
        input="",
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("timeoutMs: 300000", "timeoutMS: 300000", ["bad.yml:", 'entry "bash"', "timeoutMS", "timeoutMs"]),
        ("timeoutMs: 300000", "timeoutMs: soon", ["bad.yml:", 'entry "bash"', "timeoutMs"]),
        ("name: bash", "name: bahs", ["bad.yml:", "bahs", '"bash"']),
        ("- id: editor", "- id: bash", ["bad.yml:", "bash", "duplicate"]),
        ("- id: editor\n", "- id: editor\n id: x\n", ["bad.yml:"]),
        ("!!js process.env.DSH_SYSTEM_PROMPT", "!!js eval('1')", ["bad.yml:", "eval"]),
    ],
)
def test_a_broken_composition_is_named_with_file_and_line(
    old: str, new: str, said: list[str], tmp_path: Path
) -> None:
    content = GOOD.read_text()
    assert old in content
    (tmp_path / "bad.yml").write_text(content.replace(old, new))
    ended = serve(tmp_path / "bad.yml", tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "Traceback" not in ended.stderr
    assert all(word in ended.stderr for word in said), ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_a_missing_composition_is_named(tmp_path: Path) -> None:
    ended = serve(tmp_path / "none.yml", tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "none.yml" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_missing_key_fails_the_turn_and_names_the_variable(tmp_path: Path) -> None:
    with MockModelThread([]) as mock, Daemon(tmp_path, model_url=mock.url, DEEPSEEK_API_KEY="") as daemon:
        daemon.initialize()
        [end] = [event["data"] for event in daemon.run("s", "x") if event["type"] == "turn/end"]
        assert end["reason"]["error"]["code"] == "MISSING_CREDENTIAL"
        assert "DEEPSEEK_API_KEY" in end["reason"]["error"]["message"]
        assert mock.requests == []


def test_an_unreachable_endpoint_fails_the_turn_and_names_the_address(tmp_path: Path) -> None:
    patch = tmp_path / "no-retry.yml"
    patch.write_text("- id: model\n  config: {provider: deepseek-official, retryPolicy: {maxRetries: 0}}\n")
    work = tmp_path / "w"
    work.mkdir()
    argv = [sys.executable, "-m", "cordisd", "serve", "--stdio", "minimal", "--patch", str(patch)]
    with Daemon(work, model_url="http://127.0.0.1:9/v1", argv=argv) as daemon:
        daemon.initialize()
        [end] = [event["data"] for event in daemon.run("s", "x") if event["type"] == "turn/end"]
        assert end["reason"]["error"]["code"] == "TRANSPORT"
        assert "http://127.0.0.1:9/v1" in end["reason"]["error"]["message"]


def test_a_deleted_workspace_is_said_in_the_result_and_the_shell_still_works(tmp_path: Path) -> None:
    work = tmp_path / "deleted"
    work.mkdir()
    script = [call("c1", "bash", {"command": "pwd"}), text("end")]
    with MockModelThread(script) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        daemon.initialize(cwd=str(work))
        daemon.request("session/create", {"sessionId": "s"})
        shutil.rmtree(work)
        events = daemon.run("s", "x")
        result = next(event["data"] for event in events if event["type"] == "tool/result")
        shown = result["message"]["content"][0]["content"][0]["text"]
        assert str(work) in shown
        assert str(tmp_path) in shown.splitlines()


def test_an_unwritable_session_root_is_refused_at_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = serve(GOOD, tmp_path, DSH_SESSION_ROOT=str(tmp_path / "file" / "logs"))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert str(tmp_path / "file") in ended.stderr
    assert 'entry "sessions"' in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_log_that_cannot_be_written_any_more_ends_the_session_loudly(tmp_path: Path) -> None:
    """The disk refuses, as a full one would: the client sees an error and then idle."""
    work = tmp_path / "w"
    work.mkdir()
    script = [call("c1", "bash", {"command": "head -c 9000 /dev/zero | tr '\\0' x"}), text("end")]
    argv = [
        "/bin/sh", "-c", f"ulimit -f 8; exec {sys.executable} -m cordisd serve --stdio minimal",
    ]  # fmt: skip
    with MockModelThread(script) as mock, Daemon(work, model_url=mock.url, argv=argv) as daemon:
        daemon.initialize()
        events = daemon.run("s", "x")
        end = events[-1]["data"]
        assert events[-1]["type"] == "turn/end"
        assert end["reason"]["error"]["code"] == "LOG_WRITE_FAILED"
        assert str(daemon.sessions) in end["reason"]["error"]["message"]
        code, message = daemon.refused(
            "session/prompt", {"sessionId": "s", "contentBlocks": [{"type": "text", "text": "x"}]}
        )
        assert code == -32011
        assert str(daemon.sessions) in message
        assert [event["seq"] for event in events] == list(range(len(events)))
        assert daemon.end() == 0
        assert b"Traceback" not in daemon.stderr
        stored = daemon.log("s")
        assert stored[-1]["seq"] < events[-1]["seq"], "the log on disk ends before the failed batch, whole"


def test_a_root_that_vanishes_after_the_start_is_an_error_the_client_sees(tmp_path: Path) -> None:
    work = tmp_path / "w"
    work.mkdir()
    with MockModelThread([]) as mock, Daemon(work, model_url=mock.url) as daemon:
        daemon.initialize()
        daemon.sessions.write_text("a file now stands where the logs should go")
        os.sync()
        code, message = daemon.refused(
            "session/prompt", {"sessionId": "s", "contentBlocks": [{"type": "text", "text": "x"}]}
        )
        assert code <= -32010
        assert str(daemon.sessions) in message

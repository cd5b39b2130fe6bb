"""However a daemon ends, it answers, logs the end, and leaves no process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cordisd.mock import Hang, MockModelThread, RawReply, call, delta, text
from daemon import Daemon, clean_environment, module_path
from measure import PATIENCE_S, SOON_S, comes
from processes import alive, descendants, gone

SLEEPER = "trap '' TERM; setsid sleep 301 & nohup sleep 302 & (sleep 303 &) ; sleep 304"
SLEEPS = {"sleep 301", "sleep 302", "sleep 303", "sleep 304"}


def start_command(daemon: Daemon, sleeps: set[str], session: str = "s") -> set[int]:
    """Prompt, and wait until the scripted command's `sleeps` run; returns every process below the daemon."""
    daemon.initialize()
    daemon.prompt(session, "go")
    daemon.wait(lambda: any(event["type"] == "tool/call" for event in daemon.events(session)))
    deadline = time.monotonic() + PATIENCE_S
    while True:
        below = descendants(daemon.process.pid)
        if sleeps <= {command_of(pid) for pid in below}:
            return below
        assert time.monotonic() < deadline, {command_of(pid) for pid in below}
        time.sleep(0.02)


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ").decode()
    except OSError:
        return ""


def test_shutdown_mid_command_is_answered_at_once_and_leaves_nothing(tmp_path: Path) -> None:
    with (
        MockModelThread([call("c1", "bash", {"command": SLEEPER})]) as mock,
        Daemon(tmp_path, model_url=mock.url) as daemon,
    ):
        below = start_command(daemon, SLEEPS)
        began = time.monotonic()
        assert daemon.request("shutdown") == {}
        assert daemon.process.wait(SOON_S) == 0
        assert time.monotonic() - began < SOON_S, "the commands would run for minutes"
        assert gone(below), alive(below)
        events = daemon.events("s")
        assert [event["type"] for event in events][-3:] == ["tool/result", "step/end", "turn/end"]
        assert events[-3]["data"]["error"]["code"] == "ABORTED"
        assert events[-1]["data"]["reason"] == {"kind": "aborted", "reason": {"kind": "disposed"}}
        assert daemon.log("s")[-1] == events[-1]
        daemon.end()


def test_shutdown_mid_stream_logs_and_sends_the_closing_events(tmp_path: Path) -> None:
    with MockModelThread([RawReply([delta({"content": "half an ans"}), Hang()])]) as mock:
        with Daemon(tmp_path, model_url=mock.url) as daemon:
            daemon.initialize()
            daemon.prompt("s", "go")
            queued = daemon.prompt("s", "waiting")
            daemon.wait(
                lambda: any(
                    e["data"].get("chunk", {}).get("type") == "text-delta" for e in daemon.events("s")
                )
            )
            daemon.request("shutdown")
            kinds = [event["type"] for event in daemon.events("s")]
            assert kinds[-4:] == ["agent/inbox/spliced", "assistant/message", "step/end", "turn/end"]
            cancelled = daemon.events("s")[-4]["data"]
            assert cancelled["outcome"] == "canceled"
            assert cancelled["removedCount"] == 1
            assert queued
            assert [line["type"] for line in daemon.log("s")][-4:] == kinds[-4:]


def test_two_shutdowns_are_both_answered_and_a_prompt_between_is_refused(tmp_path: Path) -> None:
    with (
        MockModelThread([call("c1", "bash", {"command": "sleep 300"})]) as mock,
        Daemon(tmp_path, model_url=mock.url) as daemon,
    ):
        start_command(daemon, {"sleep 300"})
        prompt = (
            b'{"jsonrpc":"2.0","id":"p","method":"session/prompt","params":'
            b'{"sessionId":"t","contentBlocks":[{"type":"text","text":"x"}]}}\n'
        )
        shutdown = b'{"jsonrpc":"2.0","id":"%b","method":"shutdown"}\n'
        daemon.send_raw(shutdown % b"s1" + prompt + shutdown % b"s2")
        daemon.wait(lambda: {"s1", "s2", "p"} <= {frame.get("id") for frame in daemon.frames})
        answers = {frame["id"]: frame for frame in daemon.frames if "id" in frame}
        assert answers["s1"]["result"] == answers["s2"]["result"] == {}
        assert "shutting down" in answers["p"]["error"]["message"]
        assert daemon.end() == 0


@pytest.mark.parametrize(
    ("how", "code"), [("eof", 0), (signal.SIGTERM, 0), (signal.SIGHUP, 0), (signal.SIGINT, 130)]
)
def test_end_of_input_and_signals_end_everything_with_a_closed_log(
    how: signal.Signals | str, code: int, tmp_path: Path
) -> None:
    with (
        MockModelThread([call("c1", "bash", {"command": SLEEPER})]) as mock,
        Daemon(tmp_path, model_url=mock.url) as daemon,
    ):
        below = start_command(daemon, SLEEPS)
        if isinstance(how, signal.Signals):
            daemon.process.send_signal(how)
        else:
            assert daemon.process.stdin is not None
            daemon.process.stdin.close()
        assert daemon.process.wait(SOON_S) == code
        assert gone(below), alive(below)
        assert daemon.end() == code
        assert daemon.log("s")[-1]["data"]["reason"]["kind"] == "aborted"
        assert b"Traceback" not in daemon.stderr


def test_a_killed_daemon_leaves_no_process_of_any_session(tmp_path: Path) -> None:
    with (
        MockModelThread([call("c1", "bash", {"command": SLEEPER})]) as mock,
        Daemon(tmp_path, model_url=mock.url) as daemon,
    ):
        below = start_command(daemon, SLEEPS)
        daemon.process.kill()
        assert gone(below), alive(below)
        daemon.end()


def test_no_thread_that_waits_for_a_disk_holds_the_end_up(tmp_path: Path) -> None:
    (tmp_path / "patch.yml").write_text("- insert: [{id: reader, name: 'loop_entries:ReaderEntry'}]\n")
    argv = [sys.executable, "-m", "cordisd", "serve", "--stdio", "--patch", "patch.yml"]
    with Daemon(tmp_path, argv=argv, PYTHONPATH=module_path(Path(__file__).parents[1])) as daemon:
        daemon.initialize()
        daemon.process.terminate()
        assert daemon.process.wait(PATIENCE_S) == 0


@pytest.mark.parametrize("moment", ["serving", "starting"])
def test_the_death_of_the_parent_ends_the_daemon_though_its_input_stays_open(
    tmp_path: Path, moment: str
) -> None:
    (tmp_path / "stalled.yml").write_text("- insert: [{id: stalled, name: 'loop_entries:StalledEntry'}]\n")
    patch = "--patch stalled.yml" if moment == "starting" else ""
    reader, writer = os.pipe()  # we hold the writing end: the daemon never sees an end of input
    parent = subprocess.Popen(
        [
            "/bin/sh",
            "-c",
            f"exec 3<&0; {sys.executable} -m cordisd serve --stdio {patch} <&3 >answers & echo $!; sleep 60",
        ],
        cwd=tmp_path,
        env=clean_environment(
            DSH_SESSION_ROOT=str(tmp_path / "logs"), PYTHONPATH=module_path(Path(__file__).parents[1])
        ),
        stdin=reader,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    os.close(reader)
    assert parent.stdout is not None
    daemon_pid = int(parent.stdout.readline())
    below: set[int] = set()
    try:
        os.write(writer, b'{"jsonrpc":"2.0","id":1,"method":"rpc.ping"}\n')
        answers, mounting = tmp_path / "answers", tmp_path / "mounting"
        if moment == "serving":
            assert comes(lambda: answers.exists() and answers.read_bytes()), "it serves"
        else:
            assert comes(mounting.exists)
        guardian = descendants(daemon_pid)
        assert guardian
        below = descendants(parent.pid)
        parent.kill()
        parent.wait()
        (tmp_path / "go").touch()
        assert gone({daemon_pid} | guardian)
    finally:
        parent.kill()
        parent.wait()
        os.close(writer)
        parent.stdout.close()
        for pid in alive(below):  # the shell's own sleep
            os.kill(pid, signal.SIGKILL)


def test_a_client_that_goes_away_ends_the_daemon_quietly(tmp_path: Path) -> None:
    with MockModelThread([text("x" * 1_000_000)]) as mock:
        environment = clean_environment(
            DEEPSEEK_BASE_URL=mock.url, DEEPSEEK_API_KEY="k", DSH_SESSION_ROOT=str(tmp_path / "logs")
        )
        with subprocess.Popen(
            [sys.executable, "-m", "cordisd", "serve", "--stdio"],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            assert process.stdin and process.stdout and process.stderr
            process.stdin.write(
                b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":'
                b'{"cwd":".","provider":"deepseek-official","model":"m"}}\n'
                b'{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":'
                b'{"sessionId":"s","contentBlocks":[{"type":"text","text":"x"}]}}\n'
            )
            process.stdin.flush()
            assert b"serverInfo" in process.stdout.readline()
            deadline = time.monotonic() + PATIENCE_S
            while not mock.requests:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            process.stdout.close()
            assert process.wait(SOON_S) == 0, "though its input is still open"
            assert process.stderr.read() == b""


def test_nothing_but_frames_is_written_to_stdout(tmp_path: Path) -> None:
    script = [call("c1", "bash", {"command": "echo to-fd-1 >&1; echo to-stderr >&2; exec 1>&-"}), text("end")]
    with MockModelThread(script) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        daemon.initialize()
        daemon.run("s", "go")  # every line is parsed as JSON on the way
        daemon.request("shutdown")
        assert daemon.end() == 0
        assert b"jsonrpc" not in daemon.stderr

"""Recordings made and played by real daemons."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cordisd.mock import MockModelThread
from cordisd.replay.recording import read_recording
from daemon import Daemon
from replays import KEY, NOWHERE, composition, conversation, daemon, end_of, failure_of, hold, masked

TOKEN = 'tok "ä\\ 0123456789'


class Taken(NamedTuple):
    """The recording of the conversation that has a bit of everything."""

    folder: Path
    cwd: Path
    file: Path
    turns: list[list[dict[str, Any]]]


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Taken]:
    folder = tmp_path_factory.mktemp("taken")
    cwd = folder / "work"
    prompts, answers = conversation(cwd)
    rows = composition(folder, "record", ("recorder", {"folder": str(folder / "out")}))
    with MockModelThread(answers) as model, daemon(cwd, rows, model.url) as session:
        turns = hold(session, prompts)
        assert len(model.requests) == len(answers)
    yield Taken(folder, cwd, folder / "out" / "s.jsonl", turns)


def test_a_recording_has_it_all_but_no_directory_and_no_key(taken: Taken) -> None:
    content = taken.file.read_text()
    assert str(taken.cwd) not in content and KEY not in content and "authorization" not in content.lower()
    recording = read_recording(taken.file)
    failures = [one.answer.failure["code"] for one in recording.exchanges if one.answer.failure]
    statuses = [one.answer.status for one in recording.exchanges]
    assert statuses[1:3] == [429, 500] and len(statuses) == 11
    assert failures == ["TRANSPORT", "STREAM_CLOSED"] or failures == ["STREAM_CLOSED", "STREAM_CLOSED"]
    assert [turn.stop_reason for turn in recording.turns] == ["completed", "error", "completed"]
    assert [end_of(turn)["stopReason"] for turn in taken.turns] == ["completed", "error", "completed"]
    assert '"base64"' in content and ": keep-alive" in content  # cut inside a character
    assert [one.call_id for exchange in recording.exchanges for one in exchange.results] == [
        *("c1", "c2", "c3", "c4", "c5")
    ]


def test_a_replay_elsewhere_needs_no_network_and_is_recorded_to_the_byte(taken: Taken) -> None:
    """In a network namespace without loopback: no IPv4 or IPv6 socket is made, no HTTP client is loaded."""
    cwd, trace = taken.folder / "deeper" / "elsewhere", taken.folder / "sockets"
    cwd.mkdir(parents=True)
    again = {"folder": str(taken.folder / "again")}
    rows = composition(taken.folder, "play", ("replay", {"file": str(taken.file)}), ("recorder", again))
    prefix = (
        []
        if shutil.which("strace") is None
        else ["strace", "-f", "-qq", "-e", "trace=socket", "-o", str(trace)]
    )
    argv = [*prefix, sys.executable, "-X", "importtime", "-m", "cordisd", "serve", "--stdio", str(rows)]
    if subprocess.run(["unshare", "-n", "true"], check=False).returncode == 0:
        argv = ["unshare", "-n", *argv]
    with Daemon(cwd, argv=argv, DEEPSEEK_API_KEY="") as session:
        session.initialize()
        turns = hold(session, conversation(cwd)[0])
    assert [end_of(turn)["reason"] for turn in turns if end_of(turn)["stopReason"] != "error"] == [
        {"kind": "completed"}
    ] * 2
    assert failure_of(turns[1])[0] == "MALFORMED_RESPONSE"
    assert (taken.folder / "again" / "s.jsonl").read_bytes() == taken.file.read_bytes()
    assert b"cordisd.replay.player" in session.stderr and b"aiohttp" not in session.stderr
    if prefix:
        sockets = trace.read_text()
        assert "AF_UNIX" in sockets and "AF_INET" not in sockets

    second = composition(
        taken.folder, "second", ("replay", {"file": str(taken.folder / "again" / "s.jsonl")})
    )
    other = taken.folder / "other"
    with daemon(other, second, NOWHERE) as session:
        assert masked(hold(session, conversation(other)[0]), other) == masked(turns, cwd)


def test_a_replay_fails_at_the_first_difference_and_the_session_stays_usable(taken: Taken) -> None:
    """The system prompt, a result and a prompt of another replay; what is left is told when it is closed."""
    files = [str(taken.file)] * 3
    rows = composition(taken.folder, "drift", ("replay", {"file": files[0], "files": files[1:]}))
    cwd = taken.folder / "drifted"
    prompts = conversation(cwd)[0]
    with daemon(cwd, rows, DSH_SYSTEM_PROMPT="You sleep.") as session:
        code, message = failure_of(session.run("a", prompts[0]))
        assert code == "REPLAY_MISMATCH"
        assert message.startswith(f"{taken.file}: request 1 of 11: messages[0] (system).content differs\n")
        assert "\n-You work.\n+You sleep.\n" in message
        assert failure_of(session.run("a", "again"))[1].startswith(
            "this session plays no more, since it has failed"
        )
        session.request("session/close", {"sessionId": "a"})
    with daemon(cwd, rows) as session:
        assert end_of(session.run("s", prompts[0]))["stopReason"] == "completed"
        start = len(session.frames)
        session.request("session/close", {"sessionId": "s"})
        [left] = [one for one in session.events("s", start) if one["type"] == "replay/leftover"]
        assert left["ignorable"] and left["data"]["turns"] == 2

        (cwd / "say.sh").unlink()
        (cwd / "missing").write_text("here")
        code, message = failure_of(session.run("t", prompts[0]))
        assert code == "REPLAY_MISMATCH" and ": the result of call c1 (bash) differs\n" in message
        assert (
            "+missing" in message
            and len([one for one in session.log("t") if one["type"] == "tool/result"]) == 2
        )
        (cwd / "missing").unlink()
        (cwd / "say.sh").unlink(missing_ok=True)
        session.request("session/create", {"sessionId": "u"})
        hurry = [{"type": "text", "text": "hurry"}]
        session.request("session/steer", {"sessionId": "u", "contentBlocks": hurry})
        _, message = failure_of(session.run("u", prompts[0]))
        assert "messages[1] (user).content differs" in message and "+hurry" in message


def test_divergences_can_be_events_and_tools_can_be_left_alone(taken: Taken) -> None:
    files = {"file": str(taken.file), "files": [str(taken.file)]}
    cwd = taken.folder / "diverged"
    rows = composition(taken.folder, "events", ("replay", {**files, "onDivergence": "event"}))
    prompts = conversation(cwd)[0]
    with daemon(cwd, rows) as session:
        (cwd / "more").write_text("")
        turns = hold(session, prompts)
        assert [end_of(turn)["stopReason"] for turn in turns] == ["completed", "error", "completed"]
        [event] = [one for turn in turns for one in turn if one["type"] == "replay/divergence"]
        assert event["ignorable"] and event["data"]["callId"] == "c1" and "+more" in event["data"]["message"]
    cwd = taken.folder / "untouched"
    rows = composition(taken.folder, "recorded", ("replay", {**files, "tools": "recorded"}))
    with daemon(cwd, rows) as session:
        turns = hold(session, conversation(cwd)[0])
        assert [end_of(turn)["stopReason"] for turn in turns] == ["completed", "error", "completed"]
        assert list(cwd.iterdir()) == []
        children = (
            Path(f"/proc/{session.process.pid}/task/{session.process.pid}/children").read_text().split()
        )
        names = [Path(f"/proc/{child}/comm").read_text() for child in children]
        assert "bash\n" not in names

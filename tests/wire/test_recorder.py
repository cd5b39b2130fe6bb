"""What a recorder keeps out of its files, and what it does when something is in its way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from cordisd.mock import Hang, MockModelThread, RawReply, Received, call, delta, error, text
from cordisd.replay.recording import read_recording
from daemon import Daemon, wait_for_file
from replays import KEY, composition, daemon, end_of, failure_of, hold

TOKEN = 'tok "ä\\ 0123456789'
SPELLINGS = [KEY, TOKEN, json.dumps(TOKEN)[1:-1], json.dumps(TOKEN, ensure_ascii=False)[1:-1], quote(TOKEN)]


def recorder(folder: Path, **config: Any) -> tuple[str, dict[str, Any]]:
    return "recorder", {"folder": str(folder), **config}


def echo(request: Received) -> Any:
    """Answers with a text that it has been asked for."""
    return text(f"heard {list(request.texts('user'))[-1]}")


def test_keys_and_declared_secrets_reach_no_file_and_a_replay_needs_none(tmp_path: Path) -> None:
    cwd, out = tmp_path / "work", tmp_path / "out"
    cwd.mkdir()
    (cwd / "secret").write_text(f"{TOKEN}\n{KEY}\n{quote(TOKEN)}\n")
    command = {"command": f"cat secret; echo '{TOKEN}'"}
    answers = [
        error(500, f"Incorrect key {KEY} and {TOKEN}", x_request_id=KEY),
        RawReply(
            [delta({"content": KEY[:7]}), delta({"content": KEY[7:]}), b"data: \xff" + KEY.encode() + b"\n\n"]
        ),
        call("c1", "bash", command),
        text(f"It is {TOKEN[:9]}", TOKEN[9:], "."),
    ]
    rows = composition(tmp_path, "record", recorder(out, secrets=["TOKEN_OF_TEST"]))
    with MockModelThread(answers) as model, daemon(cwd, rows, model.url, TOKEN_OF_TEST=TOKEN) as session:
        assert failure_of(session.run("s", f"use {TOKEN} and {KEY} at http://x/?{quote(TOKEN)}"))
        [turn] = [session.run("s", "go on")]
        assert end_of(turn)["stopReason"] == "completed"
        parts = [path.read_text() for path in out.iterdir()]
        session.request("session/close", {"sessionId": "s"})
        assert any(f"Bearer {KEY}" == one.header("authorization") for one in model.requests)
    content = (out / "s.jsonl").read_text()
    for found in (*parts, content):
        assert "{{secret}}" in found
        assert [one for one in SPELLINGS if one in found] == []
    recording = read_recording(out / "s.jsonl")
    prompts = [turn.content[0]["text"] for turn in recording.turns]
    assert prompts == ["use {{secret}} and {{secret}} at http://x/?{{secret}}", "go on"]
    rows = composition(
        tmp_path,
        "play",
        ("replay", {"file": str(out / "s.jsonl"), "tools": "recorded"}),
        recorder(tmp_path / "again"),
    )
    with daemon(tmp_path / "other", rows, DEEPSEEK_API_KEY="") as session:
        assert [end_of(turn)["stopReason"] for turn in hold(session, prompts)] == ["error", "completed"]
    again = (
        (tmp_path / "again" / "s.jsonl")
        .read_bytes()
        .replace(b'"secrets": []', b'"secrets": ["TOKEN_OF_TEST"]')
    )
    assert again.splitlines()[:-1] == content.encode().splitlines()[:-1]
    rows = composition(tmp_path, "with", ("replay", {"file": str(out / "s.jsonl")}))
    with daemon(cwd, rows, TOKEN_OF_TEST=TOKEN) as session:  # there, and known: tools run, too
        turns = [session.run("t", one.replace("{{secret}}", TOKEN)) for one in prompts]
        assert [end_of(turn)["stopReason"] for turn in turns] == ["error", "completed"]


def test_what_a_pattern_takes_for_a_secret_reaches_no_file_and_replays(tmp_path: Path) -> None:
    token = "sk-abcdefgh0123456789"
    answers = [
        error(503, "busy", retry_after="0", x_request_id=token),
        call("c1", "bash", {"command": f"echo {token}"}),
        text("It is sk-abcd", "efgh0123456789."),
    ]
    patterns = ["sk-[a-z0-9]{10,}", "[0-9a-f]{40,}"]  # the second would find the hashes of the file itself
    rows = composition(tmp_path, "record", recorder(tmp_path / "out", redact=patterns))
    with MockModelThread(answers) as model, daemon(tmp_path / "work", rows, model.url) as session:
        assert end_of(session.run("s", f"use {token}"))["stopReason"] == "completed"
        session.request("session/close", {"sessionId": "s"})
        assert token in model.requests[0].body.decode()
    path = tmp_path / "out" / "s.jsonl"
    assert token not in path.read_text() and path.read_text().count("{{secret}}") >= 4
    rows = composition(tmp_path, "play", ("replay", {"file": str(path)}))
    for number, prompt in enumerate((f"use {token}", "use {{secret}}")):
        with daemon(tmp_path / f"other{number}", rows) as session:
            assert end_of(session.run("s", prompt))["stopReason"] == "completed"


def test_a_session_that_never_asked_its_model_replaces_no_recording(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "s.jsonl").write_text("an older one")
    rows = composition(tmp_path, "record", recorder(out))
    with daemon(tmp_path / "work", rows, DEEPSEEK_API_KEY="") as session:
        assert failure_of(session.run("s", "go"))[0] == "MISSING_CREDENTIAL"
        session.request("session/close", {"sessionId": "s"})
    assert {path.name: path.read_text() for path in out.iterdir()} == {"s.jsonl": "an older one"}


def test_sessions_of_any_name_have_files_of_their_own_and_other_sessions_go_on(tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    rows = composition(tmp_path, "record", recorder(out))
    with MockModelThread(echo) as model, daemon(tmp_path / "work", rows, model.url) as session:
        for name in ("../x", "A", "a", "ü" * 20):
            assert end_of(session.run(name, f"I am {name}"))["stopReason"] == "completed"
            assert len(list(out.iterdir())) == len({*out.iterdir()})
        code, message = failure_of(session.run("n" * 248, "too long with its ending"))
        assert code == "UNKNOWN" and message.startswith("cannot record: ") and "File name too long" in message

        with daemon(tmp_path / "work2", rows, model.url) as other:
            _, message = failure_of(other.run("a", "me too"))
            assert message == f"cannot record: {out}/a.jsonl.part: another process records into it"
            assert end_of(other.run("b", "alone"))["stopReason"] == "completed"
            wait_for_file(out / "b.jsonl.part")
            other.process.send_signal(signal.SIGKILL)
            other.process.wait()
        assert (out / "b.jsonl.part").exists() and not (out / "b.jsonl").exists()
        assert end_of(session.run("b", "over what a dead process has left"))["stopReason"] == "completed"

        session.request("session/close", {"sessionId": "a"})
        before = (out / "a.jsonl").read_bytes()
        session.request("session/resume", {"sessionId": "a"})
        _, message = failure_of(session.run("a", "more"))
        assert message.startswith('cannot record: session "a" goes on with turn 2, and what was before')
        session.request("session/close", {"sessionId": "a"})
        assert (out / "a.jsonl").read_bytes() == before
    assert not list(tmp_path.glob("*.jsonl")) and [path.name for path in tmp_path.glob("new/*")] == ["out"]
    read = {read_recording(path).session_id for path in out.glob("*.jsonl")}
    assert read == {"../x", "A", "a", "b", "ü" * 20}


def test_a_recording_that_cannot_be_written_fails_its_runs_and_no_others(tmp_path: Path) -> None:
    """On a file system of 64 KB, one session fills what is left by the other."""
    out = tmp_path / "small"
    out.mkdir()
    rows = composition(tmp_path, "record", recorder(out))
    mount = f'mount -t tmpfs -o size=64k tmpfs {out} && exec "$@"'
    argv = [
        "unshare",
        "-m",
        "sh",
        "-c",
        mount,
        "sh",
        sys.executable,
        "-m",
        "cordisd",
        "serve",
        "--stdio",
        str(rows),
    ]
    if subprocess.run(["unshare", "-m", "sh", "-c", f"mount -t tmpfs tmpfs {out}"], check=False).returncode:
        pytest.skip("no mount namespace here")
    (tmp_path / "work").mkdir()
    with MockModelThread(echo) as model, Daemon(tmp_path / "work", model_url=model.url, argv=argv) as session:
        session.initialize()
        inside = Path(f"/proc/{session.process.pid}/root{out}")
        assert end_of(session.run("small", "x"))["stopReason"] == "completed"
        code, message = failure_of(session.run("large", "y" * 40_000))
        assert (
            code == "UNKNOWN" and message == f"cannot record: {out}/large.jsonl.part: No space left on device"
        )
        assert failure_of(session.run("large", "z"))[1] == message
        assert session.log("large")[-1]["type"] == "turn/end"
        (inside / "large.jsonl.part").write_bytes(b"")  # there is room again
        assert failure_of(session.run("large", "z"))[1] == message
        assert end_of(session.run("small", "more"))["stopReason"] == "completed"
        for name in ("large", "small"):
            session.request("session/close", {"sessionId": name})
        assert sorted(path.name for path in inside.iterdir()) == ["large.jsonl.part", "small.jsonl"]
        assert len(read_recording(inside / "small.jsonl").turns) == 2


def test_a_folder_that_cannot_be_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    rows = composition(tmp_path, "record", recorder(tmp_path / "file" / "out"))
    odd = tmp_path / "with blank"
    with daemon(tmp_path / "work", rows) as session:
        _, message = failure_of(session.run("s", "x"))
        assert message == f"cannot record: {tmp_path}/file/out/s.jsonl.part: Not a directory"
        odd.mkdir()
        session.request("session/create", {"sessionId": "odd", "cwd": str(odd)})
        _, message = failure_of(session.run("odd", "x"))
        assert "with blank' cannot be told apart in what is said" in message
    assert os.listdir(tmp_path / "work") == []


def test_a_cancelled_turn_is_recorded_and_played_with_its_cancel(tmp_path: Path) -> None:
    """In an answer, before one, and in a tool; tools run or are left alone."""
    sleep = {"command": "touch started; sleep 30"}
    answers = [RawReply([delta({"content": "I th"}), Hang()]), RawReply([Hang()], framing="none")]
    answers += [call("c1", "bash", sleep), text("after all")]
    out = tmp_path / "out"

    def converse(session: Daemon, second: Callable[[], Any], third: Callable[[], Any]) -> list[str]:
        """How the turns end. Each is cancelled once it is as far as it can be."""
        ends = []
        for prompt, ready in (("one", lambda: seen("assistant/chunk")), ("two", second), ("three", third)):
            start = len(session.frames)

            def seen(kind: str, start: int = start) -> list[Any]:
                return [one for one in session.events("s", start) if one["type"] == kind]

            session.prompt("s", prompt)
            while not ready():
                session.request("session/list")  # reads events meanwhile
                time.sleep(0.01)
            session.request("session/cancel", {"sessionId": "s"})
            session.wait_idle("s", start)
            ends.append(str(end_of(session.events("s", start))["stopReason"]))
        ends.append(str(end_of(session.run("s", "four"))["stopReason"]))
        session.request("session/close", {"sessionId": "s"})
        return ends

    expected = ["cancelled", "cancelled", "cancelled", "completed"]
    with MockModelThread(answers) as made:
        with daemon(tmp_path / "work", composition(tmp_path, "record", recorder(out)), made.url) as session:
            running = session.cwd / "started"
            assert converse(session, lambda: len(made.requests) == 2, running.exists) == expected
    recording = read_recording(out / "s.jsonl")
    assert [one.answer.was_left for one in recording.exchanges] == [True, True, False, False]
    assert [turn.stop_reason for turn in recording.turns] == expected
    for number, tools in enumerate(("live", "recorded")):
        play = "replay", {"file": str(out / "s.jsonl"), "tools": tools}
        rows = composition(tmp_path, tools, play, recorder(tmp_path / tools))
        with daemon(tmp_path / f"work-{number}", rows) as session:

            def begun(kind: str, number: int, session: Daemon = session) -> bool:
                return [one["type"] for one in session.events("s")].count(kind) == number

            running = session.cwd / "started"
            third = running.exists if tools == "live" else lambda: begun("tool/call", 1)
            assert converse(session, lambda: begun("step/start", 2), third) == expected
        assert (tmp_path / tools / "s.jsonl").read_bytes() == (out / "s.jsonl").read_bytes()

"""`cordisd record`: as `run`, and a recording that replays."""

from __future__ import annotations

import signal
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

import pytest

import processes
from cli.conftest import Ended, Folder
from cordisd.cli import record, run
from cordisd.mock import Answer, MockModelThread, RawReply, call, error, text
from cordisd.replay.recording import read_recording
from daemon import clean_environment
from measure import SOON_S

SECRET = "a-key-of-some-length"
AGENT = """\
- {id: model, name: openai, config: {provider: deepseek-official}}
- {id: persona, name: persona, config: {text: Be brief., complete: true}}
- {id: bash, name: bash}
- {id: sessions, name: sessions-jsonl}
"""


@pytest.fixture
def place(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """A place without a session root in its environment; nothing may be left in the default one."""
    monkeypatch.delenv("DSH_SESSION_ROOT")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder.root / "logs"))
    return folder


def recorded(place: Folder, script: Sequence[Answer | RawReply], *words: str) -> Ended:
    (place.root / "work").mkdir(exist_ok=True)
    with MockModelThread(script) as mock:
        address = ["--base-url", mock.url, "--cwd", "work"]
        return place.run_bare("record", "--out", "rec", "--session", "one", *address, "do it", *words)


def test_the_answer_goes_to_stdout_and_the_recording_plays_from_anywhere(
    place: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", SECRET)
    (place.root / "mine").mkdir()
    (place.root / "mine" / "agent.yml").write_text(AGENT)
    script = [call("c1", "bash", {"command": "date +%s%N"}), text("All ", "done.")]
    mask = r"time=\d{18,}"
    words = ["--composition", "mine/agent.yml", "--api-key-env", "KEY", "--mask", mask]
    ended = recorded(place, script, *words)
    assert (ended.code, ended.out) == (0, "All done.\n"), ended.err
    assert ended.err.endswith("\nrecording: rec/one.jsonl\n")
    content = (place.root / "rec" / "one.jsonl").read_text()
    assert SECRET not in content
    recording = read_recording(place.root / "rec" / "one.jsonl")
    assert recording.header["composition"] == "../mine/agent.yml"
    assert recording.exchanges[0].results[0].text == "{{time}}"
    assert [turn.stop_reason for turn in recording.turns] == ["completed"]

    monkeypatch.chdir("/")
    played = place.run_bare("replay", "--tools", "recorded", str(recording.path))
    assert (played.code, played.out.split(" (")[0]) == (0, f"ok {recording.path}"), played.out


def test_a_failed_run_leaves_a_whole_recording_and_the_next_one_needs_force(place: Folder) -> None:
    ended = recorded(place, [error(400, "no such model")])
    assert (ended.code, ended.out) == (1, "")
    assert "no such model" in ended.err and "recording: rec/one.jsonl" in ended.err
    path = place.root / "rec" / "one.jsonl"
    recording = read_recording(path)
    assert recording.turns[0].stop_reason == "error"
    assert recording.exchanges[0].answer.status == 400
    played = place.run_bare("replay", "rec")
    assert played.code == 0
    assert played.out.startswith("ok rec/one.jsonl (1 request, ")

    before = path.read_bytes()
    refused = recorded(place, [])
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == "cordisd record: rec/one.jsonl exists already; --force writes over it\n"
    assert path.read_bytes() == before
    again = recorded(place, [text("fine")], "--force")
    assert (again.code, again.out) == (0, "fine\n")
    assert read_recording(path).turns[0].stop_reason == "completed"


def test_nothing_is_recorded_by_a_run_that_does_not_begin(place: Folder) -> None:
    (place.root / "rec").mkdir()
    (place.root / "rec" / "one.jsonl.part").write_text("of a recorder that was killed\n")
    (place.root / "rec" / "one.jsonl").write_text("old\n")
    ended = recorded(place, [], "--force", "--preset", "nope")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.endswith("\nnothing was recorded\n")
    assert (place.root / "rec" / "one.jsonl").read_text() == "old\n"


def test_a_session_that_is_stored_is_not_recorded_from_its_middle(place: Folder) -> None:
    words = ["--session-root", "kept"]
    assert recorded(place, [text("one")], *words).err.count("log: kept") == 1
    ended = recorded(place, [text("two")], "--force", *words)
    assert (ended.code, ended.out) == (1, "")
    assert "exists" in ended.err and ended.err.endswith("nothing was recorded\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--mask", "digits"], "--mask: 'digits' is not NAME=REGEX"),
        (["--mask", "a=("], '--mask: mask "a": missing ), unterminated subpattern at position 0'),
        (["--mask", "a=x*"], '--mask: mask "a" matches an empty text'),
        (["--mask", "cwd=x"], '--mask: the name of mask "cwd" must match [a-z][a-z0-9_]*'),
        (["--mask", "a=x", "--mask", "a=y"], '--mask: there are two of the name "a"'),
        (["--max-tokens", "0"], "--max-tokens must be 1 or more"),
        (["--session", "x" * 256], "--session: sessionId is too long to be stored"),
        (["--out", "roster.yml"], "--out: roster.yml/session-"),
    ],
)
def test_a_wrong_command_line_exits_2_with_one_reason(place: Folder, words: list[str], message: str) -> None:
    ended = place.run_bare("record", "--out", "rec", "do it", *words)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"cordisd record: {message}") and ended.err.count("\n") == 1
    assert not (place.root / "rec").exists()


def test_record_has_every_option_of_run() -> None:
    def options(command: object) -> set[str]:
        parser = ArgumentParser()
        command.add_arguments(parser)  # type: ignore[attr-defined]
        return {name for action in parser._actions for name in action.option_strings or [action.dest]}

    assert options(record) == options(run) | {"--out", "--mask", "--force"}


def test_ctrl_c_says_what_there_is_of_the_recording(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    words = ["--out", str(tmp_path / "rec"), "--session", "one", "--cwd", str(tmp_path / "work"), "do it"]
    with MockModelThread([call("c1", "bash", {"command": "echo begun; sleep 60"})]) as mock:
        child = subprocess.Popen(
            [sys.executable, "-m", "cordisd", "record", "--base-url", mock.url, *words],
            env=clean_environment(XDG_STATE_HOME=str(tmp_path)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert child.stderr is not None
        assert any("$ echo begun" in line for line in child.stderr)
        below = processes.descendants(child.pid)
        child.send_signal(signal.SIGINT)
        stdout, stderr = child.communicate(timeout=SOON_S)
    assert (child.returncode, stdout) == (130, "\n")
    [left] = (tmp_path / "rec").iterdir()
    assert stderr.endswith(f": {left}\n")
    assert (left.suffix == ".part") == ("cut off" in stderr)
    assert processes.gone(below)

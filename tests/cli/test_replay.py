"""`cordisd replay`: a verdict for each recording, and nothing but what differs."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cli.conftest import Ended, Folder
from cordisd.cli import junit
from cordisd.cli.refresh import changes
from cordisd.cli.scenario import Scenario, find, read
from cordisd.cli.verdict import Verdict
from cordisd.mock import call, error, text
from cordisd.replay.recording import lines, read_recording
from recorded_sessions import record

LOGS = Path(__file__).parents[3] / "shared" / "fixtures" / "reference-logs"
DRIFTED = "You are a helpful assistant for software engineers."


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the recording one.jsonl: two turns, two tool calls, four requests."""
    folder = tmp_path_factory.mktemp("made")
    record(folder, "one")
    return folder


@pytest.fixture
def place(folder: Folder, made: Path) -> Iterator[Folder]:
    """`rec/one.jsonl` is the recording, for the test to change."""
    (folder.root / "rec").mkdir()
    shutil.copy(made / "one.jsonl", folder.root / "rec")
    yield folder
    assert not list((folder.root / "rec").glob(".*"))


def replay(place: Folder, *words: str) -> Ended:
    ended = place.run_bare("replay", *words)
    return Ended(ended.code, ended.out.replace(f"{place.root}/", ""), ended.err)


def test_what_is_equal_gets_a_line_and_its_kept_log_plays_by_the_cursor(place: Folder) -> None:
    ended = replay(place, "rec", "--keep", "kept")
    assert ended.code == 0, ended.out
    assert ended.out.startswith("ok rec/one.jsonl (4 requests, ") and ended.out.count("\n") == 1
    assert ended.err == ""
    [log] = (place.root / "kept").glob("*/one/session.jsonl")
    ended = replay(place, str(log))
    assert ended.code == 0, ended.out
    assert ended.out.startswith(f"ok {log.relative_to(place.root)} (4 requests, ")
    assert ended.out.endswith(" s, a log: requests were not compared)\n")


def test_a_folder_is_played_by_name_and_what_cannot_be_read_fails_it(place: Folder) -> None:
    rec = place.root / "rec"
    content = (rec / "one.jsonl").read_bytes()
    (rec / "again.jsonl").write_bytes(content)  # the same session id
    (rec / "cut.jsonl").write_bytes(content[:-1])
    (rec / "empty.jsonl").write_bytes(b"")
    (rec / "foreign.jsonl").write_text('{"method": "session.event"}\n')
    (rec / "killed.jsonl.part").write_bytes(content)
    (rec / "notes.txt").write_text("not looked at")
    ended = replay(place, "rec", "rec/one.jsonl", "--junit", "out/junit.xml")
    assert ended.code == 2
    heads = [line.split(" (")[0] for line in ended.out.splitlines() if not line.startswith(" ")]
    assert heads == [
        "ok rec/again.jsonl",
        "ERROR rec/cut.jsonl",
        "ERROR rec/empty.jsonl",
        "ERROR rec/killed.jsonl.part",
        "ok rec/one.jsonl",
    ]
    assert ended.err == ("cordisd replay: skipped rec/foreign.jsonl: neither a recording nor a session log\n")
    [suite] = ElementTree.parse(place.root / "out" / "junit.xml").getroot()
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "5",
        "failures": "0",
        "errors": "3",
        "skipped": "0",
    }
    cases = {case.get("name"): case for case in suite}
    assert [child.tag for child in cases["empty"]] == ["error"]
    assert cases["one"].get("classname") == "rec" and len(cases["one"]) == 0


def test_each_difference_is_told_or_the_first_alone(place: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(place.root / "rec" / "one.jsonl", place.root / "rec" / "two.jsonl")
    monkeypatch.setenv("DSH_SYSTEM_PROMPT", DRIFTED)
    ended = replay(place, "rec", "--junit", "junit.xml", "--jobs", "1")
    assert ended.code == 1
    first, second = ended.out.split("FAILED ")[1:]
    assert first.startswith("rec/one.jsonl\n") and second.startswith("rec/two.jsonl\n")
    for line in (
        "  rec/one.jsonl: request 1 of 4: messages[0] (system).content differs\n",
        "\n  -You are a helpful software engineer assistant.\n",
        f"\n  +{DRIFTED}\n",
        "cordisd replay --refresh rec/one.jsonl\n",
    ):
        assert line in first
    [suite] = ElementTree.parse(place.root / "junit.xml").getroot()
    failure = suite[0][0]
    assert failure.tag == "failure" and f"+{DRIFTED}" in (failure.text or "")
    assert (failure.get("message") or "").endswith("messages[0] (system).content differs")
    ended = replay(place, "rec", "--fail-fast")
    assert (ended.code, ended.out.count("FAILED")) == (1, 1)


def test_another_result_fails_the_run_or_is_noted_or_is_not_asked_for(place: Folder) -> None:
    (place.root / "work").mkdir()
    (place.root / "work" / "extra").touch()
    ended = replay(place, "rec", "--cwd", "work")
    assert ended.code == 1
    assert "the result of call c1 (bash) differs" in ended.out
    noted = replay(place, "rec", "--cwd", "work", "--on-divergence", "event")
    assert noted.code == 0
    assert noted.out.startswith("ok rec/one.jsonl (4 requests, ") and " s, 1 result differs)\n" in noted.out
    assert "the result of call c1 (bash) differs" in noted.out
    (place.root / "work" / "f").unlink()
    played = replay(place, "rec", "--cwd", "work", "--tools", "recorded")
    assert played.code == 0 and "differs" not in played.out
    assert [path.name for path in (place.root / "work").iterdir()] == ["extra"]


def test_a_refresh_writes_what_is_asked_now_and_keeps_the_answers(
    place: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = place.root / "rec" / "one.jsonl"
    path.chmod(0o640)
    before = path.read_bytes()
    recording = read_recording(path)
    ended = replay(place, "--refresh", "rec")
    assert (ended.code, ended.out.split(" (")[0]) == (0, "unchanged rec/one.jsonl")
    assert path.read_bytes() == before

    monkeypatch.setenv("DSH_SYSTEM_PROMPT", DRIFTED)
    ended = replay(place, "--refresh", "rec")
    head, *changes = ended.out.splitlines()
    assert (ended.code, head.split(" (")[0]) == (0, "refreshed rec/one.jsonl")
    assert [line for line in changes if line[0] in "+-"] == [
        "-      content: You are a helpful software engineer assistant.",
        f"+      content: {DRIFTED}",
    ]
    assert path.stat().st_mode & 0o777 == 0o640
    fresh = read_recording(path)
    assert fresh.header == recording.header
    assert [one.answer for one in fresh.exchanges] == [one.answer for one in recording.exchanges]
    assert replay(place, "rec").code == 0


def test_what_a_refresh_has_no_answer_for_leaves_the_recording_alone(place: Folder) -> None:
    path = place.root / "rec" / "one.jsonl"
    recording = read_recording(path)
    recording.turns[0].exchanges.pop()  # the model's last word in the first turn
    recording.turns.pop()
    path.write_bytes(b"".join(lines(recording)))
    before = path.read_bytes()
    ended = replay(place, "--refresh", "rec")
    assert ended.code == 1
    assert ended.out.startswith("FAILED rec/one.jsonl\n") and "request 3 of 2 was not recorded" in ended.out
    assert path.read_bytes() == before


def test_a_recording_that_cannot_be_replaced_is_named(place: Folder, tmp_path: Path) -> None:
    script = [call("c1", "bash", {"command": "rm -rf ../rec"}), text("gone")]
    made = record(tmp_path / "x", "one", script=script, prompts=["hi"])
    shutil.copy(made, place.root / "rec")
    (place.root / "work").mkdir()
    assert replay(place, "--refresh", "rec/one.jsonl", "--cwd", "work") == (
        2,
        "ERROR rec/one.jsonl\n  rec/one.jsonl: cannot be replaced: No such file or directory\n",
        "",
    )


def test_sessions_that_share_a_folder_take_turns_in_it(place: Folder, tmp_path: Path) -> None:
    script = [call("c1", "bash", {"command": "mkdir lock && sleep 0.2; rmdir lock"}), text("done")]
    made = record(tmp_path / "x", "one", script=script, prompts=["hi"])
    for name in ("one", "two"):
        shutil.copy(made, place.root / "rec" / f"{name}.jsonl")
    (place.root / "work").mkdir()
    ended = replay(place, "rec", "--cwd", "work")
    assert (ended.code, ended.out.count("ok ")) == (0, 2), ended.out


def test_requests_that_are_left_over_fail_a_turn_that_fails_as_recorded(
    place: Folder, tmp_path: Path
) -> None:
    made = record(tmp_path / "x", "bad", script=[error(400, "no such model")], prompts=["hi"])
    recording = read_recording(made)
    target = place.root / "rec" / "one.jsonl"
    target.write_bytes(b"".join(lines(recording)))
    assert replay(place, "rec").code == 0
    recording.turns[0].exchanges *= 2
    target.write_bytes(b"".join(lines(recording)))
    ended = replay(place, "rec")
    assert (ended.code, ended.out) == (
        1,
        "FAILED rec/one.jsonl\n  turn 1 made 1 of 2 recorded model requests\n",
    )


def test_the_recorded_agent_is_played_whatever_the_default(place: Folder, tmp_path: Path) -> None:
    agent = {"preset": "rl-minimal-v1", "provider": "openai", "model": "m-1", "max_tokens": 77}
    effort = {"reasoning_effort": "high", "composition": "host"}
    made = record(tmp_path / "x", "frozen", script=[text("ok")], prompts=["hi"], **agent, **effort)
    assert read_recording(made).header["agent"] == {
        "preset": "rl-minimal-v1",
        "provider": "openai",
        "model": "m-1",
        "maxTokens": 77,
        "reasoningEffort": "high",
    }
    ended = replay(place, str(made), "rec/one.jsonl")
    assert ended.code == 0, ended.out
    assert ended.out.count("ok ") == 2
    ended = replay(place, "rec", "--composition", "nope")
    assert (ended.code, ended.out) == (2, "ERROR rec/one.jsonl\n  cordisd: nope: config file not found\n")
    ended = replay(place, str(made), "--composition", "minimal")
    assert ended.code == 2 and 'no adapter registered for provider "openai"' in ended.out


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["rec", "--cwd", "nowhere"], "--cwd: no such directory: nowhere"),
        (["rec", "--keep", "rec"], "--keep: rec must be a new or an empty folder"),
    ],
)
def test_a_wrong_command_line_exits_2_with_one_reason(place: Folder, words: list[str], problem: str) -> None:
    assert replay(place, *words) == (2, "", f"cordisd replay: {problem}\n")


def test_what_cannot_be_asked_for_again_is_said_before_a_daemon_starts(place: Folder) -> None:
    path = place.root / "rec" / "one.jsonl"
    recording = read_recording(path)

    def problem() -> str:
        path.write_bytes(b"".join(lines(recording)))
        found = read(path)
        assert not isinstance(found, Scenario)
        return found.problem

    exchanges = [turn.exchanges for turn in recording.turns]
    for turn in recording.turns:
        turn.exchanges = []
    assert problem().startswith("holds no model request")
    for turn, made in zip(recording.turns, exchanges, strict=True):
        turn.exchanges = made
    recording.turns[1].stop_reason = "cancelled"
    assert problem().startswith("turn 2 was cancelled")
    recording.turns[0].content.clear()
    assert problem().startswith("turn 1 has no prompt of a user")
    recording.turns.clear()
    assert "no prompt" in problem()
    os.mkfifo(place.root / "pipe")
    path.rename(place.root / "b\udcff.jsonl")
    assert replay(place, "pipe", "b\udcff.jsonl") == (
        2,
        "ERROR pipe\n  pipe: is no regular file\n"
        "ERROR b?.jsonl\n  has a path that is not UTF-8, which no composition can name\n",
        "",
    )
    (place.root / "none").mkdir()
    assert replay(place, "none") == (2, "ERROR none\n  holds no *.jsonl\n", "")


def test_a_log_is_not_refreshed_and_its_sub_sessions_are_not_played_alone(place: Folder) -> None:
    rec = place.root / "rec"
    header = {"type": "session", "version": 0, "createdAt": 1, "delegationDepth": 0}
    for name, row in {
        "parent": header | {"id": "p"},
        "child": header | {"id": "c", "parentSession": "p"},
        "grandchild": header | {"id": "g", "parentSession": "c"},
        "stranger": header | {"id": "s", "parentSession": "elsewhere"},
    }.items():
        rows = [
            row,
            {"type": "turn/start", "data": {"turn": 1}},
            {
                "type": "user/message",
                "data": {"content": [{"type": "text", "text": name}], "source": {"kind": "user"}},
            },
            {"type": "turn/end", "data": {"turn": 1, "reason": {"kind": "completed"}}},
        ]
        (rec / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (rec / "one.jsonl").unlink()
    parent, stranger = find(["rec"]).scenarios
    assert isinstance(parent, Scenario) and isinstance(stranger, Scenario)
    assert (parent.name, [path.name for path in parent.children]) == (
        "rec/parent.jsonl",
        ["child.jsonl", "grandchild.jsonl"],
    )
    assert (stranger.name, stranger.children) == ("rec/stranger.jsonl", [])
    ended = replay(place, "--refresh", "rec/stranger.jsonl")
    assert (ended.code, ended.out) == (
        2,
        "ERROR rec/stranger.jsonl\n  is a session log; only recordings are refreshed\n",
    )


@pytest.mark.skipif(not LOGS.is_dir(), reason="../shared/fixtures is not here")
def test_logs_of_the_reference_play_but_for_a_sub_session_whose_tool_is_missing(place: Folder) -> None:
    ended = replay(place, *(str(folder) for folder in sorted(LOGS.iterdir())))
    told = [line for line in ended.out.splitlines() if not line.startswith(" ")]
    names = [Path(line.split()[1]).parent.name for line in told]
    assert names == ["bash-tool", "persistent-tools", "subagent-spawn-in-process", "text-turn"]
    assert [line.split()[0] for line in told] == ["ok", "ok", "FAILED", "ok"]
    assert "  of its sub-sessions (session.1.jsonl) 0 came about" in ended.out
    assert ended.out.count("requests were not compared") == 3
    assert ended.code == 1


def test_a_diff_of_recordings_cuts_long_lines_around_what_differs() -> None:
    def line(text: str) -> bytes:
        return json.dumps({"type": "prompt", "turn": 1, "sha256": text, "content": [{"text": text}]}).encode()

    long = "a" * 300
    assert changes(line(long + "x"), line(long + "y")) == [
        "@@ -3,3 +3,3 @@",
        "   content:",
        "     [0]:",
        f"-…{'a' * 159}x",
        f"+…{'a' * 159}y",
    ]
    assert changes(line("one\ntwo"), line("one\nthree"))[-3:] == [
        "         one",
        "-        two",
        "+        three",
    ]


def test_a_junit_report_holds_what_xml_cannot(tmp_path: Path) -> None:
    text = "first \x1b[31m\x00 <&>\nsecond \udcff"
    junit.write(tmp_path / "junit.xml", [Verdict("../a/b.c.jsonl", "failed", text, 1, 0.5, ["note"])])
    [case] = ElementTree.parse(tmp_path / "junit.xml").getroot()[0]
    assert (case.get("classname"), case.get("name"), case.get("time")) == ("a", "b.c", "0.500")
    failure, output = case
    assert failure.get("message") == "first \ufffd[31m\ufffd <&>"
    assert failure.text == "first \ufffd[31m\ufffd <&>\nsecond \ufffd"
    assert output.text == "note"

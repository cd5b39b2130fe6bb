"""Limits on the command line: of `run`, of `record`, and of what is played again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from cli.conftest import Ended, Folder
from cordisd.mock import Answer, Hang, MockModelThread, RawReply, call, delta, text
from cordisd.replay.recording import read_recording

PRICED = """\
- id: model
  name: openai
  config: {provider: deepseek-official, prices: {deepseek-v4-flash: {input: 100, output: 100}}}
- {id: persona, name: persona, config: {text: Be brief., complete: true}}
- {id: bash, name: bash}
- {id: sessions, name: sessions-jsonl}
"""
STEPS = [call(f"c{n}", "bash", {"command": f"echo {n}"}) for n in range(4)]


@pytest.fixture
def place(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """A place whose logs lie in `kept`."""
    monkeypatch.setenv("DSH_SESSION_ROOT", str(folder.root / "kept"))
    (folder.root / "work").mkdir()
    (folder.root / "priced.yml").write_text(PRICED)
    return folder


def ran(place: Folder, script: Sequence[Answer | RawReply], *words: str) -> Ended:
    with MockModelThread(script) as mock:
        return place.run_bare(*words, "--base-url", mock.url, "--cwd", "work", "do it")


def logs(place: Folder) -> list[Path]:
    return sorted((place.root / "kept").glob("*/*/session.jsonl"))


def test_a_run_that_reaches_its_limit_exits_1_and_says_which(place: Folder) -> None:
    ended = ran(place, STEPS, "run", "--max-turns", "2")
    assert (ended.code, ended.out) == (1, "\n")
    assert "\ncordisd: the run ended early: turn_limit (maxTurns 2)\n" in ended.err
    ended = ran(place, STEPS, "run", "--max-cost", "0.003", "--composition", "priced.yml", "--json")
    assert ended.code == 1
    document = json.loads(ended.out)
    assert document["stopReason"] == "cost_limit"
    assert document["limit"] == {"name": "maxCost", "allowed": 0.003, "used": pytest.approx(0.0048)}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--max-turns", "0"), "--max-turns must be a number above 0"),
        (("--timeout-seconds", "-1"), "--timeout-seconds must be a number above 0"),
        (("--max-cost", "nan"), "--max-cost must be a number above 0"),
        (("--timeout-seconds", "inf"), "--timeout-seconds must be a number above 0"),
    ],
)
def test_a_limit_that_is_none_is_a_usage_error(words: tuple[str, ...], says: str, place: Folder) -> None:
    ended = place.run_bare("run", *words, "do it")
    assert (ended.code, ended.err) == (2, f"cordisd run: {says}\n")


def test_a_session_that_is_there_already_takes_the_limits_of_a_run_only(place: Folder) -> None:
    words = ("--max-turns", "1", "--timeout-seconds", "600", "--max-cost", "1", "--composition", "priced.yml")
    assert ran(place, [text("one")], "run", "--session", "s", *words).code == 0
    ended = ran(place, STEPS, "run", "--session", "s", *words[:2], *words[6:])
    assert (ended.code, "turn_limit (maxTurns 1)" in ended.err) == (1, True)
    ended = ran(place, [], "run", "--session", "s", *words)
    assert (ended.code, ended.out) == (1, "")
    assert 'session "s" is there already; the cost of a new one only can be limited' in ended.err


def test_a_cost_without_prices_is_refused_with_the_reason(place: Folder) -> None:
    ended = ran(place, [], "run", "--max-cost", "1")
    assert (ended.code, ended.out) == (1, "")
    assert "limits.maxCost cannot be kept: the composition has no prices" in ended.err
    assert logs(place) == []


def test_a_recording_plays_with_the_limits_that_it_was_made_with(place: Folder) -> None:
    words = ("--max-turns", "2", "--max-cost", "1", "--composition", "priced.yml")
    ended = ran(place, STEPS, "record", "--out", "rec", "--session", "one", *words)
    assert ended.code == 1
    recording = read_recording(place.root / "rec" / "one.jsonl")
    assert recording.header["agent"]["limits"] == {"maxCost": 1.0}
    [turn] = recording.turns
    assert (turn.limits, turn.stop_reason, len(turn.exchanges)) == ({"maxTurns": 2}, "turn_limit", 2)
    played = place.run_bare("replay", "rec")
    assert (played.code, played.out.split(" (")[0]) == (0, "ok rec/one.jsonl"), played.out
    refreshed = place.run_bare("replay", "rec", "--refresh")
    assert refreshed.code == 0, refreshed.out
    assert read_recording(recording.path).turns[0].limits == {"maxTurns": 2}
    [log] = logs(place)
    played = place.run_bare("replay", str(log))
    assert played.code == 0, played.out


def test_a_run_that_the_clock_has_ended_is_not_played_again(place: Folder) -> None:
    script = [RawReply([delta({"content": "well"}), Hang()])]
    ended = ran(place, script, "record", "--out", "rec", "--session", "one", "--timeout-seconds", "0.5")
    assert ended.code == 1
    assert "cordisd: the run ended early: timeout (timeoutSeconds 0.5)\n" in ended.err
    played = place.run_bare("replay", "rec")
    assert played.code == 2
    assert "turn 1 was cancelled, by its client or by a time limit" in played.out
    assert place.run_bare("replay", str(logs(place)[0])).code == 2

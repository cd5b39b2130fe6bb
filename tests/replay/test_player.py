"""Strict replay without a daemon: what is compared, what is bound to what, what is left."""

from __future__ import annotations

import asyncio
import copy

import pytest

from cordisd.errors import ReplayMismatchError
from cordisd.replay import played
from cordisd.replay.player import Player
from cordisd.replay.turns import Answer, Chunk, Turn
from cordisd.services.traffic import ToolOutcome
from recordings import answer, changed, failure, play, recording, tool


def test_a_change_is_told_with_a_diff_and_what_to_do() -> None:
    other = recording()
    other.exchanges[2].body = changed(
        other.exchanges[2].body, ("messages", 3, "content"), "one\nthree\r\nfour"
    )
    other.exchanges[0].body = changed(other.exchanges[0].body, ("tools", 1, "function", "description"), "x")
    near = recording(path="near.jsonl")
    near.exchanges[1].body = other.exchanges[0].body
    assert failure(Player([recording(), near]), other) == (
        'r.jsonl: request 1 of 4: tools[1] "edit".function.description differs\n'
        "--- recorded\n+++ now\n@@ -1 +1 @@\n-the edit\n+x\n"
        "of 2 recordings this is the nearest\n"
        "record it again, or take the change over with: cordisd replay --refresh r.jsonl"
    )
    other = recording()
    other.exchanges[2].body = changed(
        other.exchanges[2].body, ("messages", 3, "content"), "one\nthree\r\nfour"
    )
    near.exchanges[1].body = other.exchanges[2].body
    assert failure(Player([recording(), near]), other) == (
        "r.jsonl: request 3 of 4: messages[3] (tool c1).content differs\n"
        "--- recorded\n+++ now\n@@ -1 +1,3 @@\n-{{cwd}}/f\n+one\n+three\\r\n+four\n"
        "nearest recorded request: near.jsonl, request 2\n"
        "record it again, or take the change over with: cordisd replay --refresh r.jsonl"
    )


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (["bash", "edit"], ["edit", "bash"], "the order of the tools differs"),
        (["bash", "edit"], ["bash"], 'tools[1] "edit" is missing'),
        (["bash", "edit"], ["edit"], 'tools[0] "bash" is missing'),
        (["bash", "edit"], ["bash", "new", "edit"], 'tools[1] "new" was not recorded'),
        (["bash", "edit"], ["bash", "edits"], 'tools[1] "edits".function differs'),
    ],
)
def test_tools_that_come_go_or_move_are_named(before: list[str], now: list[str], said: str) -> None:
    one, other = recording(), recording()
    for made, names in ((one, before), (other, now)):
        made.exchanges[0].body = {**made.exchanges[0].body, "tools": [tool(name) for name in names]}
    assert f"request 1 of 4: {said}\n" in failure(Player([one]), other)


def test_a_session_that_has_failed_plays_no_more() -> None:
    player, other = Player([recording()]), recording()
    other.exchanges[1].body = {**other.exchanges[1].body, "temperature": 1}
    first = failure(player, other)
    other.turns = other.turns[1:]
    assert (
        failure(player, other)
        == f"this session plays no more, since it has failed: {first.partition(chr(10))[0]}"
    )


def test_sessions_are_bound_by_content_in_any_order_of_arrival() -> None:
    async def run(order: list[int]) -> list[str]:
        made = [recording(f"task {n}", path=f"{n}.jsonl") for n in range(4)]
        for n, one in enumerate(made):
            one.exchanges[0].answer = answer(f"first {n}")
        player = Player(made)
        said = await asyncio.gather(*(play(player, recording(f"task {n}"), f"live {n}") for n in order))
        return [text.partition(" answer")[0] for text in said]

    assert asyncio.run(run([0, 1, 2, 3])) == ["first 0", "first 1", "first 2", "first 3"]
    assert asyncio.run(run([2, 0, 3, 1])) == ["first 2", "first 0", "first 3", "first 1"]


def test_equal_first_requests_are_bound_by_session_id_and_then_in_order() -> None:
    made = [recording(session=f"s{n}", path=f"{n}.jsonl") for n in range(4)]
    for n, one in enumerate(made):
        one.exchanges[0].answer = answer(f"from {n}")

    async def run() -> list[str]:
        player, asked = Player(made), recording()
        return [
            (await play(player, asked, session)).partition(" answer")[0] for session in ("s2", "a", "s3", "b")
        ]

    assert asyncio.run(run()) == ["from 2", "from 0", "from 3", "from 1"]


def test_a_recording_is_played_once_and_a_session_that_fits_none_takes_none() -> None:
    player = Player([recording()])
    assert "request 1 of 4: messages[1] (user).content differs" in failure(
        player, recording("other"), session="x"
    )
    asyncio.run(play(player, recording(), "a"))
    assert failure(player, recording(), session="b").startswith(
        'session "b" asks the first request of r.jsonl, which is played by session "a" already; '
        "a recording is played once"
    )
    asyncio.run(play(Player([recording(), recording()]), recording(), "a"))
    assert failure(Player([]), recording()) == 'session "live" asks the model, but no recording has a request'


def test_what_is_left_of_a_turn_or_a_recording_fails_or_is_told() -> None:
    asked = recording()
    del asked.turns[0].exchanges[2]
    message = failure(Player([recording()]), asked)
    assert message.startswith("r.jsonl: turn 1 has ended, but the recorded one goes on with request 3\n")
    asked = recording()
    asked.turns[0].stop_reason = "max_tokens"
    assert "turn 1 has ended as max_tokens, but the recorded one as completed" in failure(
        Player([recording()]), asked
    )
    asked = recording()
    asked.turns[0].exchanges += asked.turns[1].exchanges
    assert "request 4 of 4 was not recorded in turn 1, which has 3" in failure(Player([recording()]), asked)
    asked = recording()
    asked.turns.append(Turn(3, [], [asked.exchanges[3]], "completed"))
    player = Player([recording()])
    assert "r.jsonl: turn 3 was not recorded; the recording has 2" in failure(player, asked)
    assert player.close_session("live") is None
    asked = recording()
    del asked.turns[1:]
    player = Player([recording()])
    asyncio.run(play(player, asked))
    left = player.close_session("live")
    assert left is not None and left["turns"] == 1 and "the recording goes on with turn 2" in left["message"]


def test_a_result_that_differs_fails_there_or_is_an_event_and_later_requests_have_the_recorded_one() -> None:
    asked = recording()
    asked.exchanges[0].results = [ToolOutcome("c1", "bash", "a\n{{cwd}}/g", False)]
    message = failure(Player([recording()]), asked)
    assert message.startswith(
        "r.jsonl: the result of call c1 (bash) differs\n"
        "--- recorded\n+++ now\n@@ -1 +1,2 @@\n-{{cwd}}/f\n+a\n+{{cwd}}/g\n"
    )
    for number in (1, 2, 3):
        body = asked.exchanges[number].body
        asked.exchanges[number].body = changed(body, ("messages", 3, "content"), "a\n{{cwd}}/g")
    player = Player([recording()], on_divergence="event")
    assert "answer 3" in asyncio.run(play(player, asked))
    asked.exchanges[3].body = changed(asked.exchanges[3].body, ("messages", 5, "content"), "else")
    assert "messages[5] (tool c2).content differs" in failure(
        Player([recording()], on_divergence="event"), asked
    )
    asked = recording()
    asked.exchanges[0].results = [ToolOutcome("c1", "bash", "{{cwd}}/f", True)]
    assert "c1 (bash) is an error now, with the same text" in failure(Player([recording()]), asked)
    asked.exchanges[0].results = [ToolOutcome("c9", "bash", "", False)]
    assert "the result of call c9 (bash) was not recorded" in failure(Player([recording()]), asked)


def test_masks_of_the_recording_hold_for_requests_and_results() -> None:
    one = recording(masks={"pid": r"pid \d+", "time": r"\d\d:\d\d"})
    one.exchanges[0].results = [ToolOutcome("c1", "bash", "{{pid}} at {{time}}", False)]
    for exchange in one.exchanges[1:]:
        exchange.body = changed(exchange.body, ("messages", 3, "content"), "{{pid}} at {{time}}")
    asked = copy.deepcopy(one)
    asked.exchanges[0].results = [ToolOutcome("c1", "bash", "pid 77 at 12:45", False)]
    for exchange in asked.exchanges[1:]:
        exchange.body = changed(exchange.body, ("messages", 3, "content"), "pid 77 at 12:45")
    assert "answer 3" in asyncio.run(play(Player([one]), asked))
    asked.exchanges[0].results = [ToolOutcome("c1", "bash", "pid x at 12:45", False)]
    assert "-{{pid}} at {{time}}\n+pid x at {{time}}" in failure(Player([one]), asked)


def test_a_refresh_compares_nothing_and_finds_its_recording() -> None:
    made = [recording("one", "s1", "1.jsonl"), recording("two", "s2", "2.jsonl")]
    for n, one in enumerate(made):
        one.exchanges[0].answer = answer(f"from {n}")
    asked = recording("another", "s2")
    asked.exchanges[0].results = []
    player = Player(made, compares=False)
    assert asyncio.run(play(player, asked, "s2")).startswith("from 1 ")
    assert asyncio.run(play(player, asked, "x")).startswith("from 0 ")


def test_secrets_are_tokens_on_both_sides() -> None:
    one = recording("use {{secret}}", secrets=["TOKEN_OF_TEST"])
    player = Player(
        [one], secrets=lambda names: ["0123456789abcdef"] if list(names) == ["TOKEN_OF_TEST"] else []
    )
    assert "answer 3" in asyncio.run(play(player, recording("use 0123456789abcdef")))
    assert "answer 3" in asyncio.run(play(Player([one]), recording("use {{secret}}")))


def test_recorded_results_are_given_and_where_there_is_none_a_cancel_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(played, "LEFT_S", 0.01)
    player = Player([recording()], tools="recorded")
    asked = recording()
    asked.turns[0].exchanges[1:] = []
    with pytest.raises(ReplayMismatchError, match="goes on with request 2"):
        asyncio.run(play(player, asked, results=False))
    found = asyncio.run(player.recorded_result("live", "c1", "bash"))
    assert found is not None and (found.text, found.is_error) == ("/here/f", False)
    missing = asyncio.run(player.recorded_result("live", "c2", "bash"))
    assert missing is not None and "this replay was not" in missing.text and missing.is_error
    assert asyncio.run(player.recorded_result("unknown", "c1", "bash")) is None


@pytest.mark.parametrize("status", [None, 200])
def test_an_answer_that_was_left_waits_for_a_cancel(
    monkeypatch: pytest.MonkeyPatch, status: int | None
) -> None:
    monkeypatch.setattr(played, "LEFT_S", 0.01)
    one = recording()
    one.exchanges[0].answer = Answer(status, {}, 1, [Chunk(2, b"x")] if status else [], was_left=True)
    message = failure(Player([one]), recording())
    assert message.startswith("nobody read the recorded answer to its end: it was cancelled there")

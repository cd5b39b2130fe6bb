"""Limits of runs and sessions: each ends its run with its own stop reason, and a log that is in order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from conversations import Conversations, hosted
from cordisd.mock import Answer, Hang, RawReply, call, calls, delta, error, text
from daemon import Daemon
from measure import PATIENCE_S

PRICES = {"deepseek-v4-flash": {"input": 1.0, "cachedInput": 0.25, "output": 2.0}}
ROW = {"provider": "deepseek-official", "apiKeyEnv": "DEEPSEEK_API_KEY", "prices": PRICES}
PATCH = json.dumps([{"id": "deepseek", "config": ROW}])
TOKENS = 24
"""Of each answer of the scripted model: 20 read, 4 written."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Conversations]]:
    """A daemon whose model has prices, for all tests of this file."""
    with hosted(tmp_path_factory.mktemp("limits"), PATCH) as found:
        yield found


def begin(daemon: Daemon, session: str, **limits: float) -> None:
    daemon.request("session/create", {"sessionId": session, "limits": limits})


def run(daemon: Daemon, session: str, **extra: object) -> dict[str, Any]:
    """The `session.completed` of a prompt that says what the session is called."""
    message_id = daemon.prompt(session, session, **extra)
    return completed(daemon, message_id)


def completed(daemon: Daemon, message_id: str) -> dict[str, Any]:
    def told() -> dict[str, Any] | None:
        for frame in daemon.frames:
            if frame.get("method") == "session.completed" and frame["params"]["messageId"] == message_id:
                params: dict[str, Any] = frame["params"]
                return params
        return None

    found: dict[str, Any] = daemon.wait(told, PATIENCE_S)
    return found


def bash(number: int, command: str = "echo ok") -> Answer:
    return call(f"c{number}", "bash", {"command": command})


def results(daemon: Daemon, session: str) -> list[str]:
    """The texts of all tool results of a session, once every call is known to have one."""
    events = daemon.events(session)
    made = [
        block["id"]
        for event in events
        if event["type"] == "assistant/message"
        for block in event["data"]["message"]["content"]
        if block["type"] == "tool-call"
    ]
    told = [event["data"]["message"] for event in events if event["type"] == "tool/result"]
    assert [message["source"]["callId"] for message in told] == made
    return [message["content"][0]["content"][0]["text"] for message in told]


def ended_by(outcome: dict[str, Any]) -> tuple[str, str, float, float]:
    """Stop reason, and name, allowance and use of the limit of a run that a limit has ended."""
    limit = outcome["limit"]
    assert outcome["reason"] == {"kind": "aborted", "reason": {"kind": "hook", "limit": limit["name"]}}
    assert list(limit) == ["name", "allowed", "used"]
    return outcome["stopReason"], limit["name"], limit["allowed"], limit["used"]


def test_the_tools_of_the_last_permitted_answer_run_and_then_the_run_stops(
    place: tuple[Daemon, Conversations],
) -> None:
    daemon, model = place
    model.plan("turns", bash(1), bash(2), text("again"), bash(3), bash(4))
    begin(daemon, "turns", maxTurns=2)
    assert ended_by(run(daemon, "turns")) == ("turn_limit", "maxTurns", 2, 2)
    assert results(daemon, "turns") == ["ok", "ok"]
    assert len(model.received["turns"]) == 2
    assert run(daemon, "turns")["stopReason"] == "completed", "a run has a budget of its own"
    assert ended_by(run(daemon, "turns"))[0] == "turn_limit"
    roles = [message["role"] for message in model.received["turns"][-1]["messages"]]
    assert roles[1:9] == ["user", "user", "assistant", "tool", "assistant", "tool", "user", "assistant"]


def test_an_answer_without_calls_that_reaches_every_limit_has_completed(
    place: tuple[Daemon, Conversations],
) -> None:
    daemon, model = place
    model.plan("exact", bash(1, "printf xx"), text("done"))
    begin(
        daemon, "exact", maxTurns=2, maxModelTokens=2 * TOKENS, maxToolOutputBytes=3, maxCost=0.000056,
        maxSessionTurns=1, maxSessionModelTokens=2 * TOKENS, maxErrors=1,
    )  # fmt: skip
    outcome = run(daemon, "exact")
    assert (outcome["stopReason"], outcome["reason"]) == ("completed", {"kind": "completed"})
    assert "limit" not in outcome


@pytest.mark.parametrize(
    ("limit", "allowed", "command", "stop_reason", "used"),
    [
        ("maxModelTokens", 30, "true", "token_limit", 2 * TOKENS),
        ("maxSessionModelTokens", 2 * TOKENS, "true", "token_limit", 2 * TOKENS),
        ("maxToolOutputBytes", 5, "printf äé", "output_limit", 8),
        ("maxSessionToolOutputBytes", 8, "printf äé", "output_limit", 8),
        ("maxErrors", 2, "", "error_limit", 2),
        ("maxCost", 0.000050, "true", "cost_limit", 0.000056),
        ("maxSessionCost", 0.000056, "true", "cost_limit", 0.000056),
    ],
)
def test_what_two_steps_use_up_stops_the_run_before_the_third(
    limit: str,
    allowed: float,
    command: str,
    stop_reason: str,
    used: float,
    place: tuple[Daemon, Conversations],
) -> None:
    daemon, model = place
    name = f"uses up {limit}"
    step = bash(0, command) if command else call("c", "no_such_tool", {})
    model.plan(name, step, step, step)
    begin(daemon, name, **{limit: allowed})
    assert ended_by(run(daemon, name)) == (stop_reason, limit, allowed, pytest.approx(used))
    assert len(model.received[name]) == 2
    assert len(results(daemon, name)) == 2


def test_a_good_result_ends_a_row_of_errors(place: tuple[Daemon, Conversations]) -> None:
    daemon, model = place
    wrong = call("w", "no_such_tool", {})
    made = calls(("a", "no_such_tool", {}), ("b", "bash", {"command": "true"}))
    model.plan("row", wrong, bash(1), made, wrong, text("well"))
    begin(daemon, "row", maxErrors=2)
    assert run(daemon, "row")["stopReason"] == "completed"
    assert len(results(daemon, "row")) == 5


def test_cached_input_costs_what_the_row_says_and_the_cost_is_told(
    place: tuple[Daemon, Conversations],
) -> None:
    daemon, model = place
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 80}}
    model.plan("cached", replace(bash(1), usage=usage), text("done"))
    begin(daemon, "cached", maxCost=1)
    assert daemon.request("session/get", {"sessionId": "cached"})["cost"] == 0
    run(daemon, "cached")
    got = daemon.request("session/get", {"sessionId": "cached"})
    assert got["cost"] == pytest.approx((20 * 1 + 80 * 0.25 + 10 * 2 + 20 * 1 + 4 * 2) / 1e6)
    assert got["limits"] == {"maxCost": 1}
    assert got["usage"] == {"inputTokens": 40, "cacheReadTokens": 80, "outputTokens": 14}


@pytest.mark.parametrize("limit", ["timeoutSeconds", "sessionTimeoutSeconds"])
@pytest.mark.parametrize("busy", ["model", "tool"])
def test_time_that_is_over_interrupts_whatever_runs(
    busy: str, limit: str, place: tuple[Daemon, Conversations]
) -> None:
    daemon, model = place
    sleeps = calls(*((f"t{n}", "bash", {"command": "sleep 300"}) for n in (1, 2)))
    reply = sleeps if busy == "tool" else RawReply([delta({"content": "so far"}), Hang()])
    for seconds in (0.5, 2.0, 8.0, 32.0):  # a busy machine may take long to come to the interesting part
        name = f"{busy} {limit} {seconds}"
        model.plan(name, reply)
        begin(daemon, name, **{limit: seconds})
        stop_reason, named, allowed, used = ended_by(run(daemon, name))
        assert (stop_reason, named, allowed) == ("timeout", limit, seconds)
        assert seconds <= used < seconds + PATIENCE_S
        said = [event["data"] for event in daemon.events(name) if event["type"] == "assistant/message"]
        if said:
            break
    if busy == "model":
        assert [(one["message"]["content"][0]["text"], one["interrupted"]) for one in said] == [
            ("so far", True)
        ]
    else:
        aborted = "Error: tool call aborted"
        assert results(daemon, name) == [aborted, f"{aborted} before dispatch"]
    again = run(daemon, name)
    assert again["stopReason"] == ("completed" if limit == "timeoutSeconds" else "timeout")


def test_a_back_off_ends_in_time_too(place: tuple[Daemon, Conversations]) -> None:
    daemon, model = place
    model.plan("busy", error(429, "busy", retry_after="10"))
    begin(daemon, "busy", timeoutSeconds=0.5)
    assert ended_by(run(daemon, "busy"))[:2] == ("timeout", "timeoutSeconds")


def test_inputs_beyond_those_of_the_session_are_taken_and_not_worked_on(
    place: tuple[Daemon, Conversations],
) -> None:
    daemon, model = place
    model.plan("inputs", bash(1), text("one"), text("two"))
    begin(daemon, "inputs", maxSessionTurns=2)
    ids = [daemon.prompt("inputs", words) for words in ("inputs", "second", "third", "fourth")]
    outcomes = [completed(daemon, message_id) for message_id in ids]
    assert [one["stopReason"] for one in outcomes] == ["completed"] * 2 + ["session_turn_limit"] * 2
    assert ended_by(outcomes[2]) == ("session_turn_limit", "maxSessionTurns", 2, 2)
    events = daemon.events("inputs")
    said = [event["data"]["id"] for event in events if event["type"] == "user/message"]
    assert [one for one in said if one in ids] == ids, "what was said stays said"
    assert len(model.received["inputs"]) == 3
    daemon.wait_idle("inputs")


def test_a_prompt_brings_limits_of_its_own_and_the_smaller_of_two_holds(
    place: tuple[Daemon, Conversations],
) -> None:
    daemon, model = place
    model.plan("own", *(bash(n) for n in range(9)))
    begin(daemon, "own", maxTurns=3, timeoutSeconds=300)
    assert ended_by(run(daemon, "own", maxTurns=2))[1:] == ("maxTurns", 2, 2)
    assert ended_by(run(daemon, "own", maxTurns=200))[1:] == ("maxTurns", 3, 3)
    model.plan("own in time", RawReply([Hang()]))
    outcome = run(daemon, "own in time", timeoutSeconds=0.3)
    assert ended_by(outcome)[:3] == ("timeout", "timeoutSeconds", 0.3)
    assert daemon.request("session/get", {"sessionId": "own in time"})["limits"] == {}


@pytest.mark.parametrize("limit", ["maxModelTokens", "maxCost", "maxSessionModelTokens"])
def test_a_limit_that_cannot_be_kept_ends_the_run_with_an_error_that_names_it(
    limit: str, place: tuple[Daemon, Conversations]
) -> None:
    daemon, model = place
    name = f"unmetered {limit}"
    model.plan(name, replace(text("unmetered"), usage=None), replace(bash(1), usage=None), text("never"))
    begin(daemon, name, **{limit: 1_000_000})
    assert run(daemon, name)["stopReason"] == "completed", "no limit is kept by ending what has ended"
    outcome = run(daemon, name)
    assert outcome["stopReason"] == "error"
    assert outcome["reason"]["error"]["code"] == "USAGE_UNKNOWN"
    assert limit in outcome["reason"]["error"]["message"]
    assert outcome["limit"] == {"name": limit, "allowed": 1_000_000, "used": None}
    assert len(model.received[name]) == (1 if "Session" in limit else 2)
    assert daemon.request("session/get", {"sessionId": name})["cost"] is None


def test_tokens_of_failed_attempts_count(place: tuple[Daemon, Conversations]) -> None:
    daemon, model = place
    empty = replace(text(), text=())
    model.plan("empty", empty, bash(1), text("never"))
    begin(daemon, "empty", maxModelTokens=2 * TOKENS)
    assert ended_by(run(daemon, "empty"))[1:] == ("maxModelTokens", 2 * TOKENS, 2 * TOKENS)


def test_notices_tell_the_model_once_what_is_left(place: tuple[Daemon, Conversations]) -> None:
    daemon, model = place
    model.plan("notice", *(bash(n) for n in range(4)))
    begin(daemon, "notice", maxTurns=4, noticeTurns=2, timeoutSeconds=1000, noticeSeconds=1000)
    assert ended_by(run(daemon, "notice"))[0] == "turn_limit"
    users = [
        [message["content"] for message in body["messages"] if message["role"] == "user"]
        for body in model.received["notice"]
    ]
    in_time = "This run has at most 1000 seconds left."
    turns = "This run has 2 model requests left, this one included."
    first = users[0]
    assert first[:2] == ["notice", in_time]
    assert users[1] == first
    assert users[2] == [*first, turns]
    assert users[3] == users[2], "once"
    told = [event["data"] for event in daemon.events("notice") if event["type"] == "user/message"]
    assert [one["source"]["kind"] for one in told if "text" not in one["source"]] == [
        "user", "limit-notice", "limit-notice",
    ]  # fmt: skip


def test_no_notice_is_given_where_nothing_is_short_or_asked_for(place: tuple[Daemon, Conversations]) -> None:
    daemon, model = place
    model.plan("no notice", bash(1), text("done"))
    begin(daemon, "no notice", maxTurns=5, noticeTurns=3, timeoutSeconds=1000, noticeSeconds=10)
    model.plan("unasked", bash(1), text("done"))
    begin(daemon, "unasked", maxTurns=2, timeoutSeconds=1000)
    for name in ("no notice", "unasked"):
        run(daemon, name)
        assert all("This run" not in json.dumps(body) for body in model.received[name])


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ({"maxTurn": 1}, 'unknown field limits.maxTurn (did you mean "maxTurns"?); allowed: maxTurns, '),
        ({"max_turns": 1}, "unknown field limits.max_turns"),
        ({"maxTurns": 0}, "limits.maxTurns: "),
        ({"maxTurns": 1.5}, "limits.maxTurns: "),
        ({"maxTurns": True}, "limits.maxTurns: "),
        ({"maxModelTokens": "5"}, "limits.maxModelTokens: "),
        ({"timeoutSeconds": 0}, "limits.timeoutSeconds: "),
        ({"timeoutSeconds": -1}, "limits.timeoutSeconds: "),
        ({"maxCost": False}, "limits.maxCost: "),
        ([], "limits: "),
    ],
)
def test_limits_that_make_no_sense_are_refused_with_their_place(
    limits: object, says: str, place: tuple[Daemon, Conversations]
) -> None:
    daemon, _ = place
    code, message = daemon.refused("session/create", {"sessionId": "refused", "limits": limits})
    assert code == -32602
    assert says in message


@pytest.mark.parametrize("limit", ["maxCost", "maxSessionCost"])
def test_a_cost_cannot_be_limited_without_prices(limit: str, place: tuple[Daemon, Conversations]) -> None:
    daemon, _ = place
    params = {"sessionId": f"unpriced {limit}", "model": "other", "limits": {limit: 1}}
    code, message = daemon.refused("session/create", params)
    assert code == -32602
    assert f'limits.{limit} cannot be kept: the composition has no prices for the model "other"' in message
    assert "config of its entry, as `prices: {MODEL: {input: 1.5, output: 6}}`" in message
    daemon.request("session/create", params | {"limits": {}})
    assert daemon.request("session/get", {"sessionId": params["sessionId"]})["cost"] is None

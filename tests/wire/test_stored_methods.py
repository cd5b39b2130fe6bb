"""What a session has logged, asked for over the wire: its events, its outcome, its numbers."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from conversations import Conversations
from cordisd.mock import Hang, MockModelThread, RawReply, call, delta, text
from daemon import Daemon


@pytest.fixture(scope="module")
def model() -> Conversations:
    return Conversations()


@pytest.fixture(scope="module")
def daemon(model: Conversations, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    work = tmp_path_factory.mktemp("work")
    with MockModelThread(model) as mock, Daemon(work, model_url=mock.url) as daemon:
        daemon.initialize()
        yield daemon


def read(daemon: Daemon, session: str, **params: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = daemon.request("session/events", {"sessionId": session, **params})["events"]
    return found


def read_all(daemon: Daemon, session: str, limit: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    asked = {"sessionId": session, "limit": limit}
    page = daemon.request("session/events", asked)
    while page["events"]:
        found += page["events"]
        page = daemon.request("session/events", {**asked, "from": page["next"]})
    return found


def test_the_events_of_a_live_session_are_those_that_were_sent(daemon: Daemon, model: Conversations) -> None:
    model.plan("read", call("c1", "bash", {"command": "printf 'a\\tb\\u2028'"}), text("de", "lt", "as", "…"))
    sent = daemon.run("read", "read")
    assert json.dumps(read_all(daemon, "read", 7)) == json.dumps(sent)
    page = daemon.request("session/events", {"sessionId": "read", "from": 3, "limit": 2})
    assert page == {"events": sent[3:5], "next": 5}
    end = {"events": [], "next": len(sent)}
    assert daemon.request("session/events", {"sessionId": "read", "from": len(sent)}) == end
    beyond = {"events": [], "next": 10_000}
    assert daemon.request("session/events", {"sessionId": "read", "from": 10_000}) == beyond


def test_what_a_running_session_has_acknowledged_is_there(daemon: Daemon, model: Conversations) -> None:
    model.plan("hang", RawReply([delta({"content": "…"}), Hang()]))
    message_id = daemon.prompt("hang", "hang")
    assert read(daemon, "hang", limit=1)[0]["data"]["inserted"][0]["id"] == message_id
    daemon.wait(lambda: any(event["type"] == "assistant/chunk" for event in daemon.events("hang")))
    asked = {"sessionId": "hang", "contentBlocks": [{"type": "text", "text": "more"}]}
    steered = daemon.request("session/steer", asked)["messageId"]
    assert read(daemon, "hang")[-1]["data"]["inserted"][0]["id"] == steered
    daemon.request("session/cancel", {"sessionId": "hang"})
    daemon.wait_idle("hang")


def test_a_closed_and_a_resumed_session_are_read_with_the_mark_that_is_not_sent(daemon: Daemon) -> None:
    sent = daemon.run("again", "again")
    daemon.request("session/close", {"sessionId": "again"})
    assert read(daemon, "again") == sent
    daemon.request("session/resume", {"sessionId": "again"})
    later = daemon.run("again", "more")
    found = read(daemon, "again")
    assert found[len(sent)]["type"] == "session/end-seed"
    assert found == [*sent, found[len(sent)], *later]
    assert all(one["seq"] + 1 == two["seq"] for one, two in pairwise(found))


def test_a_session_without_an_event_has_none_and_an_unknown_one_is_an_error(daemon: Daemon) -> None:
    daemon.request("session/create", {"sessionId": "blank"})
    assert daemon.request("session/events", {"sessionId": "blank"}) == {"events": [], "next": 0}
    assert daemon.request("session/metrics", {"sessionId": "blank"})["turns"] == 0
    for method in ("session/events", "session/metrics"):
        assert daemon.refused(method, {"sessionId": "nobody"})[0] == -32002
    assert daemon.refused("session/outcome", {"sessionId": "nobody", "class": "unknown"})[0] == -32002


@pytest.mark.parametrize("params", [{"from": -1}, {"limit": 0}, {"limit": 10_001}, {"from": 1.5}, {"to": 3}])
def test_params_of_a_page_that_do_not_fit_are_named(params: dict[str, Any], daemon: Daemon) -> None:
    code, message = daemon.refused("session/events", {"sessionId": "blank", **params})
    assert (code, next(iter(params)) in message) == (-32602, True)


def test_pages_are_asked_for_in_a_batch_too(daemon: Daemon) -> None:
    daemon.run("batch", "batch")
    frames = [
        {"jsonrpc": "2.0", "id": f"p{start}", "method": "session/events",
         "params": {"sessionId": "batch", "from": start, "limit": 1}}
        for start in (0, 1)
    ]  # fmt: skip
    daemon.send_raw(json.dumps([*frames, {"jsonrpc": "2.0", "id": 7, "method": "rpc.ping"}]).encode() + b"\n")
    answers = json.loads(daemon.next_line())
    assert [answer["result"].get("next") for answer in answers] == [1, 2, None]
    assert answers[0]["result"]["events"][0]["seq"] == 0


def test_the_last_outcome_counts_and_is_an_event_like_others(daemon: Daemon) -> None:
    sent = daemon.run("judged", "judged")
    assert daemon.request("session/get", {"sessionId": "judged"})["outcome"] is None
    first = {"class": "verifier_failure", "reward": 0, "data": {"tests": None}}
    last = {"class": "success", "reward": 0.5}
    for outcome in (first, last):
        assert daemon.request("session/outcome", {"sessionId": "judged", **outcome}) == {}
        assert daemon.request("session/get", {"sessionId": "judged"})["outcome"] == outcome
    logged = read(daemon, "judged", **{"from": len(sent)})
    assert [(event["type"], event["data"], event["ignorable"]) for event in logged] == [
        ("session/outcome", first, True),
        ("session/outcome", last, True),
    ]
    assert daemon.events("judged")[-2:] == logged
    daemon.request("session/close", {"sessionId": "judged"})
    daemon.request("session/resume", {"sessionId": "judged"})
    assert daemon.request("session/get", {"sessionId": "judged"})["outcome"] == last


def test_an_outcome_of_a_closed_session_is_appended_and_leaves_it_closed(daemon: Daemon) -> None:
    sent = daemon.run("late", "late")
    daemon.request("session/close", {"sessionId": "late"})
    for reward in (1, 2):
        daemon.request("session/outcome", {"sessionId": "late", "class": "success", "reward": reward})
        assert daemon.refused("session/get", {"sessionId": "late"})[0] == -32002
    added = read(daemon, "late", **{"from": len(sent)})
    assert [event["type"] for event in added] == ["session/end-seed", "session/outcome"] * 2
    assert daemon.request("session/metrics", {"sessionId": "late"})["outcome"]["reward"] == 2
    daemon.request("session/resume", {"sessionId": "late"})
    assert daemon.request("session/get", {"sessionId": "late"})["outcome"]["reward"] == 2


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({}, "class"),
        ({"class": "won"}, "class"),
        ({"class": "success", "reward": "1"}, "reward"),
        ({"class": "success", "reward": True}, "reward"),
        ({"class": "success", "reward": 10**400}, "reward"),
        ({"class": "success", "data": [1]}, "data"),
        ({"class": "success", "verifier": "x"}, "verifier"),
        (
            {"class": "success", "data": {"deep": json.loads("[" * 150 + "]" * 150)}},
            "data must not be nested",
        ),
    ],
)
def test_an_outcome_that_does_not_fit_is_refused_and_not_logged(
    params: dict[str, Any], named: str, daemon: Daemon
) -> None:
    asked = {"sessionId": f"unfit-{len(str(params))}"}
    daemon.request("session/create", asked)
    code, message = daemon.refused("session/outcome", {**asked, **params})
    assert (code, named in message) == (-32602, True), message
    assert read(daemon, asked["sessionId"]) == []


def test_the_numbers_are_those_of_the_log(daemon: Daemon, model: Conversations) -> None:
    refusal = RawReply([b"busy"], status=503, headers={"Retry-After": "0"})
    answer = call("c1", "bash", {"command": "echo one; exit 3"})
    model.plan("numbers", refusal, answer, text("done"), call("c2", "nope", {}), text("again"))
    daemon.run("numbers", "numbers")
    daemon.run("numbers", "and")
    live = daemon.request("session/metrics", {"sessionId": "numbers"})
    daemon.request("session/close", {"sessionId": "numbers"})
    assert daemon.request("session/metrics", {"sessionId": "numbers"}) == live
    header, *lines = daemon.log("numbers")
    by_type = Counter(line["type"] for line in lines)
    results = [line["data"]["message"]["content"][0] for line in lines if line["type"] == "tool/result"]
    names = [line["data"]["name"] for line in lines if line["type"] == "tool/call"]
    usages = [line["data"]["usage"] for line in lines if line["type"] == "assistant/message"]
    times = {kind: [line["time"] for line in lines if line["type"] == kind] for kind in by_type}
    assert live["identity"] == {
        **{key: header["cordisd"][key] for key in ("preset", "digest", "version")},
        "profile": None,
        "provider": "deepseek-official",
        "model": "deepseek-v4-flash",
    }
    assert live["turns"] == by_type["turn/start"] == 2
    assert live["requests"] == {
        "attempts": by_type["assistant/message"] + by_type["llm/retry"],
        "retries": by_type["llm/retry-started"],
    } == {"attempts": 5, "retries": 1}  # fmt: skip
    assert live["requestsWithoutUsage"] == 1
    assert live["tokens"] == {
        "input": sum(usage["inputTokens"] for usage in usages),
        "output": sum(usage["outputTokens"] for usage in usages),
        "reasoning": None,
        "cacheRead": None,
    }
    assert live["toolCalls"] == {
        name: {
            "calls": 1,
            "errors": int(result["isError"]),
            "outputBytes": len(result["content"][0]["text"].encode()),
        }
        for name, result in zip(names, results, strict=True)
    }
    spans = zip(times["turn/start"], times["turn/end"], strict=True)
    assert live["wallMs"]["total"] == sum(end - start for start, end in spans)
    calls = zip(times["tool/call"], times["tool/result"], strict=True)
    assert live["wallMs"]["tools"] == sum(end - start for start, end in calls)
    assert 0 <= live["wallMs"]["model"] <= live["wallMs"]["total"] - live["wallMs"]["tools"]
    assert live["headers"] == by_type["request/header"] == 1
    assert (live["stopReasons"], live["lastStopReason"]) == ({"completed": 2}, "completed")
    assert (live["outcome"], live["seed"]) == (None, None)


def test_a_fork_has_its_parents_numbers_and_tells_which(daemon: Daemon) -> None:
    daemon.run("seeded", "seeded")
    daemon.request("session/fork", {"sessionId": "seeded", "newSessionId": "sprout"})
    parent = daemon.request("session/metrics", {"sessionId": "seeded"})
    daemon.run("sprout", "more")
    child = daemon.request("session/metrics", {"sessionId": "sprout"})
    assert (child["turns"], child["tokens"]["input"]) == (2, 2 * parent["tokens"]["input"])
    assert child["seed"]["parentSession"] == "seeded"
    same = ("turns", "requests", "requestsWithoutUsage", "tokens")
    assert {key: child["seed"][key] for key in same} == {key: parent[key] for key in same}


def test_what_another_process_has_open_is_read_but_not_judged(tmp_path: Path) -> None:
    with MockModelThread([text("one")]) as mock:
        with Daemon(tmp_path, model_url=mock.url) as first, Daemon(tmp_path, model_url=mock.url) as second:
            first.initialize()
            sent = first.run("s", "x")
            assert read_all(second, "s", 1000) == sent
            assert second.request("session/metrics", {"sessionId": "s"})["turns"] == 1
            outcome = {"sessionId": "s", "class": "success"}
            assert second.refused("session/outcome", outcome)[0] == -32003
            first.request("session/close", {"sessionId": "s"})
            assert second.request("session/outcome", outcome) == {}
            assert read(first, "s")[-1]["data"] == {"class": "success"}


def test_without_persistence_there_is_nothing_to_read_and_the_error_says_so(tmp_path: Path) -> None:
    patch = tmp_path / "patch.yml"
    patch.write_text("- {id: sessions, disabled: true}\n")
    work = tmp_path / "w"
    work.mkdir()
    argv = [sys.executable, "-m", "cordisd", "serve", "--stdio", "minimal", "--patch", str(patch)]
    with MockModelThread([text("ok")]) as mock, Daemon(work, model_url=mock.url, argv=argv) as daemon:
        daemon.initialize()
        daemon.run("s", "x")
        for method in ("session/events", "session/metrics", "session/fork"):
            code, message = daemon.refused(method, {"sessionId": "s"})
            assert (code, "stores no sessions" in message) == (-32010, True), message
            assert daemon.refused(method, {"sessionId": "t"})[0] == -32002
        daemon.request("session/outcome", {"sessionId": "s", "class": "timeout"})
        assert daemon.request("session/get", {"sessionId": "s"})["outcome"] == {"class": "timeout"}
        assert daemon.refused("session/outcome", {"sessionId": "t", "class": "timeout"})[0] == -32002

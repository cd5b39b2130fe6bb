"""A fork goes on exactly where its parent stands, and then each goes its own way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from conversations import Conversations, hosted
from cordisd.mock import Hang, RawReply, call, delta, event, stream, text
from daemon import Daemon

CUT_CALL = {"index": 0, "id": "cut", "function": {"name": "bash", "arguments": '{"command":"echo'}}
REFUSAL = {"error": {"message": "no", "type": "invalid_request_error", "code": 400}}


class World(NamedTuple):
    """A daemon with runtime context, and the model that it asks."""

    daemon: Daemon
    model: Conversations

    def fork(self, parent: str, child: str, **params: object) -> dict[str, Any]:
        asked = {"sessionId": parent, "newSessionId": child, **params}
        return self.daemon.request("session/fork", asked)

    def result(self, events: list[dict[str, Any]]) -> str:
        """The text of the first tool result."""
        data = next(event["data"] for event in events if event["type"] == "tool/result")
        told: str = data["message"]["content"][0]["content"][0]["text"]
        return told


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with hosted(tmp_path_factory.mktemp("fork")) as (daemon, model):
        yield World(daemon, model)


def said(body: dict[str, Any]) -> list[str]:
    """What user and model have said, without the runtime context."""
    contents = [one["content"] for one in body["messages"] if one["role"] != "system"]
    return [words for words in contents if not words.startswith("Current runtime context")]


def blocks(words: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": words}]


def nothing(world: World, name: str) -> None:
    pass


def use_a_tool(world: World, name: str) -> None:
    world.model.plan(name, call("c1", "bash", {"command": "echo hé; X=1"}), text("used ", "it"))
    world.daemon.run(name, "use it")


def move(world: World, name: str) -> None:
    (world.daemon.cwd / name).mkdir()
    world.daemon.request("session/working-directory/set", {"sessionId": name, "path": name})


def steer(world: World, name: str) -> None:
    world.daemon.request("session/steer", {"sessionId": name, "contentBlocks": blocks("mind the gap")})


def resume(world: World, name: str) -> None:
    world.daemon.request("session/close", {"sessionId": name})
    world.daemon.request("session/resume", {"sessionId": name})


def cut_a_call(world: World, name: str) -> None:
    world.model.plan(name, stream(delta({"tool_calls": [CUT_CALL]}), finish="length"))
    world.daemon.run(name, "say too much")


def fail(world: World, name: str) -> None:
    world.model.plan(name, RawReply([delta({"content": "half"}), event(REFUSAL)]))
    assert world.daemon.run(name, "fail")[-1]["data"]["reason"]["kind"] == "error"


def cancel(world: World, name: str) -> None:
    world.model.plan(name, RawReply([delta({"content": "half a word"}), Hang()]))
    start = len(world.daemon.frames)
    world.daemon.prompt(name, "hang")
    world.daemon.wait(
        lambda: any(one["type"] == "assistant/chunk" for one in world.daemon.events(name, start))
    )
    world.daemon.request("session/cancel", {"sessionId": name})
    world.daemon.wait_idle(name, start)


def do_it_all(world: World, name: str) -> None:
    for step in (use_a_tool, cut_a_call, steer, fail, move, use_a_tool, resume, cancel, steer):
        step(world, name)


BEFORE = (nothing, use_a_tool, move, steer, resume, cut_a_call, fail, cancel, do_it_all)


@pytest.mark.parametrize("before", BEFORE)
def test_the_next_request_of_both_is_the_same_to_the_byte(before: Any, world: World) -> None:
    name, child = f"parent-{before.__name__}", f"child-{before.__name__}"
    world.daemon.run(name, name)
    before(world, name)
    made = world.fork(name, child)
    got = world.daemon.request("session/get", {"sessionId": name})
    assert made == {"sessionId": child, **{key: got[key] for key in ("preset", "digest", "cwd")}}
    n_before = len(world.model.bodies[name])
    world.daemon.run(child, "and then?")
    world.daemon.run(name, "and then?")
    of_child, of_parent = world.model.bodies[name][n_before:]
    assert of_child == of_parent
    assert b"and then?" in of_child


def test_forks_of_one_parent_and_of_a_fork_do_not_know_of_each_other(world: World) -> None:
    world.daemon.run("root", "root")
    world.fork("root", "left")
    world.fork("root", "right")
    world.model.plan("root", text("left answer"), text("right answer"))
    world.daemon.run("left", "go left")
    world.daemon.run("right", "go right")
    world.fork("left", "leaf")
    world.daemon.run("leaf", "go on")
    assert [said(body) for body in world.model.received["root"][1:]] == [
        ["root", "ok", "go left"],
        ["root", "ok", "go right"],
        ["root", "ok", "go left", "left answer", "go on"],
    ]
    header = world.daemon.log("leaf")[0]
    n_seed = header["seedLength"]
    assert header["parentSession"] == "left"
    assert world.daemon.log("leaf")[1 : len(world.daemon.log("left"))] == world.daemon.log("left")[1:], (
        "the seed is the parent's log"
    )
    events = world.daemon.request("session/events", {"sessionId": "leaf", "from": n_seed})["events"]
    assert events[0]["type"] == "session/end-seed"
    assert (events[0]["seq"], events[1]["data"]["target"]) == (n_seed, "next-turn")
    assert world.daemon.events("leaf")[0]["seq"] == n_seed + 1, "the mark is not sent"


def test_the_header_tells_whose_fork_it_is_and_keeps_what_the_client_chose(world: World) -> None:
    chosen = {"model": "another", "maxTokens": 77, "rolloutId": "r", "groupId": "g"}
    world.daemon.request("session/create", {"sessionId": "chooser", **chosen})
    world.daemon.run("chooser", "chooser")
    world.fork("chooser", "chosen")
    parent, child = world.daemon.log("chooser")[0], world.daemon.log("chosen")[0]
    same = {key: value for key, value in child.items() if parent.get(key) == value}
    assert child.keys() - same.keys() == {"id", "createdAt", "parentSession", "seedLength"}
    assert child["createdAt"] > parent["createdAt"]
    world.daemon.run("chosen", "on")
    assert [body["model"] for body in world.model.received["chooser"]] == ["another", "another"]
    assert [body["max_tokens"] for body in world.model.received["chooser"]] == [77, 77]
    assert world.daemon.request("session/get", {"sessionId": "chosen"})["groupId"] == "g"


def test_turn_numbers_and_usage_go_on(world: World) -> None:
    world.daemon.run("counting", "counting")
    world.daemon.run("counting", "two")
    world.fork("counting", "counted")
    events = world.daemon.run("counted", "three")
    assert next(one["data"]["turn"] for one in events if one["type"] == "turn/start") == 3
    assert {"request/header", "session/title"}.isdisjoint(one["type"] for one in events)
    got = world.daemon.request("session/get", {"sessionId": "counted"})
    assert (got["turns"], got["usage"]["inputTokens"]) == (3, 60)


def test_a_fork_at_a_turn_knows_nothing_of_later_ones(world: World) -> None:
    for prompt in ("turns", "second", "third"):
        world.daemon.run("turns", prompt)
    (world.daemon.cwd / "later").mkdir()
    world.daemon.request("session/working-directory/set", {"sessionId": "turns", "path": "later"})
    assert world.fork("turns", "at-2", atTurn=2)["cwd"] == str(world.daemon.cwd)
    assert world.fork("turns", "at-3", atTurn=3)["cwd"] == str(world.daemon.cwd), "the move came after it"
    assert world.fork("turns", "now")["cwd"] == str(world.daemon.cwd / "later")
    world.daemon.run("at-2", "else")
    assert said(world.model.received["turns"][-1]) == ["turns", "ok", "second", "ok", "else"]
    asked = {"sessionId": "at-2", "from": world.daemon.log("at-2")[0]["seedLength"] - 1, "limit": 2}
    last, mark = world.daemon.request("session/events", asked)["events"]
    assert (last["type"], last["data"]["turn"], mark["type"]) == ("turn/end", 2, "session/end-seed")
    for turn in (0, 4, -1):
        code, message = world.daemon.refused(
            "session/fork", {"sessionId": "turns", "newSessionId": "never", "atTurn": turn}
        )
        assert (code, f"(1 to 3 have), not {turn}" in message) == (-32602, True), message


def test_a_running_parent_is_forked_where_its_last_turn_ended(world: World) -> None:
    world.model.plan("runs", text("fine"), RawReply([delta({"content": "…"}), Hang()]))
    world.daemon.run("runs", "runs")
    start = len(world.daemon.frames)
    world.daemon.prompt("runs", "hang", idempotencyKey="k")
    world.daemon.prompt("runs", "queued behind")
    world.daemon.wait(lambda: len(world.model.bodies["runs"]) == 2)
    world.fork("runs", "walks")
    world.model.plan("runs", text("walked"))
    world.daemon.run("walks", "walk")
    assert said(world.model.received["runs"][-1]) == ["runs", "fine", "walk"]
    assert world.daemon.request("session/get", {"sessionId": "runs"})["status"] == "running"
    assert not any(one["type"] == "turn/end" for one in world.daemon.events("runs", start))
    world.daemon.request("session/cancel", {"sessionId": "runs"})
    world.daemon.wait_idle("runs", start)


def test_what_has_no_turn_that_ended_cannot_be_forked(world: World) -> None:
    world.daemon.request("session/create", {"sessionId": "blank"})
    asked = {"sessionId": "blank", "newSessionId": "never"}
    assert world.daemon.refused("session/fork", asked) == (
        -32007,
        'session "blank" cannot be forked: it has no event yet',
    )
    world.model.plan("first", RawReply([delta({"content": "…"}), Hang()]))
    world.daemon.prompt("blank", "first")
    world.daemon.wait(lambda: world.model.bodies["first"])
    assert world.daemon.refused("session/fork", asked) == (
        -32007,
        'session "blank" cannot be forked: no turn of it has ended yet',
    )
    code, message = world.daemon.refused("session/fork", {**asked, "atTurn": 1})
    assert (code, "(none has yet), not 1" in message) == (-32602, True), message
    world.daemon.request("session/cancel", {"sessionId": "blank"})
    assert world.daemon.refused("session/fork", {**asked, "sessionId": "none"})[0] == -32002
    assert not list(world.daemon.sessions.glob("*/never")), "a refused fork leaves nothing"


def test_a_fork_needs_an_id_that_is_free_or_gets_one(world: World) -> None:
    world.daemon.run("taken", "taken")
    for child in ("taken", "closed"):
        if child == "closed":
            world.fork("taken", child)
            world.daemon.request("session/close", {"sessionId": child})
        code, message = world.daemon.refused("session/fork", {"sessionId": "taken", "newSessionId": child})
        assert (code, "already exists" in message) == (-32001, True)
    made = world.daemon.request("session/fork", {"sessionId": "taken"})["sessionId"]
    world.daemon.run(made, "on")
    assert world.daemon.log(made)[0]["parentSession"] == "taken"


def test_the_first_bash_result_says_that_the_shell_is_new(world: World) -> None:
    world.model.plan("shell", call("c1", "bash", {"command": "K=1; echo set"}), text("ok"))
    world.daemon.run("shell", "shell")
    world.fork("shell", "shell-2")
    world.model.plan("shell", call("c2", "bash", {"command": "echo [$K]"}), text("ok"))
    told = world.result(world.daemon.run("shell-2", "look"))
    assert "[]" in told
    assert "reset" in told
    world.model.plan("shell", call("c3", "bash", {"command": "echo [$K]"}), text("ok"))
    assert world.result(world.daemon.run("shell", "look")) == "[1]", "the parent's shell lives on"


def test_keys_and_outcomes_of_the_parent_do_not_count_in_the_fork(world: World) -> None:
    daemon = world.daemon
    first = daemon.prompt("keys", "keys", idempotencyKey="k")
    daemon.wait_idle("keys")
    daemon.request("session/outcome", {"sessionId": "keys", "class": "success", "reward": 1})
    world.fork("keys", "keys-2")
    for resumed in (False, True):
        if resumed:
            daemon.request("session/close", {"sessionId": "keys-2"})
            daemon.request("session/resume", {"sessionId": "keys-2"})
        assert daemon.request("session/get", {"sessionId": "keys-2"})["outcome"] is None
    start = len(daemon.frames)
    second = daemon.prompt("keys-2", "again", idempotencyKey="k")
    daemon.wait_idle("keys-2", start)
    assert second != first
    assert daemon.prompt("keys-2", "again", idempotencyKey="k") == second, "its own keys do"
    assert daemon.prompt("keys", "keys", idempotencyKey="k") == first


def test_a_resumed_fork_goes_on_as_itself(world: World) -> None:
    world.daemon.run("origin", "origin")
    world.fork("origin", "other")
    world.daemon.run("other", "on my own")
    world.daemon.request("session/close", {"sessionId": "other"})
    world.daemon.request("session/resume", {"sessionId": "other"})
    world.daemon.run("other", "again")
    assert said(world.model.received["origin"][-1]) == ["origin", "ok", "on my own", "ok", "again"]
    seqs = [line["seq"] for line in world.daemon.log("other")[1:] if "seq" in line]
    assert seqs == sorted(set(seqs))

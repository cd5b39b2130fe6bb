"""Who may act on a session, who hears it, and what becomes of it when its connection goes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cordisd.mock import MockModelThread, Received, Reply, call, text
from measure import comes
from socket_daemon import SocketClient, SocketDaemon, clients_of

BUSY, NOT_FOUND, INVALID = -32003, -32002, -32602


def reply(request: Received) -> Reply:
    """A prompt `run COMMAND` has it run, any other is answered at once."""
    messages = request.json["messages"]
    n_before = max(n for n, message in enumerate(messages) if message["role"] != "user") + 1
    for message in messages[n_before:]:  # the prompt, and what goes with it
        if message["content"].startswith("run "):
            return call("c1", "bash", {"command": message["content"].removeprefix("run ")})
    return text("ok")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SocketDaemon]:
    folder = tmp_path_factory.mktemp("ownership")
    (folder / "w").mkdir()
    with MockModelThread(reply) as mock:
        places = ["--socket", str(folder / "s")]
        with SocketDaemon(folder / "w", *places, composition=("host",), model_url=mock.url) as daemon:
            yield daemon
            assert daemon.end() == 0
            assert b"Traceback" not in daemon.stderr


@pytest.fixture
def connect(daemon: SocketDaemon) -> Iterator[Callable[[], SocketClient]]:
    with clients_of(daemon) as make:
        yield make


@pytest.fixture
def session(request: pytest.FixtureRequest) -> str:
    """An id of this test only."""
    return str(request.node.name)


def blocks(words: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": words}]


def attach(client: SocketClient, session: str, **start: int) -> int:
    """Attach, and return the seq of the event that comes after those that were there."""
    last: int = client.request("session/attach", {"sessionId": session, **start})["lastSeq"]
    return last + 1


def status(client: SocketClient, session: str) -> str:
    found: str = client.request("session/get", {"sessionId": session})["status"]
    return found


def run_command(client: SocketClient, session: str, command: str) -> None:
    """Prompt, and wait until the command is about to run."""
    client.prompt(session, f"run {command}")
    client.wait(lambda: "tool/call" in [event["type"] for event in client.events(session)])


def settled(client: SocketClient, session: str) -> list[dict[str, Any]]:
    """The session's events that the client has been sent."""
    client.request("rpc.ping")  # its answer comes behind them
    return client.events(session)


def test_only_the_owner_acts_but_everybody_may_look(
    connect: Callable[[], SocketClient], session: str, daemon: SocketDaemon
) -> None:
    owner, other = connect(), connect()
    owner.request("session/create", {"sessionId": session})
    for method, params in (
        ("session/prompt", {"contentBlocks": blocks("x")}),
        ("session/steer", {"contentBlocks": blocks("x")}),
        ("session/cancel", {}),
        ("session/close", {}),
        ("session/working-directory/set", {"path": "/"}),
        ("session/working-directory/get", {}),
        ("preset/select", {"preset": "minimal"}),
    ):
        code, message = other.refused(method, {"sessionId": session, **params})
        assert (code, message) == (BUSY, f'session "{session}" is owned by another connection'), method
    assert other.request("session/get", {"sessionId": session})["lastSeq"] == -1
    assert session in {one["sessionId"] for one in other.request("session/list")["sessions"]}
    assert attach(other, session) == 0
    assert other.refused("session/prompt", {"sessionId": session, "contentBlocks": blocks("x")})[0] == BUSY
    assert owner.run(session, "x")[-1]["type"] == "turn/end"


def test_a_turn_goes_on_without_its_owner_and_the_next_to_act_is_the_owner(
    connect: Callable[[], SocketClient], session: str, daemon: SocketDaemon
) -> None:
    owner, looker, heir = connect(), connect(), connect()
    run_command(owner, session, f"until [ -e {session} ]; do sleep .05; done")
    assert heir.refused("session/cancel", {"sessionId": session})[0] == BUSY
    owner.close()
    note = {"sessionId": session, "contentBlocks": blocks("hurry")}
    assert comes(lambda: "result" in heir.ask("session/steer", note))
    assert looker.refused("session/cancel", {"sessionId": session})[0] == BUSY
    (daemon.cwd / session).touch()
    heir.wait_idle(session)
    logged = daemon.log(session)[1:]
    ends = [line for line in logged if line["type"] == "turn/end"]
    assert [end["data"]["reason"]["kind"] for end in ends] == ["completed"]
    heard = heir.events(session)
    assert heard == logged[-len(heard) :], "it hears what is its own from then on"
    assert "hurry" in json.dumps(heard[0])


def test_what_nobody_hears_is_logged_and_told_to_who_attaches_and_who_acts_first_is_the_owner(
    connect: Callable[[], SocketClient], session: str, daemon: SocketDaemon
) -> None:
    owner, looker, late = connect(), connect(), connect()
    run_command(owner, session, f"until [ -e {session} ]; do sleep .05; done")
    owner.close()
    (daemon.cwd / session).touch()
    assert comes(lambda: status(looker, session) == "idle")
    attach(looker, session, **{"from": 0})
    attach(late, session)
    assert settled(looker, session) == daemon.log(session)[1:]
    assert late.run(session, "next")[-1]["data"]["turn"] == 2
    assert looker.refused("session/prompt", {"sessionId": session, "contentBlocks": blocks("x")})[0] == BUSY
    assert late.events(session) == settled(looker, session)[-len(late.events(session)) :]


@pytest.mark.parametrize("place", ["first", "middle", "last", "next", "unsaid", "beyond", "negative"])
def test_events_are_told_from_any_one_on(
    connect: Callable[[], SocketClient], session: str, place: str
) -> None:
    owner, hearer = connect(), connect()
    told = owner.run(session, "x")
    n = len(told)
    places = {"first": 0, "middle": n // 2, "last": n - 1, "next": n, "beyond": n + 1, "negative": -1}
    start = {} if place == "unsaid" else {"from": places[place]}
    if place in ("beyond", "negative"):
        code, message = hearer.refused("session/attach", {"sessionId": session, **start})
        assert code == INVALID
        assert "from" in message
    else:
        assert attach(hearer, session, **start) == n
    told += owner.run(session, "y")
    expected = [] if place in ("beyond", "negative") else told[places.get(place, n) :]
    assert settled(hearer, session) == expected


def test_a_running_session_is_heard_from_any_event_on_without_a_gap(
    connect: Callable[[], SocketClient], session: str, daemon: SocketDaemon
) -> None:
    owner = connect()
    run_command(owner, session, f"until [ -e {session} ]; do sleep .05; done")
    n = len(owner.events(session))
    hearers = [connect() for _ in range(4)]
    for place, hearer in zip((0, 1, n - 1, n), hearers, strict=True):
        attach(hearer, session, **{"from": place})
    (daemon.cwd / session).touch()
    owner.wait_idle(session)
    for place, hearer in zip((0, 1, n - 1, n), hearers, strict=True):
        assert settled(hearer, session) == owner.events(session)[place:]


def test_attaching_again_repeats_nothing_unless_it_says_from_where(
    connect: Callable[[], SocketClient], session: str
) -> None:
    owner, hearer = connect(), connect()
    n = len(owner.run(session, "x"))
    for start in ({"from": n - 2}, {}, {"from": n}, {"from": n - 1}, {}):
        assert attach(hearer, session, **start) == n
        settled(hearer, session)
    n_all = n + len(owner.run(session, "y"))
    heard = [event["seq"] for event in settled(hearer, session)]
    assert heard == [n - 2, n - 1, n - 1, *range(n, n_all)]


def test_who_detaches_hears_no_more_and_still_owns(connect: Callable[[], SocketClient], session: str) -> None:
    owner, hearer = connect(), connect()
    n = len(owner.run(session, "x"))
    attach(hearer, session)
    for client in (owner, hearer):
        for name in (session, session, "no such"):
            assert client.request("session/detach", {"sessionId": name}) == {}
    owner.prompt(session, "y")
    assert comes(lambda: status(owner, session) == "idle")
    assert len(settled(owner, session)) == n
    assert settled(hearer, session) == []
    assert hearer.refused("session/close", {"sessionId": session})[0] == BUSY
    attach(owner, session, **{"from": n})
    assert [event["seq"] for event in settled(owner, session)] == list(range(len(owner.events(session))))


def test_who_hears_a_session_hears_its_end_and_not_its_next_life(
    connect: Callable[[], SocketClient], session: str, daemon: SocketDaemon
) -> None:
    owner, hearer = connect(), connect()
    run_command(owner, session, "sleep 1000")
    attach(hearer, session, **{"from": 0})
    owner.request("session/close", {"sessionId": session})
    life = daemon.log(session)[1:]
    assert settled(hearer, session) == owner.events(session) == life
    assert life[-1]["data"]["reason"]["kind"] == "aborted"
    assert hearer.refused("session/attach", {"sessionId": session})[0] == NOT_FOUND
    owner.request("session/resume", {"sessionId": session})
    owner.run(session, "x")
    assert settled(hearer, session) == life
    attach(hearer, session, **{"from": 0})
    assert settled(hearer, session) == life + daemon.log(session)[1:]


def test_a_hearer_of_a_blank_session_hears_what_its_owner_makes_of_it(
    connect: Callable[[], SocketClient], session: str
) -> None:
    owner, hearer, gone = connect(), connect(), connect()
    owner.request("session/create", {"sessionId": session})
    for client in (hearer, gone):
        attach(client, session)
    gone.request("session/detach", {"sessionId": session})
    for preset in ("rl-minimal-v1", "minimal"):
        assert owner.request("preset/select", {"sessionId": session, "preset": preset})["preset"] == preset
    told = owner.run(session, "x")
    assert settled(hearer, session) == told
    assert settled(gone, session) == []


def test_who_says_no_more_is_answered_and_leaves_its_sessions_to_others(
    connect: Callable[[], SocketClient], session: str, daemon: SocketDaemon
) -> None:
    made, stored = f"{session}-made", f"{session}-stored"
    heir = connect()
    heir.run(stored, "x")
    heir.request("session/close", {"sessionId": stored})
    with daemon.connect() as brief:
        settings = {"cwd": str(daemon.cwd), "provider": "deepseek-official", "model": "m"}
        brief.send("initialize", settings)
        brief.send("session/create", {"sessionId": made})
        brief.send("session/prompt", {"sessionId": session, "contentBlocks": blocks("x")})
        brief.send("session/resume", {"sessionId": stored})  # takes longer than the end of input
        brief.finish()
        answers = [frame for frame in brief.wait_end() if "id" in frame]
        assert [answer["id"] for answer in answers] == [1, 2, 3, 4]
        assert all("result" in answer for answer in answers)
    for name, turn in ((session, 2), (made, 1), (stored, 2)):
        assert heir.run(name, "y")[-1]["data"]["turn"] == turn


def test_who_vanishes_while_its_sessions_are_opened_leaves_them_to_others(
    connect: Callable[[], SocketClient], session: str
) -> None:
    names = [f"{session}-{n}" for n in range(10)]
    heir = connect()
    for name in names[::2]:
        heir.run(name, "x")
        heir.request("session/close", {"sessionId": name})
    for number, name in enumerate(names):
        brief = connect()
        prompt = {"sessionId": name, "contentBlocks": blocks("x")}
        brief.send(*(("session/prompt", prompt) if number % 2 else ("session/resume", {"sessionId": name})))
        brief.close()
    for name in names:
        assert comes(lambda name=name: "result" in heir.ask("session/cancel", {"sessionId": name}))


def test_a_client_may_go_and_come_back_to_its_session(
    connect: Callable[[], SocketClient], session: str
) -> None:
    client = connect()
    heard = client.run(session, "x")
    note = {"sessionId": session, "contentBlocks": blocks("here I am")}
    for _ in range(4):
        client.close()
        client = connect()
        attach(client, session, **{"from": 0})
        assert comes(lambda client=client: "result" in client.ask("session/steer", note))
        client.run(session, "x")
        assert client.events(session)[: len(heard)] == heard
        heard = client.events(session)
        assert [event["seq"] for event in heard] == list(range(len(heard)))

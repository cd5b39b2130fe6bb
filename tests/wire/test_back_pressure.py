"""Clients that read slowly, late or never: nobody waits for them, and what they read late is all there."""

from __future__ import annotations

import json
import os
import resource
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cordisd.mock import MockModelThread
from floods import held, is_idle, logged, path_of, peak_kb, reply, reset_peak, start_flood
from measure import PATIENCE_S, comes
from socket_daemon import SocketClient, SocketDaemon, clients_of, wait_for_words

MEGABYTES = 10
"""Of a flood: more than a connection holds for its reader, which is 8 MiB."""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[SocketDaemon]:
    work = tmp_path / "w"
    work.mkdir()
    with (
        MockModelThread(reply) as mock,
        SocketDaemon(work, "--socket", str(tmp_path / "s"), model_url=mock.url) as daemon,
    ):
        yield daemon
        assert daemon.end() == 0
        assert b"Traceback" not in daemon.stderr


@pytest.fixture
def connect(daemon: SocketDaemon) -> Iterator[Callable[[], SocketClient]]:
    with clients_of(daemon) as make:
        yield make


def read_all(client: SocketClient, session: str, log: list[dict[str, Any]]) -> None:
    """Read until as many events of the session have come as there are, and see that they are these."""
    client.wait(lambda: len(client.events(session)) >= len(log), PATIENCE_S)
    client.request("rpc.ping")
    assert client.events(session) == log


def test_nobody_waits_for_who_does_not_read_and_who_reads_late_misses_nothing(
    daemon: SocketDaemon, connect: Callable[[], SocketClient]
) -> None:
    owner, hearer, other = connect(), connect(), connect()
    for slow in (owner, hearer):
        slow.pause_reading()
    for name in ("a", "b"):
        start_flood(owner, name, MEGABYTES)
    assert comes(lambda: "result" in other.ask("session/get", {"sessionId": "a"}))
    hearer.send("session/attach", {"sessionId": "a", "from": 0})
    n_runs = 0
    while n_runs < 3 or not (is_idle(other, "a") and is_idle(other, "b")):
        assert other.run("o", "echo")[-1]["data"]["reason"]["kind"] == "completed"
        n_runs += 1
    for name in ("a", "b"):
        assert len(owner.events(name)) < len(logged(daemon, name)) / 2, "its reader has been slow indeed"
    read_all(owner, "a", logged(daemon, "a"))
    read_all(owner, "b", logged(daemon, "b"))
    read_all(hearer, "a", logged(daemon, "a"))


@pytest.mark.parametrize("what", ["resumed", "removed and closed"])
def test_a_late_reader_misses_nothing_of_a_log_that_is(
    what: str, daemon: SocketDaemon, connect: Callable[[], SocketClient]
) -> None:
    owner, other = connect(), connect()
    owner.pause_reading()
    start_flood(owner, "a", MEGABYTES)
    assert comes(lambda: is_idle(other, "a"))
    expected = logged(daemon, "a")
    if "removed" in what:
        shutil.rmtree(path_of(daemon, "a").parents[1])
    if "closed" in what or what == "resumed":
        owner.send("session/close", {"sessionId": "a"})
        assert comes(lambda: other.ask("session/get", {"sessionId": "a"}).get("error"))
    if what == "resumed":
        other.request("session/resume", {"sessionId": "a"})
        other.run("a", "again")
        owner.send("session/attach", {"sessionId": "a", "from": len(expected)})
        expected = logged(daemon, "a")
    read_all(owner, "a", expected)


def test_a_log_that_is_cut_ends_the_connection_of_who_is_behind_and_of_nobody_else(
    daemon: SocketDaemon, connect: Callable[[], SocketClient]
) -> None:
    owner, hearer, other = connect(), connect(), connect()
    other.request("session/create", {"sessionId": "a"})
    hearer.request("session/attach", {"sessionId": "a"})
    hearer.pause_reading()
    other.run("a", f"flood {MEGABYTES}")
    os.truncate(path_of(daemon, "a"), 1_000_000)
    hearer.wait_end()
    wait_for_words(daemon, "ERROR: session a: a connection is ended: events ")
    told, log = hearer.events("a"), other.events("a")
    assert told == log[: len(told)]
    assert 0 < len(told) < len(log)
    assert other.run("o", "x")[-1]["type"] == owner.run("p", "x")[-1]["type"] == "turn/end"


def test_who_goes_while_it_is_behind_leaves_nothing(
    daemon: SocketDaemon, connect: Callable[[], SocketClient]
) -> None:
    other = connect()
    other.run("o", "x")
    before = held(daemon)
    for name in ("a", "b"):
        gone = connect()
        gone.pause_reading()
        start_flood(gone, name, MEGABYTES)
        assert comes(lambda name=name: is_idle(other, name))
        if name == "b":
            gone.send("session/close", {"sessionId": name})
            assert comes(lambda: other.ask("session/get", {"sessionId": "b"}).get("error"))
        gone.close()
    other.wait(lambda: other.run("a", "x"))
    other.request("session/close", {"sessionId": "a"})
    assert comes(lambda: held(daemon) == before)


def test_events_past_a_failed_write_cannot_be_attached_to(
    daemon: SocketDaemon, connect: Callable[[], SocketClient]
) -> None:
    owner, other = connect(), connect()
    n = len(owner.run("a", "x"))
    size = path_of(daemon, "a").stat().st_size
    resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (size + 100, size + 100))
    blocks = [{"type": "text", "text": "x" * 200}]
    assert owner.refused("session/prompt", {"sessionId": "a", "contentBlocks": blocks})[0] == -32011
    owner.wait_idle("a", len(owner.frames) - 3)
    for start in (0, n - 1):
        code, message = other.refused("session/attach", {"sessionId": "a", "from": start})
        assert code == -32602
        assert "kept nowhere" in message
    assert "lastSeq" in other.request("session/attach", {"sessionId": "a"})


@pytest.mark.parametrize(("method", "n_asked"), [("session/events", 40), ("session/list", 3000)])
def test_answers_that_are_not_read_are_given_when_they_are(
    method: str, n_asked: int, daemon: SocketDaemon, connect: Callable[[], SocketClient]
) -> None:
    slow, other = connect(), connect()
    params = {}
    if method == "session/events":
        other.run("a", f"flood {MEGABYTES}")
        params = {"sessionId": "a", "from": 0}
    else:
        for _ in range(100):
            other.request("session/create")
    other.request(method, params)
    reset_peak(daemon.process.pid)
    before_kb = peak_kb(daemon.process.pid)
    slow.pause_reading()
    frame = {"jsonrpc": "2.0", "method": method, "params": params}
    asked = b"".join(json.dumps({**frame, "id": n}).encode() + b"\n" for n in range(n_asked))
    sender = threading.Thread(target=slow.send_raw, args=[asked])
    sender.start()  # it waits where the daemon takes no more
    try:
        for _ in range(20):
            assert other.request("rpc.ping") == {}
        assert other.run("o", "echo")[-1]["data"]["reason"]["kind"] == "completed"
        expected = other.request(method, params)
        rise_kb = peak_kb(daemon.process.pid) - before_kb
        slow.wait(lambda: slow.answer(n_asked - 1), PATIENCE_S)
    finally:
        slow.resume_reading()
        sender.join(PATIENCE_S)
    answers = [frame for frame in slow.frames if frame.get("id") in range(n_asked)][-n_asked:]
    assert [answer["id"] for answer in answers] == list(range(n_asked))
    if method == "session/events":
        assert all(answer["result"] == expected for answer in answers)
        assert rise_kb < 80_000, "all of them together are 160 MB"

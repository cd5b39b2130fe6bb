"""Case 13: a client stops reading while its sessions say 50 MB; nobody waits, and it misses nothing."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cordisd.mock import MockModelThread
from cordisd.rpc.peer import STRANGER_S
from daemon import module_path
from floods import is_idle, logged, peak_kb, reply, reset_peak, start_flood
from measure import comes
from socket_daemon import SocketClient, SocketDaemon, wait_for_words

pytestmark = [pytest.mark.load, pytest.mark.timeout(1800)]

N_SESSIONS, N_TURNS, N_TURNS_LONG = 10, 5, 20
MAX_MORE_KB = 80_000
"""Of the daemon's peak memory, with two clients that do not read, over that with one that does, whose
sessions have left their gaps. Each may leave 8 MiB unread; what is not bounded comes to 100 MB."""
MAX_CALLBACK_MS = 100.0
"""CPU time of one callback: it takes 10 on a busy machine, for an answer of a megabyte."""
TOKEN = "0123456789abcdef"


def flood(owner: SocketClient, other: SocketClient, kind: str, n_turns: int) -> tuple[list[str], list[float]]:
    """Have sessions say a megabyte in each turn; their names, and the seconds that another's turns took."""
    names = [f"{kind}{number}" for number in range(N_SESSIONS)]
    for name in names:
        for _ in range(n_turns):
            start_flood(owner, name, 1)
    took_s: list[float] = []

    def all_done() -> bool:
        began_s = time.perf_counter()
        assert other.run("other", "echo")[-1]["data"]["reason"]["kind"] == "completed"
        took_s.append(time.perf_counter() - began_s)
        return all(is_idle(other, name) and turns(other, name) == n_turns for name in names)

    assert comes(all_done)
    return names, took_s


def times(taken_s: list[float]) -> str:
    ordered = sorted(taken_s)
    return f"{ordered[len(ordered) // 2] * 1000:.0f} ms (at most {ordered[-1] * 1000:.0f})"


def turns(client: SocketClient, session: str) -> int:
    found: int = client.request("session/get", {"sessionId": session})["turns"]
    return found


def heard(client: SocketClient) -> dict[str, list[Any]]:
    """The events that have come, by session."""
    found: dict[str, list[Any]] = {}
    for frame in client.frames:
        if frame.get("method") == "session.event":
            found.setdefault(frame["params"]["sessionId"], []).append(frame["params"]["event"])
    return found


def test_nobody_waits_for_clients_that_do_not_read_and_these_miss_nothing(
    tmp_path: Path, long: bool, report: Callable[[str], None]
) -> None:
    n_turns = N_TURNS_LONG if long else N_TURNS
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "patch.yml").write_text("- insert: [{id: watch, name: 'loop_watch:WatchEntry'}]\n")
    work, watched = tmp_path / "w", tmp_path / "watched.json"
    work.mkdir()
    places = ["--socket", str(tmp_path / "s"), "--listen", ":0", "--token-file", str(tmp_path / "token")]
    with (
        MockModelThread(reply) as mock,
        SocketDaemon(
            work,
            *places,
            composition=("minimal", "--patch", str(tmp_path / "patch.yml")),
            model_url=mock.url,
            PYTHONPATH=module_path(Path(__file__).parents[1]),
            LOOP_WATCH=str(watched),
        ) as daemon,
    ):
        pid = daemon.process.pid
        stranger, connected_s = daemon.connect(daemon.urls()[1]), time.monotonic()
        reader, slow, hearer, other = (daemon.connect() for _ in range(4))
        for client in (reader, slow, hearer, other):
            client.initialize()
        other.run("other", "echo")  # the first turn of a daemon imports the HTTP client
        daemon.process.send_signal(signal.SIGUSR1)

        reset_peak(pid)
        names, quick_s = flood(reader, other, "read", n_turns)
        read_kb = peak_kb(pid)
        for name in names:
            reader.request("session/close", {"sessionId": name})

        for client in (slow, hearer):
            client.pause_reading()
        for number in range(N_SESSIONS):
            slow.send("session/create", {"sessionId": f"slow{number}"})
        assert comes(lambda: len(other.request("session/list")["sessions"]) == N_SESSIONS + 1)
        for number in range(N_SESSIONS):
            hearer.send("session/attach", {"sessionId": f"slow{number}", "from": 0})
        reset_peak(pid)
        names, slow_s = flood(slow, other, "slow", n_turns)
        slow_kb = peak_kb(pid)
        report(
            f"{N_SESSIONS} sessions say {N_SESSIONS * n_turns} MB to who reads: another's turn takes "
            f"{times(quick_s)}; to who does not: {times(slow_s)}; peak memory {read_kb} and {slow_kb} kB; "
            f"load {os.getloadavg()[0]:.1f}"
        )
        logs = {name: logged(daemon, name) for name in names}
        n_events = sum(map(len, logs.values()))
        for client in (slow, hearer):
            assert len(client.frames) < n_events / 2

        late_s: list[float] = []
        for client in (slow, hearer):
            client.resume_reading()
        assert comes(lambda: caught_up(other, late_s, (slow, hearer), n_events))
        for client in (slow, hearer):
            client.wait(lambda client=client: sum(map(len, heard(client).values())) == n_events)
            client.request("rpc.ping")
            assert heard(client) == logs
        report(f"while two read {n_events} events from the log, another's turn takes {times(late_s)}")
        assert slow_kb - read_kb < MAX_MORE_KB
        wait_for_words(daemon, "a connection has shown no token within")
        stranger.wait_end()
        assert time.monotonic() - connected_s >= STRANGER_S
        for client in (reader, slow, hearer, other, stranger):
            client.close()
        assert daemon.end(60) == 0
    found = json.loads(watched.read_text())
    report(f"dearest callbacks: {', '.join(found['dearest'][:4])}")
    assert found["max_callback_ms"] <= MAX_CALLBACK_MS, found["dearest"]


def caught_up(
    other: SocketClient, took_s: list[float], clients: tuple[SocketClient, ...], n_events: int
) -> bool:
    """Whether as many frames as there are events have come to each; another's turn is timed meanwhile."""
    began_s = time.perf_counter()
    other.run("other", "echo")
    took_s.append(time.perf_counter() - began_s)
    return all(len(client.frames) + client.n_waiting() >= n_events for client in clients)

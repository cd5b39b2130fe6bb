"""Five hundred sessions in one daemon, 64 of them at work, eight clients: everybody hears all of its own."""

from __future__ import annotations

import json
import os
import socket
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from cordisd.mock import MockModelThread, Received, Reply, call, text
from cordisd.rpc.transports import HIGH_WATER_BYTES
from floods import logged
from measure import comes
from processes import children, descendants, footprint
from socket_daemon import SocketClient, SocketDaemon

pytestmark = [pytest.mark.load, pytest.mark.timeout(1800)]

N_SESSIONS, N_AT_WORK, N_CLIENTS, N_SLOW = 500, 64, 8, 2
N_STEPS, N_STEPS_LONG = 36, 400
N_CONNECTS = 50
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Hearer(SocketClient):
    """A client whose thread looks at what comes itself, and can be held up."""

    def __init__(self, url: str, cwd: Path) -> None:
        self.heard: dict[str, list[Any]] = defaultdict(list)
        self.completed: list[str] = []
        self.n_bytes = 0
        self.reads = threading.Event()
        self.reads.set()
        super().__init__(url, cwd)

    def wait(self, ready: Callable[[], Any], timeout_s: float = 0) -> Any:
        """What `ready` gives, once it gives something."""
        assert comes(ready)
        return ready()

    def _read(self, stream: Iterable[bytes]) -> None:
        for line in stream:
            self.reads.wait()
            self.n_bytes += len(line)
            frame = json.loads(line)
            match frame.get("method"):
                case "session.event":
                    self.heard[frame["params"]["sessionId"]].append(frame["params"]["event"])
                case "session.completed":
                    self.completed.append(frame["params"]["sessionId"])
                case None:
                    self._answers[frame["id"]] = frame


def reply(request: Received) -> Reply:
    """A prompt `N steps` is worked on with so many commands."""
    messages = request.json["messages"]
    words = next(message["content"] for message in reversed(messages) if message["role"] == "user").split()
    n_done = sum(message["role"] == "tool" for message in messages)
    if words[1:] != ["steps"] or n_done >= int(words[0]):
        return text("done")
    return call(f"c{n_done}", "bash", {"command": f"echo {n_done}"})


def cpu_s(pid: int) -> float:
    """CPU time that a process and those below it have used so far."""
    total = 0
    for one in (pid, *descendants(pid)):
        fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS_PER_S


def memory_kb(pid: int) -> int:
    return footprint(pid)["Pss_Anon kB"]


def ask_all(clients: list[Hearer], requests: list[tuple[int, str, dict[str, Any]]]) -> None:
    """Send each request to the client of that number, and wait until all are granted."""
    numbers = [(clients[client], clients[client].send(method, params)) for client, method, params in requests]
    assert comes(lambda: all(client.answer(number) for client, number in numbers))
    refused = [answer for client, number in numbers if "error" in (answer := client.answer(number) or {})]
    assert refused == []


def prompt_of(session: str, words: str) -> dict[str, Any]:
    return {"sessionId": session, "contentBlocks": [{"type": "text", "text": words}]}


def test_every_event_of_every_session_comes_once_and_in_order_to_every_client(
    tmp_path: Path, long: bool, report: Callable[[str], None]
) -> None:
    n_steps = N_STEPS_LONG if long else N_STEPS
    work = tmp_path / "w"
    work.mkdir()
    names = [f"s{number}" for number in range(N_SESSIONS)]
    with (
        MockModelThread(reply) as mock,
        SocketDaemon(work, "--socket", str(tmp_path / "s"), model_url=mock.url) as daemon,
    ):
        [url] = daemon.urls()
        pid = daemon.process.pid
        [guardian] = children(pid)
        clients = [Hearer(url, work) for _ in range(N_CLIENTS)]
        for client in clients:
            client.initialize()
        clients[-1].request("session/prompt", prompt_of("warm", "1 steps"))  # imports the HTTP client
        assert comes(lambda: "warm" in clients[-1].completed)
        report(f"connect and initialize: median {connects_ms(url, work):.1f} ms")

        empty_kb, used_s, began_s = memory_kb(pid), cpu_s(pid), time.monotonic()
        ask_all(clients, [(n % N_CLIENTS, "session/create", {"sessionId": s}) for n, s in enumerate(names)])
        took_s = time.monotonic() - began_s
        used_ms = (cpu_s(pid) - used_s) / N_SESSIONS * 1000
        report(f"{N_SESSIONS} sessions created: {N_SESSIONS / took_s:.0f} per s, {used_ms:.2f} ms CPU each")
        report(f"memory of a new session: {(memory_kb(pid) - empty_kb) / N_SESSIONS:.1f} kB")

        slow = clients[:N_SLOW]
        for client in slow:
            client.reads.clear()
            for name in names:
                client.send("session/attach", {"sessionId": name, "from": 0})
        quick = [n for n in range(N_SESSIONS) if n % N_CLIENTS >= N_SLOW]
        for number, name in enumerate(names[N_AT_WORK:], N_AT_WORK):
            clients[number % N_CLIENTS].send("session/prompt", prompt_of(name, "hello"))
        assert comes(lambda: all_idle(clients[-1], names[N_AT_WORK:]))
        told_kb = memory_kb(pid)
        report(f"memory of a session that has had a turn: {(told_kb - empty_kb) / N_SESSIONS:.1f} kB")

        used_s, began_s = cpu_s(pid), time.monotonic()
        before_kb = memory_kb(pid) + memory_kb(guardian)
        for number, name in enumerate(names[:N_AT_WORK]):
            clients[number % N_CLIENTS].send("session/prompt", prompt_of(name, f"{n_steps} steps"))
        assert comes(lambda: all_idle(clients[-1], names[:N_AT_WORK]))
        took_s, used_s, n = time.monotonic() - began_s, cpu_s(pid) - used_s, N_AT_WORK * n_steps
        report(f"{N_AT_WORK} at work: {n / took_s:.0f} steps per s, {used_s / n * 1000:.2f} ms CPU per step")
        live_kb = memory_kb(pid) + memory_kb(guardian) - before_kb
        shells_kb = sum(memory_kb(shell) for shell in children(guardian))
        report(
            f"memory of a session with a shell: {live_kb / N_AT_WORK:.0f} kB of ours, "
            f"and {shells_kb / N_AT_WORK:.0f} kB of bash; load {os.getloadavg()[0]:.1f}"
        )

        for client in slow:
            client.reads.set()
        n_events = 0
        for number, name in enumerate(names):
            log = logged(daemon, name)
            n_events += len(log)
            for client in {*slow, clients[number % N_CLIENTS]}:
                assert comes(lambda client=client, name=name, log=log: len(client.heard[name]) >= len(log))
                assert client.heard[name] == log
        for number in quick:
            assert names[number] in clients[number % N_CLIENTS].completed
        for client in clients:
            client.request("rpc.ping")  # whatever else was to come is there
            assert client in slow or client.heard.keys() <= {
                *names[clients.index(client) :: N_CLIENTS],
                "warm",
            }
        assert sum(map(len, slow[0].heard.values())) == n_events
        assert slow[0].n_bytes > 1.1 * HIGH_WATER_BYTES, "or it was not behind"
        report(
            f"{n_events} events, {slow[0].n_bytes / 1e6:.0f} MB, heard by {N_CLIENTS}, {N_SLOW} of them late"
        )
        for client in clients:
            client.close()
        assert daemon.end(60) == 0
        assert daemon.stderr.count(b"\n") == 1, daemon.stderr


def connects_ms(url: str, work: Path) -> float:
    """Median time of a connection's start, up to the answer to `initialize`."""
    took_ms = []
    for _ in range(N_CONNECTS):
        began_s = time.perf_counter()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(url.removeprefix("unix:"))
            params = {"cwd": str(work), "provider": "deepseek-official", "model": "m"}
            frame = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
            client.sendall(json.dumps(frame).encode() + b"\n")
            assert b'"result"' in client.recv(1 << 16)
        took_ms.append((time.perf_counter() - began_s) * 1000)
    return statistics.median(took_ms)


def all_idle(client: Hearer, names: list[str]) -> bool:
    """Whether each of the sessions has had its turn; a look costs the daemon little."""
    time.sleep(0.1)
    found = {one["sessionId"]: one for one in client.request("session/list")["sessions"]}
    return all(found[name]["status"] == "idle" and found[name]["turns"] > 0 for name in names)

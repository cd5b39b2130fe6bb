"""Clients that come, attach, stop reading and vanish at random: what each hears is in the log, in order."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cordisd.mock import MockModelThread
from floods import held, logged, reply
from measure import comes
from processes import children
from socket_daemon import SocketClient, SocketDaemon

pytestmark = [pytest.mark.load, pytest.mark.timeout(1800)]

N_CLIENTS, N_SESSIONS = 8, 10
N_STEPS, N_STEPS_LONG = 100, 1000
EXPECTED_CODES = {-32001, -32002, -32003, -32602, -32603}
"""Taken, gone, another's, beyond the end; and "session is closed", of one that is just being closed."""
PROMPTS = ["hello", "hello", "echo", "echo", "flood 1", "flood 2"]
STARTS = {"session/attach", "session/prompt", "session/resume", "session/steer", "session/cancel"}
"""What may make its client a hearer from then on."""


class Restless:
    """One client after another, each of which does a few things and ends somehow; they share the sessions."""

    def __init__(self, daemon: SocketDaemon, seed: str) -> None:
        self._daemon = daemon
        self._chance = random.Random(seed)
        self._client = self._connect()
        self.heard: list[list[dict[str, Any]]] = []
        """The frames of each client that is gone."""
        self.asked: list[dict[int, tuple[str, dict[str, Any]]]] = []
        self.failure: BaseException | None = None

    def run(self, n_steps: int) -> None:
        """Be restless; what goes wrong is left in `failure`."""
        try:
            for _ in range(n_steps):
                self._step()
            self._end(rude=False)
        except BaseException as failure:
            self.failure = failure

    def _connect(self) -> SocketClient:
        client = self._daemon.connect()
        client.initialize()
        return client

    def _step(self) -> None:
        chance, client = self._chance, self._client
        session = f"s{chance.randrange(N_SESSIONS)}"
        match chance.choices(["ask", "pause", "resume", "half", "reset", "wait"], [80, 4, 8, 2, 3, 5])[0]:
            case "ask":
                self._ask(session)
            case "pause":
                client.pause_reading()
            case "resume":
                client.resume_reading()
            case "half":
                client.finish()
                self._end(rude=chance.random() < 0.5)
                self._client = self._connect()
            case "reset":
                self._end(rude=True)
                self._client = self._connect()
            case "wait":
                time.sleep(chance.uniform(0, 0.1))

    def _ask(self, session: str) -> None:
        chance = self._chance
        blocks = [{"type": "text", "text": chance.choice(PROMPTS)}]
        choices: list[tuple[int, str, dict[str, Any]]] = [
            (30, "session/prompt", {"contentBlocks": blocks}),
            (20, "session/attach", {"from": chance.randrange(60)}),
            (10, "session/attach", {}),
            (5, "session/detach", {}),
            (20, "session/resume", {}),
            (4, "session/close", {}),
            (5, "session/cancel", {"queue": chance.choice(["keep", "drop"])}),
            (5, "session/events", {"from": chance.randrange(60), "limit": 50}),
            (5, "session/steer", {"contentBlocks": blocks}),
        ]
        [(_, method, params)] = chance.choices(choices, [weight for weight, _, _ in choices])
        self._client.send(method, {"sessionId": session, **params})

    def _end(self, *, rude: bool) -> None:
        """End the client: once it has all its answers, or at once."""
        client = self._client
        if not rude:
            client.finish()
            self.heard.append(client.wait_end())
            self.asked.append(client.asked)
        client.close()


def check(frames: list[dict[str, Any]], asked: dict[int, Any], logs: dict[str, list[Any]]) -> int:
    """See that a client has heard what was logged, without gaps and in order; how many events it was."""
    heard_next: dict[str, int] = {}
    n_events = 0
    for frame in frames:
        if "id" in frame and frame["id"] in asked:
            method, params = asked[frame["id"]]
            assert "result" in frame or frame["error"]["code"] in EXPECTED_CODES, (method, frame)
            if method in STARTS and "result" in frame:
                heard_next.pop(params["sessionId"], None)
        elif frame.get("method") == "session.event":
            session, event = frame["params"]["sessionId"], frame["params"]["event"]
            assert event == logs[session][event["seq"]]
            assert heard_next.get(session, event["seq"]) == event["seq"], session
            heard_next[session] = event["seq"] + 1
            n_events += 1
    return n_events


def test_restless_clients_hear_what_is_logged_in_order_and_leave_nothing(
    tmp_path: Path, seed: int, long: bool, report: Callable[[str], None]
) -> None:
    n_steps = N_STEPS_LONG if long else N_STEPS
    work = tmp_path / "w"
    work.mkdir()
    with (
        MockModelThread(reply) as mock,
        SocketDaemon(work, "--socket", str(tmp_path / "s"), model_url=mock.url) as daemon,
    ):
        with daemon.connect() as first:
            first.initialize()
            first.run("warm", "echo")
            first.request("session/close", {"sessionId": "warm"})
        [guardian] = children(daemon.process.pid)
        assert comes(lambda: not children(guardian))
        assert comes(lambda: held(daemon)["connections"] == 1)
        before = held(daemon)
        all_clients = [Restless(daemon, f"{seed} {number}") for number in range(N_CLIENTS)]
        threads = [threading.Thread(target=one.run, args=[n_steps]) for one in all_clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for one in all_clients:
            if one.failure is not None:
                raise one.failure
        with daemon.connect() as last:
            last.initialize()
            for session in [one["sessionId"] for one in last.request("session/list")["sessions"]]:
                assert comes(
                    lambda session=session: "result" in last.ask("session/close", {"sessionId": session})
                )
            assert last.request("session/list") == {"sessions": []}
        logs = {path.parent.name: logged(daemon, path.parent.name) for path in daemon.sessions.glob("*/s*/*")}
        ended = [pair for one in all_clients for pair in zip(one.heard, one.asked, strict=True)]
        n_heard = sum(check(frames, asked, logs) for frames, asked in ended)
        report(f"{len(ended)} clients have heard {n_heard} events of {sum(map(len, logs.values()))} logged")
        assert comes(lambda: not children(guardian))
        assert comes(lambda: held(daemon) == before)
        assert daemon.end(60) == 0
        wrong = [line for line in daemon.stderr.splitlines() if b"Traceback" in line or b"ERROR" in line]
        assert wrong == []

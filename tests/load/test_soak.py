"""Ten thousand calls in one daemon: each result is right, in time, and nothing is left of them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from cordisd.mock import MockModelThread, Received, Reply, calls, error, text
from daemon import Daemon
from measure import SOON_S, comes
from processes import children, descendants, footprint, gone
from random_calls import TIMEOUT_S, Call, Rollout

pytestmark = pytest.mark.load

N_CALLS, N_CALLS_LONG = 10_000, 100_000
N_CALLS_PER_ROLLOUT = 125
N_CALLS_PER_STEP = 25
N_TOGETHER = 12
N_OWN_SOCKETS = 3
"""Of a daemon: the event loop's pair, and the connection to the guardian."""
MAX_RISE_KB = 4_000
"""Of the daemon's own memory; the 80 histories of this test together are about 40 MB."""
PATCH = f"- id: bash\n  config:\n    timeoutMs: {TIMEOUT_S * 1000}\n"


class Models:
    """The models of all rollouts: each checks the results of its calls, then makes the next ones."""

    def __init__(self, seed: int, work: Path) -> None:
        self._seed = seed
        self._work = work
        self._rollouts: dict[str, Any] = {}
        self._asked: dict[str, list[Call]] = {}
        self.n_checked = 0
        self.wrong: list[str] = []

    def reply(self, request: Received) -> Reply:
        """The script of the mock."""
        messages = request.json["messages"]
        name = next(message["content"] for message in messages if message["role"] == "user")
        if name not in self._rollouts:
            folder = self._work / name
            self._rollouts[name] = islice(Rollout(f"{self._seed} {name}", folder), N_CALLS_PER_ROLLOUT)
        asked = self._asked.get(name, [])
        told = [message["content"] for message in messages[len(messages) - len(asked) :]]
        for number, (call, result) in enumerate(zip(asked, told, strict=True)):
            self.n_checked += 1
            if not call.is_right(result):
                before = [(one.arguments, got[-300:]) for one, got in zip(asked, told, strict=True)]
                self.wrong.append(
                    f"{name}: {call.arguments}\nexpected {call.expected[-2000:]!r}\ngot {result[-2000:]!r}\n"
                    f"after {before[max(0, number - 3) : number]}"
                )
        if self.wrong:
            return error(400, "a result was wrong")
        asked = self._asked[name] = list(islice(self._rollouts[name], N_CALLS_PER_STEP))
        if not asked:
            return text("done")
        return calls(*((f"c{self.n_checked}-{n}", call.tool, call.arguments) for n, call in enumerate(asked)))


def soak(daemon: Daemon, names: list[str]) -> list[float]:
    """Run rollouts, some of them at once, and close each; the seconds that every call took."""
    began: dict[tuple[str, str], int] = {}
    took: list[float] = []
    waiting, running = list(names), set()
    while waiting or running:
        while waiting and len(running) < N_TOGETHER:
            name = waiting.pop(0)
            (daemon.cwd / name).mkdir()
            daemon.request("session/create", {"sessionId": name, "cwd": str(daemon.cwd / name)})
            daemon.prompt(name, name)
            running.add(name)
        daemon.wait(lambda: daemon.frames, timeout_s=60)
        seen, daemon.frames = daemon.frames, []
        for frame in seen:
            params = frame.get("params", {})
            match frame.get("method"), params.get("event", {}).get("type"):
                case "session.event", "tool/call":
                    event = params["event"]
                    began[params["sessionId"], event["data"]["callId"]] = event["time"]
                case "session.event", "tool/result":
                    event = params["event"]
                    call_id = event["data"]["message"]["source"]["callId"]
                    took.append((event["time"] - began.pop((params["sessionId"], call_id))) / 1000)
                case "session.completed", _:
                    assert params["stopReason"] == "completed", (params, daemon.stderr[-2000:])
                case "session.status", _ if params["status"] == "idle":
                    running.discard(params["sessionId"])
                    daemon.request("session/close", {"sessionId": params["sessionId"]})
    assert not began
    return took


def held(daemon: Daemon, temporary: Path) -> dict[str, int]:
    """What daemon and guardian hold while no session is open."""
    [guardian] = children(daemon.process.pid)
    found = {f"daemon {name}": n for name, n in footprint(daemon.process.pid).items()}
    found |= {f"guardian {name}": n for name, n in footprint(guardian).items()}
    return found | {"temporary files": len(list(temporary.rglob("*")))}


def grown(before: dict[str, int], after: dict[str, int]) -> dict[str, tuple[int, int]]:
    """The counts that are not as before, but for pools within their bound and memory within its own."""
    wrong = {}
    for name in before.keys() | after.keys():
        rise = after.get(name, 0) - before.get(name, 0)
        if name == "daemon fd socket":  # connections to the model are kept for the next request
            is_fine = after[name] <= N_OWN_SOCKETS + N_TOGETHER
        elif name == "daemon threads":  # the main one, that of fsync, the event loop's pool
            is_fine = after[name] <= 2 + min(32, (os.cpu_count() or 1) + 4)
        elif name.endswith("Pss_Anon kB"):
            is_fine = rise <= (MAX_RISE_KB if name.startswith("daemon") else 1_000)
        else:  # what is shared depends on who else maps it
            is_fine = rise == 0 or name.endswith("kB")
        if not is_fine:
            wrong[name] = (before.get(name, 0), after.get(name, 0))
    return wrong


@pytest.mark.timeout(1800)
def test_ten_thousand_calls_are_right_in_time_and_leave_nothing(
    tmp_path: Path, seed: int, long: bool, report: Callable[[str], None]
) -> None:
    n_rollouts = (N_CALLS_LONG if long else N_CALLS) // N_CALLS_PER_ROLLOUT
    names = [f"r{number}" for number in range(n_rollouts)]
    work, temporary = tmp_path / "w", tmp_path / "temporary"
    work.mkdir()
    temporary.mkdir()
    (tmp_path / "patch.yml").write_text(PATCH)
    argv = [sys.executable, "-m", "cordisd", "serve", "--stdio", "minimal"]
    argv += ["--patch", str(tmp_path / "patch.yml")]
    models = Models(seed, work)
    with (
        MockModelThread(models.reply) as mock,
        Daemon(work, model_url=mock.url, argv=argv, TMPDIR=str(temporary)) as daemon,
    ):
        daemon.initialize()
        start_s = time.monotonic()
        n_warm = 2 * N_TOGETHER  # until pools and allocators have their size
        try:
            took = soak(daemon, names[:n_warm])
            before = held(daemon, temporary)
            took += soak(daemon, names[n_warm:])
            comes(lambda: not grown(before, held(daemon, temporary)), SOON_S)
            after = held(daemon, temporary)
        finally:
            assert not models.wrong, models.wrong[0]
        took.sort()
        report(
            f"{models.n_checked} calls in {time.monotonic() - start_s:.0f} s, half of them within "
            f"{took[len(took) // 2] * 1000:.0f} ms, 99 % within {took[len(took) * 99 // 100] * 1000:.0f} ms, "
            f"the longest took {took[-1]:.1f} s; load {os.getloadavg()[0]:.1f}"
        )
        report("".join(f"\n  {name}: {before.get(name, 0)} -> {after[name]}" for name in sorted(after)))
        assert models.n_checked == len(took) == n_rollouts * N_CALLS_PER_ROLLOUT
        assert took[-1] <= TIMEOUT_S + SOON_S
        assert grown(before, after) == {}
        started = descendants(daemon.process.pid)
    assert gone(started)
    assert list(temporary.rglob("*")) == []
    assert b"Traceback" not in daemon.stderr, daemon.stderr[-2000:]

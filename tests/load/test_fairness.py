"""A session that floods costs bounded memory and bounded work per loop turn; the others hardly notice."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cordisd.mock import MockModelThread, Received, Reply, call, text
from daemon import Daemon, module_path

pytestmark = [pytest.mark.load, pytest.mark.timeout(600)]

TESTS = Path(__file__).parents[1]
PATCH = "- insert: [{id: watch, name: 'loop_watch:WatchEntry'}]\n"
N_OTHERS = 3
MAX_READ_BYTES = 64 * 1024
"""What one callback of a shell may take."""
MAX_CALLBACK_MS = 400
"""Of CPU time. The dearest, rendering 190 KB of control characters, takes 30 on an idle machine; what is not
bounded takes seconds."""
MAX_RISE_KB = 8_000
"""Of the daemon's peak memory: two captures with their texts, several times over."""

FLOODS = {
    "nothing": "",
    "100 MB of yes": "yes | head -c 100000000",
    "a million short lines": "seq 1000000",
    "8 MB on one line": "head -c 8000000 /dev/zero | tr '\\0' x",
    "20 MB of random bytes": "head -c 20000000 /dev/urandom",
    "random bytes at the limit": "head -c 190000 /dev/urandom",
    "escapes without end": "yes $'\\e[31m\\e]0;\\eP\\b\\b\\r' | head -c 20000000",
    "one line drawn again and again": "yes $'\\r50%' | tr -d '\\n' | head -c 20000000",
    "three floods at once": "yes | head -c 30000000 & seq 1000000 & head -c 20000000 /dev/zero; wait",
    "carriage returns": "head -c 190000 /dev/zero | tr '\\0' '\\r'",
    "a job between calls": "( (yes | head -c 100000000) & ); sleep 0.01",
    "a job while nobody calls": "( (yes | head -c 300000000) & )",
}


class Models:
    """One session floods until the others have made their calls; each of those is timed."""

    def __init__(self, flood: str, n_calls: int) -> None:
        self._flood = flood
        self._n_calls = n_calls
        self._asked_s: dict[str, float] = {}
        self._n_made: dict[str, int] = {}
        self.took_ms: list[float] = []
        self.wrong: list[str] = []
        self.n_floods = 0

    def reply(self, request: Received) -> Reply:
        """The script of the mock: what is timed is a whole step, the mock's own work excluded."""
        now_s = time.monotonic()
        name = next(m["content"] for m in request.json["messages"] if m["role"] == "user")
        if name == "flood":
            enough = len(self.took_ms) >= self._n_calls * N_OTHERS
            if not self._flood or enough or (self.n_floods and "300000000" in self._flood):
                return text("done")
            self.n_floods += 1
            return call(f"f{self.n_floods}", "bash", {"command": self._flood})
        last = request.json["messages"][-1]
        made = self._n_made[name] = self._n_made.get(name, 0) + 1
        if last["role"] == "tool":
            if last["content"] != f"{made - 1}":
                self.wrong.append(last["content"][:200])
            if made > 2:  # the first call starts a shell
                self.took_ms.append((now_s - self._asked_s[name]) * 1000)
        if made > self._n_calls + 1:
            return text("done")
        reply = call(f"c{made}", "bash", {"command": f"echo {made}"})
        self._asked_s[name] = time.monotonic()
        return reply


@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_costs_little_at_a_time_and_others_go_on(
    flood: str, tmp_path: Path, long: bool, report: Callable[[str], None]
) -> None:
    models = Models(FLOODS[flood], 500 if long else 60)
    watched = tmp_path / "watched.json"
    with MockModelThread(models.reply) as mock, watching(tmp_path, mock.url, watched) as daemon:
        daemon.initialize()
        daemon.run("warm", "warm 1")
        mock.requests.clear()
        daemon.process.send_signal(signal.SIGUSR1)  # the first turn of a daemon imports the HTTP client
        reset_peak(daemon.process.pid)
        before_kb = peak_kb(daemon.process.pid)
        names = ["flood", *(f"other {number}" for number in range(N_OTHERS))]
        for name in names:
            daemon.prompt(name, name)
        for name in names:
            daemon.wait_idle(name, timeout_s=300)
        rise_kb = peak_kb(daemon.process.pid) - before_kb
        assert daemon.end() == 0
    assert models.wrong == []
    found: dict[str, Any] = json.loads(watched.read_text())
    took_ms = sorted(models.took_ms)
    report(
        f"others' step p50 {took_ms[len(took_ms) // 2]:.1f} p99 {took_ms[len(took_ms) * 99 // 100]:.1f} ms "
        f"beside {models.n_floods} floods, {found['total_bytes'] / 1e6:.0f} MB; callback up to "
        f"{found['max_callback_ms']:.1f} ms CPU and {found['max_read_bytes']} bytes, loop turn up to "
        f"{found['max_turn_ms']:.1f} ms and {found['max_turn_bytes']} bytes; peak memory +{rise_kb} kB; "
        f"load {os.getloadavg()[0]:.1f}\n  {', '.join(found['dearest'][:4])}"
    )
    assert found["max_read_bytes"] <= MAX_READ_BYTES
    assert found["max_callback_ms"] <= MAX_CALLBACK_MS, found["dearest"]
    assert found["max_turn_bytes"] <= MAX_READ_BYTES * (1 + N_OTHERS)
    assert found["max_turn_ms"] <= MAX_CALLBACK_MS * (1 + N_OTHERS), found["dearest"]
    assert rise_kb <= MAX_RISE_KB


def watching(tmp_path: Path, url: str, watched: Path) -> Daemon:
    """A daemon whose loop is watched."""
    (tmp_path / "patch.yml").write_text(PATCH)
    work = tmp_path / "w"
    work.mkdir()
    argv = [sys.executable, "-m", "cordisd", "serve", "--stdio", "minimal"]
    argv += ["--patch", str(tmp_path / "patch.yml")]
    return Daemon(work, model_url=url, argv=argv, PYTHONPATH=module_path(TESTS), LOOP_WATCH=str(watched))


def reset_peak(pid: int) -> None:
    """Have the kernel measure the peak of resident memory anew."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_kb(pid: int) -> int:
    """The peak of resident memory."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])

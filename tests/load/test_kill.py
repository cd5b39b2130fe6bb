"""SIGKILL at random moments: nothing runs on, the log opens, the session goes on and says what it lost."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cordisd.mock import MockModelThread, Received, Reply, call, text
from daemon import Daemon, wait_for_file
from measure import SOON_S, comes
from processes import children, clean_after_s, left
from random_calls import RESET, WAS_RESET

pytestmark = [pytest.mark.load, pytest.mark.timeout(1800)]

LEFTOVERS = [
    "sleep {n} &",
    "nohup sleep {n} >/dev/null 2>&1 & disown",
    "setsid sleep {n} &",
    "(setsid sh -c 'sleep {n} & sleep {n}' &)",
    "(trap '' TERM INT HUP; sleep {n}) &",
    "(cd /; env -i setsid sleep {n} &)",
    "env -i setsid bash -c 'trap \"\" TERM; (sleep {n} &); sleep {n}' &",
    "sleep {n} & kill -STOP $!",
    "setsid bash -c 'kill -STOP $$; sleep {n}' &",
    "(exec -a x bash -c 'while :; do sleep {n} & sleep 0.01; done') &",
    "bash -c 'trap \"\" TERM; while :; do setsid sleep {n} & sleep 0.02; done' & disown",
]


class Killed:
    """A model that first looks at the state of the shell, then starts processes that want to stay."""

    def __init__(self, chance: random.Random, marker: str, leftovers: list[str] = LEFTOVERS) -> None:
        self._chance = chance
        self._marker = marker
        self._leftovers = leftovers
        self.states: list[str] = []

    def reply(self, request: Received) -> Reply:
        last = request.json["messages"][-1]
        if last["role"] == "user":
            return call(f"look{len(self.states)}", "bash", {"command": 'echo "state: $state"'})
        self.states.append(last["content"])
        if last["content"].startswith("Error"):
            return text("done")
        chosen = self._chance.sample(self._leftovers, 5)
        command = "\n".join(
            ["state=lost", *chosen, "touch up", f"exec 9< <(sleep {self._marker}); sleep {self._marker}"]
        )
        return call(f"start{len(self.states)}", "bash", {"command": command.replace("{n}", self._marker)})


def marked(tmp_path: Path, chance: random.Random) -> tuple[Path, str]:
    """A workspace whose path holds a number that is also an argument of `sleep`."""
    marker = str(chance.randrange(10**8, 10**9))
    work = tmp_path / f"w{marker}"
    work.mkdir()
    return work, marker


def starting(daemon: Daemon, session: str, text: str) -> None:
    """Prompt, and wait until the command that starts processes has begun."""
    daemon.prompt(session, text)
    daemon.wait(lambda: sum(event["type"] == "tool/call" for event in daemon.events(session)) == 2)


def test_a_daemon_killed_in_a_command_leaves_nothing_and_the_session_goes_on(
    tmp_path: Path, seed: int, long: bool, report: Callable[[str], None]
) -> None:
    chance = random.Random(f"{seed} command")
    n_kills = 300 if long else 20
    work, marker = marked(tmp_path, chance)
    models = Killed(chance, marker)
    took, n_left = [], []
    with MockModelThread(models.reply) as mock:
        for number in range(n_kills):
            with Daemon(work, model_url=mock.url) as daemon:
                daemon.initialize()
                if number:
                    daemon.request("session/resume", {"sessionId": "s"})
                (work / "up").unlink(missing_ok=True)
                starting(daemon, "s", f"prompt {number}")
                if number % 5:
                    time.sleep(chance.uniform(0, 0.3))
                else:  # once all have begun, however slow the machine
                    wait_for_file(work / "up")
                n_left.append(len(left(marker)))
                daemon.process.kill()
                took.append(clean_after_s(marker))
                daemon.end()
    assert models.states == ["state: ", *[f"{WAS_RESET}\nstate: "] * (n_kills - 1)]
    assert max(n_left) > 2 + len(LEFTOVERS) / 2, "daemon, guardian and most of what was to be started"
    report(f"{n_kills} kills of up to {max(n_left)} processes, clean within {max(took) * 1000:.0f} ms")


def test_a_daemon_killed_at_its_start_leaves_nothing_and_the_next_one_starts(
    tmp_path: Path, seed: int, long: bool, report: Callable[[str], None]
) -> None:
    chance = random.Random(f"{seed} start")
    n_kills = 300 if long else 20
    work, marker = marked(tmp_path, chance)
    took = []
    with MockModelThread(lambda _: text("done")) as mock:
        for number in range(n_kills):
            with Daemon(work, model_url=mock.url) as daemon:
                if chance.random() < 0.5:
                    settings = {"provider": "deepseek-official", "model": "deepseek-v4-flash"}
                    daemon.send("initialize", {"cwd": str(work), **settings})
                    blocks = [{"type": "text", "text": "go"}]
                    daemon.send("session/prompt", {"sessionId": f"s{number}", "contentBlocks": blocks})
                time.sleep(chance.uniform(0, 0.8))
                daemon.process.kill()
                took.append(clean_after_s(marker))
                daemon.end()
        with Daemon(work, model_url=mock.url) as daemon:
            daemon.initialize()
            stored = {path.parent.name for path in daemon.sessions.glob("*/*/session.jsonl")}
            for number in range(n_kills):
                if f"s{number}" in stored:
                    daemon.request("session/resume", {"sessionId": f"s{number}"})
                events = daemon.run(f"s{number}", "again")
                assert events[-1]["data"]["reason"] == {"kind": "completed"}
    report(f"{n_kills} kills, {len(stored)} after a prompt, clean within {max(took) * 1000:.0f} ms")


def test_a_stopped_guardian_wakes_when_the_daemon_is_killed(tmp_path: Path, seed: int) -> None:
    chance = random.Random(f"{seed} stopped")
    work, marker = marked(tmp_path, chance)
    with MockModelThread(Killed(chance, marker).reply) as mock, Daemon(work, model_url=mock.url) as daemon:
        daemon.initialize()
        starting(daemon, "s", "go")
        wait_for_file(work / "up")
        [guardian] = children(daemon.process.pid)
        os.kill(guardian, signal.SIGSTOP)
        daemon.process.kill()
        clean_after_s(marker)


def test_when_the_guardian_is_killed_the_daemon_ends_what_it_leaves_and_says_so(
    tmp_path: Path, seed: int, report: Callable[[str], None]
) -> None:
    chance = random.Random(f"{seed} guardian")
    work, marker = marked(tmp_path, chance)
    models = Killed(chance, marker)
    with MockModelThread(models.reply) as mock, Daemon(work, model_url=mock.url) as daemon:
        daemon.initialize()
        starting(daemon, "s", "go")
        wait_for_file(work / "up")
        [guardian] = children(daemon.process.pid)
        n_left = len(left(marker)) - 1
        os.kill(guardian, signal.SIGKILL)
        daemon.wait_idle("s")
        assert comes(lambda: left(marker).keys() == {daemon.process.pid}, SOON_S), left(marker)
        assert children(daemon.process.pid) == []
        _, killed, refused = models.states
        assert killed.endswith(f"[shell killed by signal: SIGKILL]\n{RESET}")
        assert refused.startswith("Error: no shell can be started")
        assert daemon.end() == 0
    report(f"the daemon ended {n_left} processes")

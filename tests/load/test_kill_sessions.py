"""SIGKILL at random points of streams, calls, log writes, moves and resumes: nothing said is lost."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from bad_disk import TESTS, composition
from cordisd.mock import MockModelThread, text
from cordisd.session.condition import examine
from cordisd.session.layout import locate
from cordisd.session.store import SessionStore
from cordisd.session.survey import survey
from daemon import Daemon, module_path
from killed_sessions import FOLDERS, Life, Models, Session, unheard
from measure import PATIENCE_S
from processes import clean_after_s

pytestmark = [pytest.mark.load, pytest.mark.timeout(3600)]

N_LOOPS = 3
"""Side by side, each with daemons and sessions of its own."""
N_KILLS, N_KILLS_LONG = 20, 300
"""In each loop."""
N_SESSIONS = 5
N_FRAMES = 250
"""That a daemon can send before it is killed. Counted, not timed: so it comes as far on a busy machine."""
LIFE_S = 4.0
"""Even if it sends fewer."""


class Loop:
    """Daemons on the same sessions, one after the other, each killed at a random moment."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self._folder = folder
        self._chance = chance
        self._marker = str(chance.randrange(10**8, 10**9))
        self._work = folder / f"w{self._marker}"
        self._sessions = [Session(f"s{number}") for number in range(N_SESSIONS)]
        self.done: Counter[str] = Counter()
        self.n_torn = 0
        for name in FOLDERS:
            (self._work / name).mkdir(parents=True)

    def run(self, n_kills: int) -> None:
        """Kill so many daemons, then have every session go on to its end."""
        models = Models(random.Random(self._chance.random()), self._marker, self._folder)
        with MockModelThread(models.reply) as mock:
            for _ in range(n_kills):
                self._live_and_die(mock.url)
                assert not models.wrong, models.wrong[0]
        with (
            MockModelThread(lambda _: text("done")) as mock,
            Daemon(self._work, model_url=mock.url) as daemon,
        ):
            daemon.initialize()
            for session in self._sessions:
                if session.sound:
                    daemon.request("session/resume", {"sessionId": session.id}, PATIENCE_S)
                daemon.run(session.id, "the end", PATIENCE_S)
            assert daemon.end() == 0
        clean_after_s(self._marker)
        for session in self._sessions:
            [found] = survey(locate(daemon.sessions, session.id))
            assert examine(found).status == "ok"
            events = SessionStore(daemon.sessions).read(found.path)[1]
            assert unheard(session, events) == set()

    def _live_and_die(self, model_url: str) -> None:
        control = self._folder / "bad-disk"
        environment = {"BAD_DISK": str(control), "PYTHONPATH": module_path(TESTS)}
        argv = composition(self._folder, "never")
        with Daemon(self._work, model_url=model_url, argv=argv, **environment) as daemon:
            life = Life(daemon, self._chance, self._sessions)
            n_frames = self._chance.randrange(N_FRAMES)
            n_before_death = self._chance.randrange(n_frames + 1) if self._chance.random() < 0.4 else None
            with suppress(BrokenPipeError):  # it has died already
                life.resume()
                end_s, start = time.monotonic() + LIFE_S, len(daemon.frames)
                while (n_seen := len(daemon.frames) - start) < n_frames and time.monotonic() < end_s:
                    if n_before_death is not None and n_seen >= n_before_death:
                        victim = self._chance.choice(self._sessions).id
                        control.write_text(json.dumps({victim: {"write": self._chance.randrange(400)}}))
                    life.step()
                    time.sleep(self._chance.uniform(0, 0.04))
                    daemon.read_what_is_there()
            daemon.process.kill()
            clean_after_s(self._marker)
            daemon.end()
        control.unlink(missing_ok=True)
        life.check()
        self.done += life.done
        self.n_torn += sum(examine(found).status == "torn" for found in survey(daemon.sessions))


def test_whenever_a_daemon_is_killed_its_sessions_go_on_with_all_that_was_said(
    tmp_path: Path, seed: int, long: bool, report: Callable[[str], None]
) -> None:
    loops = []
    for number in range(N_LOOPS):
        folder = tmp_path / str(number)
        folder.mkdir()
        loops.append(Loop(folder, random.Random(f"{seed} sessions {number}")))
    n_kills = N_KILLS_LONG if long else N_KILLS
    with ThreadPoolExecutor(N_LOOPS) as threads:
        for running in [threads.submit(loop.run, n_kills) for loop in loops]:
            running.result()
    done = sum((loop.done for loop in loops), Counter[str]())
    report(
        f"{n_kills * N_LOOPS} kills of {N_SESSIONS} sessions, {sum(loop.n_torn for loop in loops)} torn; "
        + ", ".join(f"{count} {method}" for method, count in done.most_common())
    )
    assert done.keys() >= {"session/prompt", "session/steer", "session/resume", "session/close"}

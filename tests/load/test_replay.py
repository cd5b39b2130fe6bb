"""Strict replay of many sessions at once, and of a long one."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cordisd.mock import Answer, MockModelThread, Received, call, text
from cordisd.replay.recording import read_recording
from cordisd.session.reading import events_of
from daemon import Daemon
from measure import least_cpu_s
from replays import composition, daemon, end_of, masked

pytestmark = pytest.mark.load

N_SESSIONS, N_ROUNDS, N_STEPS = 32, 20, 200


def script(request: Received) -> Answer:
    """Two calls, then a text, all of which depend on the prompt: every other task has a shell."""
    prompt, results = next(iter(request.texts("user"))), list(request.texts("tool"))
    task, _, folder = prompt.partition(" in ")
    call_id = f"{task}-{len(results)}"
    if len(results) == 2:
        return text("done with ", task, " ", results[1])
    if int(task.removeprefix("task")) % 2:
        return call(call_id, "bash", {"command": f"echo {task} >> {task}; cat {task}; pwd"})
    command = {"command": "view"} if results else {"command": "create", "file_text": task}
    return call(call_id, "str_replace_editor", {**command, "path": f"{folder}/file"})


def together(session: Daemon, names: list[str], tasks: list[int]) -> float:
    """Run a session for each task at the same time; returns how long it took."""
    began_s, start = time.monotonic(), len(session.frames)
    for name in names:
        folder = session.cwd / name
        folder.mkdir()
        session.request("session/create", {"sessionId": name, "cwd": str(folder)})
    for name, task in zip(names, tasks, strict=True):
        session.prompt(name, f"task{task} in {session.cwd / name}")
    for name, task in zip(names, tasks, strict=True):
        session.wait_idle(name, start, 60)
        end = end_of(session.events(name, start))
        assert end["reason"] == {"kind": "completed"}, (name, task, end)
        session.request("session/close", {"sessionId": name})
    return time.monotonic() - began_s


def test_32_sessions_replay_together_20_times(
    tmp_path: Path, seed: int, report: Callable[[str], None]
) -> None:
    """In one daemon, which is given each recording once for each time that it is played."""
    out, tasks = tmp_path / "out", list(range(N_SESSIONS))
    rows = composition(tmp_path, "record", ("recorder", {"folder": str(out)}))
    with MockModelThread(script) as model, daemon(tmp_path / "work", rows, model.url) as session:
        together(session, [f"s{task}" for task in tasks], tasks)
    files = sorted(map(str, out.iterdir())) * N_ROUNDS
    assert len(files) == N_SESSIONS * N_ROUNDS
    rows = composition(tmp_path, "play", ("replay", {"file": files[0], "files": files[1:]}))
    shuffle, taken_s = random.Random(seed), []
    with daemon(tmp_path / "other", rows) as session:
        for number in range(N_ROUNDS):
            shuffle.shuffle(tasks)
            names = [f"r{number}-{place}" for place in range(N_SESSIONS)]
            taken_s.append(together(session, names, tasks))
    report(
        f"{N_ROUNDS} rounds of {N_SESSIONS} sessions in {sum(taken_s):.1f} s, longest {max(taken_s):.1f} s"
    )


def test_a_long_recording_plays_twice_alike_and_is_read_quickly(
    tmp_path: Path, report: Callable[[str], None]
) -> None:
    out = tmp_path / "out"
    steps = [call(f"c{n}", "bash", {"command": f"echo {n} $PWD; seq {n}"}) for n in range(N_STEPS)]
    rows = composition(tmp_path, "record", ("recorder", {"folder": str(out)}))
    with (
        MockModelThread([*steps, text("end")]) as model,
        daemon(tmp_path / "work", rows, model.url) as session,
    ):
        assert end_of(session.run("s", "go", 120))["stopReason"] == "completed"
        session.request("session/close", {"sessionId": "s"})
    assert len(read_recording(out / "s.jsonl").exchanges) == N_STEPS + 1
    read_s = least_cpu_s(lambda: read_recording(out / "s.jsonl"), 0.3)
    assert read_s < 0.3
    logs, taken_s = [], []
    rows = composition(tmp_path, "play", ("replay", {"file": str(out / "s.jsonl")}))
    for name in ("one", "two"):
        with daemon(tmp_path / name, rows) as session:
            began_s = time.monotonic()
            assert end_of(session.run("s", "go", 120))["stopReason"] == "completed"
            taken_s.append(time.monotonic() - began_s)
            header, *events = session.log("s")
            expanded = [json.loads(event.json) for row in events for event in events_of(row)]
            logs.append(masked([header, *expanded], tmp_path / name))
    assert len(logs[0]) > 5 * N_STEPS and logs[0] == logs[1]
    report(f"{N_STEPS} steps: read in {read_s:.3f} s, played in {min(taken_s):.1f} s")

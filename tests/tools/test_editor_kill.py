"""SIGKILL of the daemon in the middle of edits: the file is old or new, and nothing stray lies beside it."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cordisd.mock import MockModelThread, Received, Reply, call
from daemon import Daemon
from editor_calls import stages_a_file
from measure import PATIENCE_S, SOON_S
from processes import gone

REST = "".join(f"line {n}\n" for n in range(600_000))
MARKS = [f"<{letter * n}>" for n, letter in enumerate("abcdefgh", 1)]
"""First lines of a file in turn, each of another length, so that half a write is seen behind it too."""
N_KILLS = 3


def edits_for_ever(path: Path) -> Callable[[Received], Reply]:
    """A model that puts one mark after the other in the first line of `path`."""

    def reply(request: Received) -> Reply:
        messages: list[dict[str, Any]] = request.json["messages"]
        step = sum(message["role"] == "assistant" for message in messages)
        old, new = (MARKS[(step + n) % len(MARKS)] for n in (0, 1))
        arguments = {"command": "str_replace", "path": str(path), "old_str": old, "new_str": new}
        return call(f"c{step}", "str_replace_editor", arguments)

    return reply


@pytest.fixture
def chance() -> random.Random:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    return random.Random(seed)


def overwriters(pid: int) -> set[int]:
    """Processes of the daemon `pid` that overwrite a file in place."""
    found = set()
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    for child in (int(number) for task in tasks for number in task.read_text().split()):
        try:
            command = Path(f"/proc/{child}/cmdline").read_bytes()
        except OSError:
            continue  # it ended while we looked
        if b"overwrite.py" in command:
            found.add(child)
    return found


def changes_of(path: Path) -> Callable[[int], bool]:
    """Whether the content of the file has been written to since the first call."""
    first: list[int] = []

    def changed(pid: int) -> bool:
        first.append(path.stat().st_mtime_ns)
        return first[-1] != first[0]

    return changed


def wait_for(situation: Callable[[], Any], what: str, timeout_s: float = PATIENCE_S) -> Any:
    end = time.monotonic() + timeout_s
    while not (found := situation()):
        assert time.monotonic() < end, f"never seen: {what}"
        time.sleep(0.0001)
    return found


def kill_during_an_edit(tmp_path: Path, path: Path, begun: Callable[[int], Any], delay_s: float) -> None:
    """Start a daemon that edits `path` for ever; kill it `delay_s` after `begun` of its id is true."""
    cwd = tmp_path / "cwd"
    cwd.mkdir(exist_ok=True)
    with MockModelThread(edits_for_ever(path)) as mock, Daemon(cwd, model_url=mock.url) as daemon:
        pid = daemon.process.pid
        daemon.initialize()
        daemon.prompt(f"s{time.monotonic_ns()}", "go")
        wait_for(lambda: len(mock.requests) > 2, "an edit that is done")
        wait_for(lambda: begun(pid), "the beginning of an edit")
        time.sleep(delay_s)
        left = overwriters(pid)
        daemon.process.send_signal(signal.SIGKILL)
        daemon.process.wait(SOON_S)
        assert gone(left)


def check_whole(path: Path, rest: str) -> None:
    """The file is what it was between two edits."""
    mark, _, found = path.read_text().partition("\n")
    assert mark in MARKS
    assert found == rest


def check_alone(folder: Path, names: list[str], rest: str) -> None:
    """There is nothing else in `folder`.

    A kill between the two system calls that name a staged file and put it in its place, 10 µs, leaves it.
    """
    for name in set(os.listdir(folder)) - set(names):
        assert name.startswith(".cordisd-")
        check_whole(folder / name, rest)
        print(f"a kill between two system calls has left {name}")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "files").mkdir()
    return tmp_path / "files" / "a"


def test_a_large_file_is_old_or_new(tmp_path: Path, path: Path, chance: random.Random) -> None:
    for _ in range(N_KILLS):
        path.write_text("<a>\n" + REST)
        kill_during_an_edit(
            tmp_path, path, lambda pid: stages_a_file(pid, path.parent), chance.uniform(0, 0.02)
        )
        check_whole(path, REST)
        check_alone(path.parent, ["a"], REST)


def test_a_small_file_is_old_or_new(tmp_path: Path, path: Path, chance: random.Random) -> None:
    for _ in range(N_KILLS):
        path.write_text("<a>\nrest\n")
        kill_during_an_edit(tmp_path, path, lambda pid: True, chance.uniform(0, 0.05))
        check_whole(path, "rest\n")
        check_alone(path.parent, ["a"], "rest\n")


def test_a_hard_linked_file_is_old_or_new_by_both_names(
    tmp_path: Path, path: Path, chance: random.Random
) -> None:
    other = path.with_name("b")
    for _ in range(N_KILLS):
        path.write_text("<a>\n" + REST)
        if not other.exists():
            os.link(path, other)
        kill_during_an_edit(tmp_path, path, changes_of(path), chance.uniform(0, 0.002))
        check_whole(path, REST)
        assert other.stat().st_ino == path.stat().st_ino
        check_alone(path.parent, ["a", "b"], REST)


def test_a_large_new_file_is_whole_or_not_there(tmp_path: Path, path: Path, chance: random.Random) -> None:
    cwd = tmp_path / "cwd"
    cwd.mkdir()
    content = "0123456789abcde\n" * 1_300_000  # 20.8 MB
    for n in range(2):
        target = path.with_name(f"a{n}")
        arguments = json.dumps({"command": "create", "path": str(target), "file_text": content})
        script = [call("c1", "str_replace_editor", arguments)]
        with MockModelThread(script) as mock, Daemon(cwd, model_url=mock.url) as daemon:
            pid = daemon.process.pid
            daemon.initialize()
            daemon.prompt(f"s{n}", "go")
            wait_for(
                lambda pid=pid, target=target: stages_a_file(pid, path.parent) or target.exists(),
                "a staged file, or the whole one",
            )
            time.sleep(chance.uniform(0, 0.1))
            daemon.process.send_signal(signal.SIGKILL)
            daemon.process.wait(SOON_S)
        assert set(os.listdir(path.parent)) <= {"a0", "a1"}
        assert not target.exists() or target.read_text() == content

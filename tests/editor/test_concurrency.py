"""Edits at the same time, cancelled and killed: every file is old or new."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cordisd.editor import local
from cordisd.editor.commands import Editor
from cordisd.editor.local import LocalFiles
from measure import PATIENCE_S


def new_editor() -> Editor:
    return Editor(LocalFiles(), lambda: "/", max_output_characters=16_000, n_snippet_lines=0)


def insert(path: Path, text: str) -> dict[str, object]:
    return {"command": "insert", "path": str(path), "insert_line": 0, "new_str": text}


@pytest.mark.parametrize("n_bytes", [0, 1_000_000])
def test_edits_of_one_file_by_many_sessions_are_all_kept(tmp_path: Path, n_bytes: int) -> None:
    path = tmp_path / "a"
    path.write_text("x" * n_bytes)
    link = tmp_path / "link"
    link.symlink_to(path)

    async def edit_all() -> None:
        texts = (insert(link if n % 2 else path, f"line {n}") for n in range(20))
        await asyncio.gather(*(new_editor().run(arguments) for arguments in texts))

    asyncio.run(edit_all())
    assert {line for line in path.read_text().splitlines() if line.startswith("line")} == {
        f"line {n}" for n in range(20)
    }


@pytest.mark.parametrize("n_bytes", [0, 1_000_000])
def test_edits_of_one_file_are_applied_in_the_order_of_the_calls(tmp_path: Path, n_bytes: int) -> None:
    path = tmp_path / "a"
    path.write_text("x" * n_bytes)

    async def edit_all() -> None:
        editor = new_editor()
        await asyncio.gather(*(editor.run(insert(path, f"line {n}")) for n in range(10)))

    asyncio.run(edit_all())
    assert path.read_text().splitlines()[:10] == [f"line {n}" for n in reversed(range(10))]


def test_only_one_of_two_creates_succeeds(tmp_path: Path) -> None:
    async def create_both() -> list[object]:
        calls = (
            new_editor().run({"command": "create", "path": f"{tmp_path}/d/a", "file_text": char * 1_000_000})
            for char in "xy"
        )
        return await asyncio.gather(*calls, return_exceptions=True)

    answers = asyncio.run(create_both())
    assert sorted(isinstance(answer, Exception) for answer in answers) == [False, True]
    assert (tmp_path / "d" / "a").read_text() in ("x" * 1_000_000, "y" * 1_000_000)
    assert os.listdir(tmp_path / "d") == ["a"]


@pytest.mark.parametrize("n_names", [1, 2])
def test_a_cancelled_edit_is_whole_or_not_there_and_the_next_one_works(tmp_path: Path, n_names: int) -> None:
    path = tmp_path / "a"
    old = "0123456789\n" * 100_000
    delays = random.Random(7)

    async def cancel_one() -> str:
        editor = new_editor()
        task = asyncio.create_task(editor.run(insert(path, "new")))
        await asyncio.sleep(delays.uniform(0, 0.012))
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        seen = path.read_text()
        await editor.run(insert(path, "after"))
        return seen

    for _ in range(20):
        path.write_text(old)
        if n_names == 2 and not (tmp_path / "b").exists():
            os.link(path, tmp_path / "b")
        seen = asyncio.run(cancel_one())
        assert seen in (old, "new\n" + old)
        assert path.read_text() == "after\n" + seen
    assert len(os.listdir(tmp_path)) == n_names


def test_a_second_cancellation_does_not_give_the_file_away(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "a"
    path.write_text("x" * 300_000)
    finished = []

    def slow_rewrite(*arguments) -> None:
        time.sleep(0.1)
        finished.append(True)

    monkeypatch.setattr(local, "_rewrite", slow_rewrite)

    async def cancel_twice() -> None:
        task = asyncio.create_task(new_editor().run(insert(path, "new")))
        for _ in range(3):
            await asyncio.sleep(0.01)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert finished == [True]

    asyncio.run(cancel_twice())


class Ticks:
    """Counts the turns of the event loop during a task, which may wait for `enough` of them."""

    def __init__(self) -> None:
        self._enough = threading.Event()

    def enough(self) -> None:
        """Wait, off the loop, until it has gone on for a while."""
        assert self._enough.wait(PATIENCE_S), "the loop stands still"

    async def during(self, task: asyncio.Task[object]) -> None:
        """Count until the end of the task."""
        n_ticks = 0
        while not task.done():
            await asyncio.sleep(0.001)
            n_ticks += 1
            if n_ticks == 5:
                self._enough.set()
        await task


def test_the_loop_goes_on_while_a_large_file_is_edited(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "a"
    path.write_text("0123456789\n" * 900_000)
    ticks = Ticks()
    real_read = local._read

    def slow_read(*arguments):
        ticks.enough()
        return real_read(*arguments)

    monkeypatch.setattr(local, "_read", slow_read)

    async def edit() -> None:
        await ticks.during(asyncio.create_task(new_editor().run(insert(path, "new"))))

    asyncio.run(edit())
    assert path.read_text().startswith("new\n0123")


def test_a_slow_disk_moves_small_writes_off_the_loop(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "a"
    path.write_text("x")
    real_fsync, ticks, waits = os.fsync, Ticks(), []

    def slow_fsync(descriptor: int) -> None:
        time.sleep(0.05)
        for wait in waits:
            wait()
        real_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", slow_fsync)

    async def edit_twice() -> None:
        editor = new_editor()
        await editor.run(insert(path, "first"))
        waits.append(ticks.enough)
        await ticks.during(asyncio.create_task(editor.run(insert(path, "second"))))

    asyncio.run(edit_twice())
    assert path.read_text() == "second\nfirst\nx"


_EDIT_FOREVER = """
import asyncio, sys
from cordisd.editor.commands import Editor
from cordisd.editor.local import LocalFiles

async def main(path):
    editor = Editor(LocalFiles(), lambda: "/", max_output_characters=100, n_snippet_lines=0)
    chars = "ab"
    print("ready", flush=True)
    while True:
        old, new = (f"<{char}" for char in chars)
        await editor.run({"command": "str_replace", "path": path, "old_str": old, "new_str": new})
        chars = chars[::-1]

asyncio.run(main(sys.argv[1]))
"""


def test_a_killed_daemon_leaves_the_old_or_the_new_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    rest = "0123456789\n" * 400_000
    delays = random.Random(11)
    for _ in range(6):
        path.write_text("<a" + rest)
        with subprocess.Popen(
            [sys.executable, "-c", _EDIT_FOREVER, str(path)], stdout=subprocess.PIPE
        ) as daemon:
            assert daemon.stdout is not None
            assert daemon.stdout.readline() == b"ready\n"
            time.sleep(delays.uniform(0.0, 0.1))
            daemon.send_signal(signal.SIGKILL)
        assert path.read_text() in ("<a" + rest, "<b" + rest)

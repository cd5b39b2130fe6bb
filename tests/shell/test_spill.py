"""Whole copies of long outputs."""

from __future__ import annotations

import asyncio
import gc
import os
import re
from pathlib import Path

import pytest

from cordisd.shell.bash import Bash
from cordisd.shell.spill import SpillFolder


@pytest.mark.parametrize("n_lines", [100, 4_000, 30_000, 400_000])
def test_the_copy_holds_every_byte_of_an_output_that_is_cut(drive, tmp_path: Path, n_lines: int):
    folder = SpillFolder(str(tmp_path / "spill"), "s1", 10**9, None)

    async def body(bash: Bash) -> None:
        result = await bash.run(f"seq {n_lines}")
        whole = "".join(f"{n}\n" for n in range(1, n_lines + 1))
        if n_lines == 100:
            assert result.text == whole.rstrip("\n")
            assert not (tmp_path / "spill").exists()
            return
        [path] = re.findall(r"the whole output is in (\S+) \.\.\.\]", result.text)
        assert Path(path).read_text() == whole
        assert (await bash.run(f"grep -c 7 {path}")).text == str(
            sum("7" in line for line in whole.split("\n"))
        )

    drive(body, spill_folder=folder)
    folder.close()
    assert not list((tmp_path / "spill").glob("*"))


def test_past_the_quota_the_result_says_how_much_there_is(drive, tmp_path: Path):
    folder = SpillFolder(str(tmp_path / "spill"), "s1", 300_000, None)

    async def body(bash: Bash) -> None:
        first = (await bash.run("yes | head -c 250000")).text
        assert "whole output" in first
        second = (await bash.run("yes | head -c 250000")).text
        [(n_bytes, path)] = re.findall(r"its first ([\d,]+) bytes are in (\S+) \(the session's quota", second)
        assert n_bytes == "50,000"
        assert Path(path).read_bytes() == b"y\n" * 25_000
        assert "there is no copy of it (the session's quota" in (await bash.run("yes | head -c 250000")).text

    drive(body, spill_folder=folder)


def test_a_folder_that_cannot_be_made_costs_the_copy_only(drive, tmp_path: Path):
    (tmp_path / "file").write_text("")

    async def body(bash: Bash) -> None:
        text = (await bash.run("seq 20000")).text
        assert text.startswith("1\n") and text.endswith("\n20000")
        assert "there is no copy of it (" in text

    drive(body, spill_folder=SpillFolder(str(tmp_path / "file" / "spill"), "s1", 10**6, None))


def test_cancelled_commands_leave_no_copy_no_descriptor_and_no_hole_in_the_quota(drive, tmp_path: Path):
    folder = SpillFolder(str(tmp_path / "spill"), "s1", 10**8, None)

    async def body(bash: Bash) -> None:
        await bash.run("true")
        gc.collect()  # or it closes later what earlier tests have left
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            task = asyncio.create_task(bash.run("seq 100000; echo done > reached; sleep 100"))
            while not (tmp_path / "reached").exists():
                await asyncio.sleep(0.01)
            (tmp_path / "reached").unlink()
            task.cancel()
            await asyncio.wait([task])
        assert len(os.listdir("/proc/self/fd")) <= before + 1, "the folder's"
        assert [file for _, _, files in os.walk(tmp_path / "spill") for file in files] == []
        assert folder.left_bytes == 10**8

    drive(body, spill_folder=folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_another_user_may_read_the_copy_and_not_change_it(drive, tmp_path: Path):
    from cordisd.shell.launch import Launch, find_user

    place = Path("/tmp") / f"cordisd-spill-{os.getpid()}"
    user = find_user("nobody")
    folder = SpillFolder(str(place), "s1", 10**8, user)

    async def body(bash: Bash) -> None:
        [path] = re.findall(r"whole output is in (\S+)", (await bash.run("cd /; seq 20000")).text)
        assert (await bash.run(f"tail -n 1 {path}")).text == "20000"
        assert "denied" in (await bash.run(f"echo x >> {path}")).text

    try:
        drive(body, spill_folder=folder, launch=Launch(user=user))
    finally:
        folder.close()
        place.rmdir()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_folder_that_was_moved_away_gets_nothing_in_its_place(drive, tmp_path: Path):
    """The folder around the copies may belong to the user of the tools."""
    (tmp_path / "sp").mkdir()
    (tmp_path / "other").mkdir()
    folder = SpillFolder(str(tmp_path / "sp"), "s1", 10**8, None)

    async def body(bash: Bash) -> None:
        [path] = re.findall(r"whole output is in (\S+)", (await bash.run("seq 20000")).text)
        made = Path(path).parent
        made.rename(tmp_path / "moved")
        made.symlink_to(tmp_path / "other")
        await bash.run("seq 20000")
        assert sorted(os.listdir(tmp_path / "moved")) == ["1.txt", "2.txt"]

    drive(body, spill_folder=folder)
    folder.close()
    assert os.listdir(tmp_path / "other") == os.listdir(tmp_path / "moved") == []


@pytest.mark.parametrize("session_id", ["../evil", "a/b", "x" * 4_000, ".", "é\x00\n"])
def test_no_session_id_leads_out_of_the_folder(tmp_path: Path, session_id: str):
    folder = SpillFolder(str(tmp_path / "spill"), session_id, 10**6, None)
    descriptor, path = folder.open()
    os.close(descriptor)
    assert Path(path).parent.parent == tmp_path / "spill"
    assert os.listdir(tmp_path) == ["spill"]
    folder.close()

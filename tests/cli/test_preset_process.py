"""`cordisd preset` as a process: its standard output and its signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest

from daemon import clean_environment
from measure import PATIENCE_S

COMMAND = [sys.executable, "-m", "cordisd", "preset"]


@pytest.mark.parametrize(("target", "n_lines"), [("/dev/full", 1), ("pipe", 0)])
def test_an_output_that_cannot_be_written_is_one_line_at_most(
    target: str, n_lines: int, tmp_path: Path
) -> None:
    if target == "pipe":
        reader, writer = os.pipe()
        os.close(reader)
    else:
        writer = os.open(target, os.O_WRONLY)
    try:
        done = subprocess.run(
            [*COMMAND, "render", "minimal"],
            cwd=tmp_path,
            env=clean_environment(),
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE_S,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr.count("\n")) == (1, n_lines)
    assert done.stderr.count("cannot write to standard output") == n_lines


def test_a_terminal_gets_a_newline_after_the_request(tmp_path: Path) -> None:
    words = [*COMMAND[1:], "render", "minimal", "--part", "system"]
    child = pexpect.spawn(COMMAND[0], words, cwd=str(tmp_path), env=clean_environment(), timeout=PATIENCE_S)
    shown = child.read()
    child.close()
    assert (child.exitstatus, shown) == (0, b"You are a helpful software engineer assistant.\r\n")


def test_ctrl_c_exits_130_and_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "slow_entry.py").write_text(
        "import asyncio\n"
        "from contextlib import asynccontextmanager\n"
        "from cordisd.kernel.entry import Entry\n"
        "class Slow(Entry):\n"
        "    @asynccontextmanager\n"
        "    async def mount(self, scope):\n"
        "        print('mounting', flush=True)\n"
        "        await asyncio.sleep(60)\n"
        "        yield\n"
    )
    (tmp_path / "c.yml").write_text("- {id: slow, name: 'slow_entry:Slow'}\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    child = subprocess.Popen(
        [*COMMAND, "render", "c.yml"],
        cwd=tmp_path,
        env=clean_environment(PYTHONPATH=path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stderr is not None and child.stderr.readline() == "mounting\n"
    child.send_signal(signal.SIGINT)
    assert child.communicate(timeout=PATIENCE_S) == ("", "")
    assert child.returncode == 130

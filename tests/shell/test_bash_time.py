"""Time limits, cancellation, waiting for input: the command ends, the shell stays."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from cordisd.errors import ShellError
from cordisd.shell.bash import Bash
from cordisd.shell.guardian import Moment
from cordisd.shell.live import LiveShell
from cordisd.shell.reaper import children, descendants
from cordisd.shell.report import RESET_NOTICE, WAS_RESET_NOTICE
from measure import SOON_S, comes_meanwhile
from processes import exists


def _descendants() -> set[str]:
    """Command lines of all below this process but the guardian and its shells; forks of those count."""
    found = set()
    for guardian in children(os.getpid()):
        shells = set(children(guardian))
        for process in descendants(guardian):
            try:
                words = Path(f"/proc/{process.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if not (process.pid in shells and words.startswith("/bin/bash --noprofile")):
                found.add(words.strip())
    return found


async def _runs(command: str) -> None:
    """Wait until a process of that command line runs in the shell."""
    assert await comes_meanwhile(lambda: command in _descendants()), _descendants()


@pytest.mark.parametrize(
    "command",
    [
        "echo before; sleep 1000; echo after",
        "echo before; while :; do :; done",
        "trap '' INT TERM; echo before; sleep 1000",
        "echo before; (while :; do sleep 1; done) & sleep 1000",
        "echo before; setsid sleep 1000 & sleep 1000",
        "echo before; yes | (trap '' TERM PIPE INT; cat >/dev/null)",
    ],
)
def test_after_a_timeout_the_command_is_gone_and_the_state_kept(drive, command: str):
    async def body(bash: Bash) -> None:
        await bash.run("x=kept")
        start = time.monotonic()
        result = await bash.run(command)
        assert time.monotonic() - start < SOON_S
        assert result.timed_out and not result.shell_reset
        assert result.text.startswith("[The command did not finish in 1 s") and "before" in result.text
        assert "after" not in result.text and RESET_NOTICE not in result.text
        assert _descendants() == set()
        assert (await bash.run("jobs >/dev/null; echo $x")).text.endswith("kept")

    drive(body, timeout_s=1)


def test_jobs_of_earlier_calls_outlive_a_timeout(texts):
    *_, third = texts(
        "sleep 60 & echo $! > pid", "sleep 1000", "kill -0 $(cat pid) && echo alive", timeout_s=1
    )
    assert third == "alive"


def test_on_timeout_reset_loses_the_state_and_says_so(texts):
    first, second = texts("x=1; sleep 1000", 'echo "[$x]"', timeout_s=1, on_timeout="reset")
    assert first.endswith(RESET_NOTICE) and second == "[]"


@pytest.mark.parametrize(
    "command", ["read x; echo $?", "cat", "python3 -c 'input()' 2>/dev/null", "read -p 'Ok? ' x; echo got:$x"]
)
def test_a_command_that_reads_input_gets_end_of_file(drive, command: str):
    async def body(bash: Bash) -> None:
        result = await bash.run(command)
        assert "waited for input" not in result.text and not result.timed_out

    drive(body)


@pytest.mark.parametrize("stdin", ["null", "tty"])
def test_a_wait_for_terminal_input_is_noticed(drive, stdin: str):
    async def body(bash: Bash) -> None:
        start = time.monotonic()
        result = await bash.run("echo a; head -1 </dev/tty; echo b")
        assert time.monotonic() - start < SOON_S
        assert "waited for input" in result.text and not result.timed_out
        assert result.text.split("\n")[1] == "a"

    drive(body, stdin=stdin, input_wait_s=0.3)


def test_a_cancelled_command_is_gone_when_the_cancellation_returns(drive):
    async def body(bash: Bash) -> None:
        await bash.run("x=kept")
        task = asyncio.create_task(bash.run("sleep 1000"))
        await _runs("sleep 1000")
        assert task.cancel()
        start = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - start < SOON_S
        assert _descendants() == set()
        assert (await bash.run("echo $x")).text == "kept"

    drive(body)


def test_a_command_that_cannot_be_ended_costs_the_shell_and_not_the_next_command(drive, monkeypatch):
    async def unanswered(self: LiveShell, moment: Moment) -> None:
        raise ShellError("the guardian does not answer")

    async def body(bash: Bash) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(LiveShell, "kill_since", unanswered)
            with pytest.raises(ShellError, match="does not answer"):
                await bash.run("trap '' INT; sleep 1000")
        result = await bash.run("echo next")
        assert not result.timed_out and result.text.endswith("next")
        assert WAS_RESET_NOTICE in result.text

    drive(body, timeout_s=1)


def test_a_shell_lost_to_a_cancellation_is_announced(drive, tmp_path: Path):
    async def body(bash: Bash) -> None:
        task = asyncio.create_task(bash.run("trap '' INT; touch f; while :; do :; done"))
        await exists(tmp_path / "f")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await bash.run("echo a")).text == f"{WAS_RESET_NOTICE}\na"

    drive(body)


def test_cancelling_twice_leaves_a_usable_shell(drive):
    async def body(bash: Bash) -> None:
        task = asyncio.create_task(bash.run("(trap '' INT TERM; sleep 1000)"))
        await _runs("sleep 1000")
        assert task.cancel()
        await asyncio.sleep(0.05)
        assert task.cancel(), "it still cleans up"
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await bash.run("echo a")).text.endswith("a")
        assert _descendants() == set()

    drive(body)


def test_a_command_cancelled_in_the_queue_is_not_run(drive, tmp_path: Path):
    async def body(bash: Bash) -> None:
        first = asyncio.create_task(bash.run("until [ -e go ]; do sleep .02; done; echo first"))
        second = asyncio.create_task(bash.run("touch second"))
        third = asyncio.create_task(bash.run("echo third"))
        await asyncio.sleep(0.05)
        second.cancel()
        (tmp_path / "go").touch()
        assert (await first).text == "first"
        assert (await third).text == "third"
        assert not (tmp_path / "second").exists()

    drive(body)


def test_cancelling_at_any_moment_of_a_call_harms_nothing(drive):
    """From its first byte to well after its end, whatever the machine's speed: every result is exact."""

    async def body(bash: Bash) -> None:
        n_done = n_cancelled = 0
        longest_s = 0.001
        for n in range(300):
            task = asyncio.create_task(bash.run(f"echo {n}"))
            await asyncio.sleep(n % 40 / 40 * longest_s)
            task.cancel()
            try:
                assert (await task).text == str(n)
                n_done += 1
                longest_s *= 0.9
            except asyncio.CancelledError:
                n_cancelled += 1
                longest_s *= 1.05
            if n % 3 == 0:
                assert (await bash.run("echo clean")).text == "clean"
        assert n_done > 25 and n_cancelled > 25

    drive(body)


def test_moving_takes_the_live_shell_along(drive, tmp_path: Path):
    async def body(bash: Bash) -> None:
        await bash.run("x=1; set -e")
        (tmp_path / "sub").mkdir()
        bash.move(str(tmp_path / "sub"))
        assert (await bash.run("pwd; echo $x")).text == f"{tmp_path}/sub\n1"
        bash.move("/nonexistent")
        assert (await bash.run("echo a")).text.startswith("[The shell could not enter /nonexistent")

    drive(body)


def test_a_move_at_any_moment_of_a_start_or_of_a_move_is_in_force_at_the_next_command(drive, tmp_path):
    places = [str(tmp_path / f"p{n}") for n in range(24)]
    n_meanwhile = [0, 0, 0]

    async def body(bash: Bash) -> None:
        for n, place in enumerate(places):
            os.mkdir(place)
            if n % 3 == 0:
                await bash.run("exit")  # the next command starts a shell
            if n % 3 == 1:
                bash.move(str(tmp_path))  # the next command moves the shell
            running = asyncio.ensure_future(bash.run("true"))
            await asyncio.sleep(n // 3 * (0.0015 if n % 3 == 0 else 0.0002))
            n_meanwhile[n % 3] += not running.done()
            bash.move(place)
            await running
            result = await bash.run("pwd")
            assert result.text.split("\n")[-1] == place
            assert "cannot be entered" not in result.text
        assert n_meanwhile[0] and n_meanwhile[1], "during a start, and during a move"

    drive(body)

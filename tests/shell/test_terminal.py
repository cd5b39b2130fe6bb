"""A program on its terminal, in this process: pace, bounds, and what a program can do to its terminal."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyte")
pytest.importorskip("re2")

from cordisd.errors import ShellError, ToolError
from cordisd.shell.environment import tool_environment
from cordisd.shell.guardian import Guardian
from cordisd.shell.launch import ShellSpec
from cordisd.shell.terminal import _MAX_PENDING_CHARS, _REST_S, Stop, Terminal
from cordisd.shell.unread import KEPT_CHARS, compiled
from measure import ATTEMPTS, no_collection
from measure import PATIENCE_S as LIMIT_S

Run = Callable[[str, Callable[[Terminal], Awaitable[Any]]], Any]


@pytest.fixture
def run(guardian: Guardian) -> Run:
    """`run(command, body)`: awaits `body(terminal)` while the command runs; afterwards no process is left."""

    def made(command: str, body: Callable[[Terminal], Coroutine[Any, Any, Any]]) -> Any:
        async def main() -> Any:
            environment = tool_environment(os.environ, extra={"TERM": "linux"}, attended=True)
            spec = ShellSpec("test", ["bash", "-c", command], environment, driven=False)
            terminal = await Terminal.start(guardian, spec, answers=True)
            try:
                return await body(terminal)
            finally:
                await terminal.close()
                assert terminal.exit_status is not None
                await guardian.close()

        return asyncio.run(main())

    return made


def text(terminal: Terminal) -> str:
    capture = terminal.unread.consume()
    assert capture.complete
    return (capture.head() + capture.tail()).decode()


async def until(terminal: Terminal, pattern: str) -> str:
    """The text up to the pattern, which must come."""
    assert await terminal.wait(compiled(pattern), None, LIMIT_S) is Stop.FOUND
    return text(terminal)


def test_a_program_has_a_usual_terminal_and_nothing_else(run: Run) -> None:
    async def body(terminal: Terminal) -> None:
        assert await terminal.wait(None, None, LIMIT_S) is Stop.ENDED
        size, modes, descriptors, leader = text(terminal).splitlines()
        assert size == "40 160"
        assert {"icanon", "echo", "isig", "icrnl", "opost", "onlcr", "iutf8"} <= set(modes.split())
        assert descriptors.split() == ["0", "1", "2", "3"], "the fourth is the listing's own"
        assert leader == "same"
        assert terminal.exit_status == 0

    run(
        "stty size; stty -a | tr ';\\n' '  '; echo; ls -x /proc/self/fd; "
        "[ $(ps -o sid= -p $$) = $$ ] && echo same",
        body,
    )


def test_everything_printed_before_the_end_is_read(run: Run) -> None:
    async def body(terminal: Terminal) -> None:
        assert await terminal.wait(None, None, LIMIT_S) is Stop.ENDED
        capture = terminal.unread.consume()
        assert capture.n_lines == 20_000
        assert capture.tail().endswith(b"19999\n20000\n")

    run("seq 20000", body)


def test_a_megabyte_is_typed_at_the_pace_of_the_reader_and_arrives_whole(run: Run, tmp_path: Path) -> None:
    lines = b"".join(b"%07d %s\r" % (n, b"x" * 90) for n in range(10_000))

    async def body(terminal: Terminal) -> None:
        await until(terminal, "ready")
        assert await terminal.type(lines + b"\x04", LIMIT_S) == len(lines) + 1
        assert await terminal.wait(compiled("^done"), None, LIMIT_S) is Stop.FOUND
        assert (tmp_path / "f").read_bytes() == lines.replace(b"\r", b"\n")

    run(
        f"stty -echo; exec 3>{tmp_path}/f; echo ready; read -r x; sleep 0.2; "
        'echo "$x" >&3; cat >&3; echo done',
        body,
    )


def test_what_a_program_does_not_read_is_not_said_to_be_sent(run: Run) -> None:
    async def body(terminal: Terminal) -> None:
        await until(terminal, "ready")
        data = b"y\r" * 200_000
        assert 0 < await terminal.type(data, 0.3) < len(data)
        assert await terminal.wait(None, None, 0) is Stop.EXPIRED

    run("stty -echo; echo ready; sleep 1000", body)


def test_the_longest_line_arrives_whole_and_a_longer_one_is_refused(run: Run) -> None:
    async def body(terminal: Terminal) -> None:
        await until(terminal, "ready")
        for data in (b"x" * 4095, b"a\r" + b"x" * 5000 + b"\rb"):
            with pytest.raises(ToolError, match="no line of more than 4094 bytes"):
                await terminal.type(data, LIMIT_S)
        assert await terminal.type(b"x" * 3000, LIMIT_S) == 3000
        with pytest.raises(ToolError, match="no line of more"):
            await terminal.type(b"x" * 2000, LIMIT_S)
        await terminal.type(b"x" * 1094 + b"\r" + b"y" * 4094 + b"\r", LIMIT_S)
        assert (await until(terminal, "4094 4094")).strip() == "4094 4094"
        await terminal.type(b"raw\r", LIMIT_S)
        await until(terminal, "now raw")
        await terminal.type(b"z" * 9000, LIMIT_S)
        await until(terminal, "9000")

    run(
        "stty -echo; echo ready; read -r a; read -r b; echo ${#a} ${#b}; read -r c; stty raw; echo now raw; "
        "head -c 9000 | wc -c",
        body,
    )


def test_a_program_may_close_its_terminal_and_open_it_again(run: Run, tmp_path: Path) -> None:
    async def body(terminal: Terminal) -> None:
        await until(terminal, "one")
        assert await terminal.wait(None, 0.2, LIMIT_S) is Stop.SILENT
        assert terminal.exit_status is None
        (tmp_path / "go").touch()
        await until(terminal, "two")
        assert await terminal.wait(None, None, LIMIT_S) is Stop.ENDED
        assert terminal.exit_status == 3 << 8

    wait = f"until [ -e {tmp_path}/go ]; do sleep 0.02; done"
    run(f"echo one; exec </dev/null >/dev/null 2>&1; {wait}; echo two >/dev/tty; sleep 0.3; exit 3", body)


def test_a_spinning_program_whose_terminal_is_closed_costs_nothing(run: Run) -> None:
    async def body(terminal: Terminal) -> None:
        await until(terminal, "one")
        n_turns = 0
        selector = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
        select = selector.select

        def counted(timeout_s: float | None) -> Any:
            nonlocal n_turns
            n_turns += 1
            return select(timeout_s)

        selector.select = counted
        assert await terminal.wait(None, None, 1) is Stop.EXPIRED
        assert n_turns < 200, "of the event loop; 20 are usual, thousands if it is watched all the time"

    run("echo one; exec </dev/null >/dev/null 2>&1; sleep 1000", body)


def test_a_cancelled_wait_leaves_all_unread_and_the_next_finds_it(run: Run) -> None:
    async def body(terminal: Terminal) -> None:
        waiting = asyncio.create_task(terminal.wait(compiled("never"), None, LIMIT_S))
        while "two" not in terminal.unread._recent:
            await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await until(terminal, "on") == "on"
        assert await until(terminal, "two") == "e\ntwo"

    run("echo one; echo two; read -r x", body)


def test_hanging_up_ends_a_program_as_closing_its_window_does(run: Run, tmp_path: Path) -> None:
    async def body(terminal: Terminal) -> None:
        await until(terminal, "ready")
        await terminal.hang_up()
        assert terminal.exit_status == 0
        assert (tmp_path / "saved").exists()

    run(f"trap 'touch {tmp_path}/saved; exit' HUP; echo ready; while :; do read -r x; done", body)


def test_a_program_that_cannot_be_started_is_an_error(guardian: Guardian) -> None:
    async def main() -> None:
        spec = ShellSpec("test", ["/no/such/program"], {}, driven=False)
        with pytest.raises(ShellError, match="/no/such/program"):
            await Terminal.start(guardian, spec, answers=True)
        await guardian.close()
        with pytest.raises(ShellError, match="guardian"):
            await Terminal.start(guardian, spec, answers=True)

    asyncio.run(main())


FLOODS = {
    "lines": "yes 0123456789",
    "one line": "yes | tr -d '\\n'",
    "drawing": "yes $'\\e[3;4Hx\\e[2J\\e[5;6Hy'",
    "garbage": "cat /dev/urandom",
    "saved cursors": "yes $'\\e7'",
}


@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_takes_bounded_turns_and_memory_and_the_keys_still_work(flood: str, run: Run) -> None:
    async def flooded_turns_s(terminal: Terminal) -> list[float]:
        """CPU time of each turn of a second's flood, in order of size."""
        turns_s: list[float] = []
        inner = terminal._work

        def timed(**how: bool) -> None:
            began_s = time.thread_time()
            inner(**how)
            turns_s.append(time.thread_time() - began_s)

        with pytest.MonkeyPatch.context() as patch, no_collection():
            patch.setattr(terminal, "_work", timed)
            while len(turns_s) <= 5:
                assert await terminal.wait(compiled("never"), None, 1) is Stop.EXPIRED
        assert len(terminal.unread._recent) <= 3 * KEPT_CHARS
        assert terminal._screen.n_pending_chars <= _MAX_PENDING_CHARS + 2 * 65536
        return sorted(turns_s)

    async def body(terminal: Terminal) -> None:
        for _ in range(ATTEMPTS):
            turns_s = await flooded_turns_s(terminal)
            longest_s, middle_s = turns_s[-1], turns_s[len(turns_s) // 2]
            if longest_s < 0.05 and middle_s < 0.03:
                break
        assert longest_s < 0.05, "usual 0.003; all that may be pending takes from 0.1 to 0.3"
        assert middle_s < 0.03
        picture = await asyncio.wait_for(terminal.picture(), LIMIT_S)
        assert len(picture.rows) <= 40
        await terminal.type(b"\x03", LIMIT_S)
        assert await terminal.wait(None, None, LIMIT_S) is Stop.ENDED
        assert terminal.exit_status == 2

    run(FLOODS[flood], body)


def test_a_flood_that_nobody_waits_for_costs_little(run: Run) -> None:
    async def body(terminal: Terminal) -> None:
        await until(terminal, "begun")
        n_turns = 0
        inner = terminal._work

        def counted(**how: bool) -> None:
            nonlocal n_turns
            n_turns += 1
            inner(**how)

        terminal._work = counted  # type: ignore[method-assign]
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await asyncio.sleep(1)
        n_rests = (loop.time() - began_s) / _REST_S
        assert n_turns < 3 * n_rests + 10, "1.5 a rest are usual, 6 without any"
        assert terminal.unread.consume().n_bytes > 10_000, "it goes on all the same"

    run("echo begun; yes 0123456789", body)

"""The guardian: nothing of a session is left, whoever dies, and nothing leaks."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from cordisd.errors import ShellError
from cordisd.shell.bash import Bash, BashSettings
from cordisd.shell.driver import SHELL_ARGV
from cordisd.shell.environment import tool_environment
from cordisd.shell.guardian import Guardian
from cordisd.shell.launch import ShellSpec
from cordisd.shell.reaper import descendants, process_of
from measure import PATIENCE_S, SOON_S, comes, comes_meanwhile

LEFTOVERS = """
sleep {n} & nohup sleep {n} >/dev/null 2>&1 & disown
setsid sleep {n} & (setsid sh -c 'sleep {n} & sleep {n}' &) ; (trap '' TERM INT HUP; sleep {n}) &
env -i setsid bash -c 'trap "" TERM; (sleep {n} &) ; sleep {n}' & (sleep {n} & kill -STOP $!)
(exec -a x bash -c 'while :; do sleep {n} & sleep 0.01; done') &
echo up
"""
N_LEFTOVERS = 8
"""At least; what starts others all the time is more."""


def _sleeping(n: int) -> int:
    """Living processes `sleep n` on this machine."""
    count = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        count += words[:2] == [b"sleep", b"%d" % n] and process_of(int(folder.name)) is not None
    return count


def test_closing_a_realm_leaves_none_of_its_processes_and_all_of_others(guardian: Guardian, tmp_path: Path):
    n = 71_000_000 + os.getpid()

    async def main() -> None:
        bash = Bash(guardian, "mine", str(tmp_path), partial(tool_environment, os.environ))
        other = Bash(guardian, "other", str(tmp_path), partial(tool_environment, os.environ))
        assert (await bash.run(LEFTOVERS.format(n=n))).text.endswith("up")
        await other.run(f"sleep {n + 1} & setsid sleep {n + 1} &")
        assert await comes_meanwhile(lambda: _sleeping(n) >= N_LEFTOVERS and _sleeping(n + 1) == 2)
        start = time.monotonic()
        await guardian.close_realm("mine")
        assert time.monotonic() - start < SOON_S
        assert _sleeping(n) == 0 and _sleeping(n + 1) == 2
        await bash.close()
        await other.close()
        assert _sleeping(n + 1) == 0
        await guardian.close()

    asyncio.run(main())


def test_the_death_of_a_shell_ends_what_it_left(guardian: Guardian, tmp_path: Path):
    n = 72_000_000 + os.getpid()

    async def main() -> None:
        bash = Bash(guardian, "mine", str(tmp_path), partial(tool_environment, os.environ))
        await bash.run(f"setsid sleep {n} & (trap '' TERM; sleep {n}) & exit 3")
        assert _sleeping(n) == 0
        await bash.close()
        await guardian.close()

    asyncio.run(main())


DAEMON = """
import asyncio, functools, os, sys
from cordisd.shell.guardian import Guardian
guardian = Guardian.fork()
from cordisd.shell.bash import Bash
from cordisd.shell.environment import tool_environment
async def main():
    bash = Bash(guardian, "r", "/tmp", functools.partial(tool_environment, os.environ))
    print((await bash.run(sys.argv[1])).text.endswith("up"), guardian.pid, flush=True)
    await bash.run("sleep 1000")
asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_daemon_leaves_nothing(number: int):
    n = 73_000_000 + os.getpid() * 100 + number
    daemon = subprocess.Popen(
        [sys.executable, "-c", DAEMON, LEFTOVERS.format(n=n)], stdout=subprocess.PIPE, start_new_session=True
    )
    assert daemon.stdout is not None
    up, guardian_pid = daemon.stdout.readline().split()
    assert up == b"True" and comes(lambda: _sleeping(n) >= N_LEFTOVERS)
    daemon.send_signal(number)
    daemon.wait()
    daemon.stdout.close()
    assert comes(lambda: not _sleeping(n), SOON_S)
    assert comes(lambda: process_of(int(guardian_pid)) is None, SOON_S)


def test_signals_of_the_terminal_do_not_reach_the_guardian(guardian: Guardian, tmp_path: Path):
    async def main() -> None:
        assert os.getsid(guardian.pid) == guardian.pid != os.getsid(0)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(guardian.pid, number)
        bash = Bash(guardian, "r", str(tmp_path), partial(tool_environment, os.environ))
        assert (await bash.run("echo a")).text == "a"
        await bash.close()
        await guardian.close()

    asyncio.run(main())


def test_without_a_guardian_shells_are_refused_clearly(guardian: Guardian, tmp_path: Path):
    async def main() -> None:
        bash = Bash(guardian, "r", str(tmp_path), partial(tool_environment, os.environ))
        assert (await bash.run("echo a")).text == "a"
        os.kill(guardian.pid, signal.SIGKILL)
        assert await comes_meanwhile(lambda: guardian._lost)
        with pytest.raises(ShellError, match="guardian cannot be reached"):
            await bash.run("echo a")
        await bash.close()
        await guardian.close_realm("r")
        await guardian.close()
        await guardian.close()

    asyncio.run(main())


def test_a_shell_that_cannot_be_started_is_an_error(guardian: Guardian):
    async def main() -> None:
        with pytest.raises(ShellError, match="nonexistent"):
            await guardian.spawn(ShellSpec("r", ["/nonexistent/bash"], {}))
        spawned = await guardian.spawn(ShellSpec("r", SHELL_ARGV, {"BIG": "x" * 100_000}))
        assert process_of(spawned.pid) is not None
        await guardian.end_shell(spawned.pid)
        assert spawned.exited.done()
        for fd in (spawned.master_fd, spawned.control_fd, spawned.command_fd):
            os.close(fd)
        await guardian.close()

    asyncio.run(main())


def test_a_start_cancelled_on_the_way_leaves_no_shell(guardian: Guardian):
    async def main() -> None:
        await (await _spawn_and_end(guardian))
        gc.collect()
        n_fds = len(os.listdir("/proc/self/fd"))
        task = asyncio.create_task(guardian.spawn(ShellSpec("r", SHELL_ARGV, {})))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await (await _spawn_and_end(guardian))  # requests are served in order: the first has been by now
        assert await comes_meanwhile(lambda: not descendants(guardian.pid), SOON_S)
        assert len(os.listdir("/proc/self/fd")) <= n_fds
        await guardian.close()

    async def _spawn_and_end(guardian: Guardian) -> asyncio.Future[int]:
        spawned = await guardian.spawn(ShellSpec("r", SHELL_ARGV, {}))
        await guardian.end_shell(spawned.pid)
        for fd in (spawned.master_fd, spawned.control_fd, spawned.command_fd):
            os.close(fd)
        return spawned.exited

    asyncio.run(main())


def test_calls_and_shells_leak_no_descriptor(guardian: Guardian, tmp_path: Path):
    def fds(pid: int | str) -> int:
        return len(os.listdir(f"/proc/{pid}/fd"))

    def as_before(before: tuple[int, ...]) -> bool:
        return fds("self") <= before[0] and fds(guardian.pid) <= before[1]

    async def main() -> None:
        bash = Bash(guardian, "r", str(tmp_path), partial(tool_environment, os.environ))
        await bash.run("true")
        gc.collect()  # or it closes later what earlier tests have left
        before = fds("self"), fds(guardian.pid), (await bash.run("ls /proc/$$/fd | wc -l")).text
        for _ in range(200):
            await bash.run("echo a | cat >/dev/null")
        assert (await bash.run("ls /proc/$$/fd | wc -l")).text == before[2]
        assert await comes_meanwhile(lambda: as_before(before[:2]))
        for _ in range(20):
            await bash.run("exit")
        await bash.run("true")
        assert await comes_meanwhile(lambda: as_before(before[:2]))
        await bash.close()
        await guardian.close()

    asyncio.run(main())


def test_many_shells_start_at_once(guardian: Guardian, tmp_path: Path):
    async def main() -> None:
        shells = [
            Bash(guardian, f"s{n}", str(tmp_path), partial(tool_environment, os.environ)) for n in range(40)
        ]
        results = await asyncio.gather(*(shell.run("echo ok") for shell in shells))
        assert [result.text for result in results] == ["ok"] * 40
        await asyncio.gather(*(shell.close() for shell in shells))
        assert descendants(guardian.pid) == []
        await guardian.close()

    asyncio.run(main())


def test_processes_that_flee_by_forking_are_caught(guardian: Guardian, tmp_path: Path):
    (tmp_path / "flee.py").write_text(
        """
import os, time
end = time.time() + 20
for _ in range(3):
    if os.fork() == 0:
        while time.time() < end:
            if os.fork():
                os._exit(0)
open("fleeing", "w").close()
time.sleep(60)
"""
    )

    def new_bash(timeout_s: float) -> Bash:
        environment = partial(tool_environment, os.environ)
        return Bash(guardian, "r", str(tmp_path), environment, BashSettings(timeout_s=timeout_s))

    async def main() -> None:
        for timeout_s in (1, 4, 16):  # until they have begun within it
            bash = new_bash(timeout_s)
            result = await bash.run(f"{sys.executable} flee.py")
            assert result.timed_out and not result.shell_reset
            assert {process.pid for process in descendants(guardian.pid)} == {bash._live.pid}
            await bash.close()
            if (tmp_path / "fleeing").exists():
                break
        os.remove(tmp_path / "fleeing")
        bash = new_bash(PATIENCE_S)
        result = await bash.run(
            f"{sys.executable} flee.py & disown; until [ -e fleeing ]; do sleep .01; done"
        )
        assert not result.timed_out
        await bash.close()
        assert descendants(guardian.pid) == []
        await guardian.close()

    asyncio.run(main())


def test_hundreds_of_requests_at_once_are_all_answered(guardian: Guardian) -> None:
    async def main() -> None:
        spec = ShellSpec("many", ["/bin/sleep", "1000"], {}, driven=False)
        spawned = await asyncio.gather(*(guardian.spawn(spec) for _ in range(400)))
        assert len({one.pid for one in spawned}) == 400
        await asyncio.gather(*(guardian.end_shell(one.pid) for one in spawned))
        for one in spawned:
            os.close(one.master_fd)
        assert not descendants(guardian.pid)
        await guardian.close()

    asyncio.run(main())


def test_what_cannot_become_the_program_ends_and_is_no_second_guardian(guardian: Guardian) -> None:
    async def main() -> None:
        for environment in ({"A": "a\0b"}, {"A=B": "x"}):
            spec = ShellSpec("r", ["/bin/sleep", "1000"], environment, driven=False)
            try:
                spawned = await guardian.spawn(spec)
            except ShellError:
                continue
            os.close(spawned.master_fd)
            assert os.waitstatus_to_exitcode(await spawned.exited) == 127
        assert not descendants(guardian.pid)
        spawned = await guardian.spawn(ShellSpec("r", ["/bin/true"], {}, driven=False))
        assert await spawned.exited == 0
        os.close(spawned.master_fd)
        await guardian.close()

    asyncio.run(main())

"""Family E: what commands start is not waited for, and lives as long as its session, never longer."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cordisd.shell.report import WAS_RESET_NOTICE
from measure import PATIENCE_S, SOON_S
from processes import alive, descendants, gone

FLEEING = {
    "plain": "sleep {n} &",
    "nohup": "nohup sleep {n} >/dev/null 2>&1 &",
    "disown": "sleep {n} & disown",
    "setsid": "setsid sleep {n} &",
    "double fork": "(sh -c 'sleep {n} & exit' &)",
    "double fork and setsid": "(setsid sh -c 'setsid sleep {n} & exit' >/dev/null 2>&1 &)",
    "daemon": "(cd /; setsid sh -c 'exec 0<&- 1>&- 2>&-; (exec sleep {n}) &')",
    "deaf": "(trap '' TERM INT HUP QUIT; exec sleep {n}) &",
    "stopped": "sh -c 'kill -STOP $$; : {n}' &",
    "deaf and stopped": "sh -c 'trap \"\" TERM INT HUP; kill -STOP $$; : {n}' &",
    "cleared environment": "env -i /bin/sleep {n} &",
    "cleared environment and new session": "env -i setsid sh -c 'trap \"\" TERM HUP; (sleep {n} &) ; exit' &",
    "coming back": "(trap '' TERM; while :; do sleep {n}; done) & (while :; do sleep {n} & wait; done) &",
    "another user": "setpriv --reuid 65534 --clear-groups sleep {n} &",
    "busy": "sh -c 'while :; do :; done; : {n}' &",
    "reading the terminal": "head -c {n} </dev/tty &",
    "pipe": "sleep {n} | (trap '' PIPE; sleep {n}) &",
    "coprocess": "coproc sleep {n}",
}
BOMB = (
    f"cd /; setpriv --reuid {60_000 + os.getpid() % 5000} --clear-groups bash -c "
    "\"trap '' TERM HUP INT; ulimit -u 60; b() {{ b | b & sleep {n}; }}; b\" 2>/dev/null"
)
"""It forks until its user may not have more processes."""


def running(numbers: dict[str, int]) -> set[str]:
    """The names of those numbers that are among the words of a live process."""
    found: set[str] = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        names = {name for name, number in numbers.items() if b"%d" % number in words}
        if names and alive({int(folder.name)}):
            found |= names
    return found


def left_of(numbers: dict[str, int]) -> set[str]:
    """The names of those whose processes do not go: they would stay for ever."""
    end = time.monotonic() + SOON_S
    while (left := running(numbers)) and time.monotonic() < end:
        time.sleep(0.02)
    return left


def wait_until_running(numbers: dict[str, int]) -> None:
    end = time.monotonic() + PATIENCE_S
    while missing := numbers.keys() - running(numbers):
        assert time.monotonic() < end, missing
        time.sleep(0.02)


def numbered(first: int) -> dict[str, int]:
    """A number that nobody else has for each kind of process, for its command line."""
    return {name: first * 10**9 + os.getpid() * 100 + n for n, name in enumerate(FLEEING)}


def flee(bench, folder: Path, numbers: dict[str, int], *more: str) -> str:
    """Have a session start every kind of process, then `more`; returns its id once they run."""
    commands = [FLEEING[name].format(n=number) for name, number in numbers.items()]
    session = bench.begin("kept=yes; env true", commands, *more, folder=folder)
    if not more:
        bench.wait([session])
    wait_until_running(numbers)
    return session


def test_closing_a_session_leaves_nothing_of_it_and_all_of_another(bash_bench, tmp_path: Path) -> None:
    bench = bash_bench()
    mine, others = numbered(71), numbered(72)
    session = flee(bench, tmp_path, mine)
    other = flee(bench, tmp_path, others)
    bench.daemon.request("session/close", {"sessionId": session})
    assert left_of(mine) == set()
    assert running(others) == others.keys()
    bench.close(session, other)
    assert left_of(others) == set()


def test_closing_a_session_while_a_command_runs_leaves_nothing(bash_bench, tmp_path: Path) -> None:
    bench, numbers = bash_bench(), numbered(73)
    foreground = numbers["plain"] + 50
    session = flee(bench, tmp_path, numbers, f"trap '' TERM INT; sleep {foreground}")
    wait_until_running({"foreground": foreground})
    bench.close(session)
    assert left_of(numbers | {"foreground": foreground}) == set()


def stop_by_shutdown(bench) -> None:
    assert bench.daemon.request("shutdown") == {}
    assert bench.daemon.process.wait(SOON_S) == 0


def stop_by_end_of_input(bench) -> None:
    assert bench.daemon.end() == 0


def stop_by_signal(number: int) -> Callable[[object], None]:
    def stop(bench) -> None:
        bench.daemon.process.send_signal(number)
        bench.daemon.process.wait(SOON_S)

    return stop


@pytest.mark.parametrize(
    ("stop", "busy"),
    [
        pytest.param(stop_by_shutdown, True, id="shutdown"),
        pytest.param(stop_by_end_of_input, True, id="end of input"),
        pytest.param(stop_by_signal(signal.SIGTERM), True, id="SIGTERM"),
        pytest.param(stop_by_signal(signal.SIGKILL), True, id="SIGKILL"),
        pytest.param(stop_by_signal(signal.SIGKILL), False, id="SIGKILL while idle"),
    ],
)
def test_the_end_of_the_daemon_leaves_nothing(bash_own_bench, tmp_path: Path, stop, busy: bool) -> None:
    """TB-073: also while one session reads from the terminal and another sleeps deaf."""
    bench, numbers = bash_own_bench(), numbered(74)
    flee(bench, tmp_path, numbers)
    if busy:
        foreground = {"reader": numbers["plain"] + 60, "deaf": numbers["plain"] + 61}
        for command in (
            f"tail -c {foreground['reader']} /dev/tty",
            f"trap '' TERM INT; sleep {foreground['deaf']}",
        ):
            bench.begin("env true", command, folder=tmp_path)
        numbers |= foreground
        wait_until_running(numbers)
    below = descendants(bench.daemon.process.pid)
    assert len(below) > len(FLEEING)
    stop(bench)
    assert left_of(numbers) == set()
    assert gone(below), "nor its guardian or a shell"


@pytest.mark.alone
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_fork_bomb_ends_with_its_time_and_harms_neither_shell_nor_daemon(
    bash_bench, tmp_path: Path
) -> None:
    """Item 22. As a user of its own, whose limit of processes counts nobody else's."""
    bench, number = bash_bench(timeoutMs=2000), 75 * 10**9 + os.getpid()
    session = bench.begin(
        "kept=yes; env true", BOMB.format(n=number), "echo ok", "echo $kept", folder=tmp_path
    )
    other = bench.begin("echo meanwhile", folder=tmp_path)
    bench.wait([session, other], 30)
    _, words, ok, kept = bench.told(session).texts
    assert words.startswith("[The command did not finish in 2 s and was stopped;")
    assert (ok.split("\n")[-1], kept) == ("ok", "yes")
    assert bench.told(other).texts == ["meanwhile"]
    assert left_of({"bomb": number}) == set()
    bench.close(session, other)


@pytest.mark.alone
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("ending", ["close", "kill"])
def test_a_fork_bomb_in_the_background_ends_with_its_session(
    bash_own_bench, tmp_path: Path, ending: str
) -> None:
    bench, number = bash_own_bench(), 76 * 10**9 + os.getpid()
    session = bench.begin(f"{BOMB.format(n=number)} &", folder=tmp_path)
    end = time.monotonic() + PATIENCE_S
    while len(descendants(bench.guardian)) < 40:
        assert time.monotonic() < end
    bench.wait([session])
    if ending == "close":
        bench.close(session)
    else:
        stop_by_signal(signal.SIGKILL)(bench)
    assert left_of({"bomb": number}) == set()


def test_what_a_dying_shell_leaves_is_gone_when_its_end_is_told(bash_bench, tmp_path: Path) -> None:
    bench, numbers = bash_bench(), numbered(77)
    session = flee(bench, tmp_path, numbers)
    bench.begin("kill -9 $$", folder=tmp_path, session=session)
    bench.wait([session])
    assert running(numbers) == set()
    bench.begin("echo ok", folder=tmp_path, session=session)
    assert bench.finish(session).texts == ["ok"]


def test_a_job_is_not_waited_for_and_lives_on(bash_bench, bash_kept) -> None:
    """TB-066, TB-069."""
    told = bash_kept("sleep 300 & echo started", "kill -0 $!; echo $?", "kill %1; wait 2>/dev/null; jobs -p")
    assert told.texts[0].split("\n")[-1] == "started" and told.took_s[0] < SOON_S
    assert told.texts[1] == "0"


def test_a_server_in_the_background_serves_the_next_call(bash_kept) -> None:
    """TB-068."""
    ask = "import sys, urllib.request as u; print(u.urlopen('http://127.0.0.1:' + sys.argv[1]).status)"
    told = bash_kept(
        "python3 -m http.server 0 --bind 127.0.0.1 > log 2>&1 & until grep -q port log; do :; done; echo up",
        f'python3 -c "{ask}" "$(sed -E "s/.*port ([0-9]+).*/\\1/;q" log)"',
        "kill -0 $! && kill $! && wait 2>/dev/null; true",
    )
    assert told.texts[0].split("\n")[-1] == "up"
    assert told.texts[1] == "200"


def test_a_job_that_takes_what_we_type_costs_the_shell_at_most_and_that_is_told(bash_texts) -> None:
    """Without job control, bash leaves the terminal to its jobs as well."""
    told = bash_texts(
        "set +m; x=1; cat </dev/tty >taken &", *['echo "run $x"'] * 3, "x=2", "echo ok", "echo $x"
    )
    state = "1"
    for words in told[1:4]:
        if words != f"run {state}":  # the line was taken: a new shell, without the job
            state = ""
            assert words.count(WAS_RESET_NOTICE) == 1 and words.endswith("\nrun ")


@pytest.mark.parametrize(
    ("job", "fate"), [("sleep .05", "Done"), ("(exit 3)", "Exit 3"), ("sh -c 'kill -9 $$'", "Killed")]
)
def test_the_fate_of_a_job_is_told_once(bash_texts, job: str, fate: str) -> None:
    """TB-055."""
    over = "while kill -0 $! 2>/dev/null; do sleep .01; done"
    told = bash_texts(f"env true; {job} & {over}", "true", "true", "echo ok")
    assert "".join(told).count(fate) == 1
    assert told[-1] == "ok"


def test_a_call_cancelled_in_the_queue_is_not_run_and_the_running_one_is_gone(
    bash_bench, tmp_path: Path
) -> None:
    """REQ-21, TB-058."""
    bench, number = bash_bench(), 78 * 10**9 + os.getpid()
    session = bench.begin("kept=yes; env true", [f"sleep {number}", "touch second"], folder=tmp_path)
    wait_until_running({"sleep": number})
    bench.daemon.request("session/cancel", {"sessionId": session})
    bench.wait([session])
    told = bench.told(session)
    assert told.texts[1:] == ["Error: tool call aborted", "Error: tool call aborted before dispatch"]
    assert told.failed == [False, True, True]
    bench.begin("echo ok", "echo $kept", folder=tmp_path, session=session)
    assert bench.finish(session).texts == ["ok", "yes"]
    assert running({"sleep": number}) == set()
    assert not (tmp_path / "second").exists()


def test_a_cancelled_command_is_gone_before_the_cancellation_is_answered(bash_bench, tmp_path: Path) -> None:
    """TB-058."""
    bench, number = bash_bench(), 79 * 10**9 + os.getpid()
    session = bench.begin("env true", f"trap '' INT TERM; sleep {number}", folder=tmp_path)
    wait_until_running({"sleep": number})
    bench.daemon.request("session/cancel", {"sessionId": session})
    left = running({"sleep": number})
    bench.wait([session])
    assert left == set()


@pytest.mark.parametrize("gone_first", ["client", "daemon"])
def test_a_session_cut_off_in_a_command_is_idle_when_it_is_resumed(
    bash_own_bench, tmp_path: Path, gone_first: str
) -> None:
    """TB-057."""
    bench, number = bash_own_bench(), 80 * 10**9 + os.getpid()
    session = bench.begin("kept=yes", f"sleep {number}", folder=tmp_path)
    wait_until_running({"sleep": number})
    (stop_by_end_of_input if gone_first == "client" else stop_by_signal(signal.SIGKILL))(bench)
    assert left_of({"sleep": number}) == set()
    bench = bash_own_bench()
    bench.daemon.request("session/resume", {"sessionId": session})
    assert bench.daemon.request("session/get", {"sessionId": session})["status"] == "idle"
    bench.begin('echo "[$kept]"', "echo ok", folder=tmp_path, session=session)
    told = bench.finish(session)
    assert told.texts == [f"{WAS_RESET_NOTICE}\n[]", "ok"]


def test_an_exit_that_bash_refuses_is_not_told_as_a_death(bash_texts) -> None:
    """Stopped jobs make it refuse once; the model reads that and may repeat it."""
    stopped = "kept=yes; sh -c 'kill -STOP $$' & until jobs -s | grep -q .; do :; done"
    told = bash_texts(stopped, "true", "exit 3", "echo $kept", "exit 3", "echo ok")
    assert told[2] == "exit\nThere are stopped jobs.\n[exit code: 1]"
    assert told[3] == "yes"
    assert "reset" not in told[3] and told[5] == "ok"

"""Family D: a command that takes too long, or waits for somebody, ends; the shell and its state stay.

What has to wait for its time limit does so beside the others, each in a session of its own.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from cordisd.shell.report import RESET_NOTICE
from measure import SOON_S

LIMIT_S = 3
LIMITED = {"timeoutMs": LIMIT_S * 1000, "inputWaitMs": 500}
OVERRUN_S = 5.0
"""What REQ-14 allows for the end of a command past its limit."""
STOPPED = f"[The command did not finish in {LIMIT_S} s and was stopped; its output until then follows.]"
WAITED = (
    "[The command was stopped because it waited for input from the terminal, where nobody can type; "
    "its output until then follows.]"
)
KEPT = "[Everything that it had started was ended. The shell is still running, its state kept.]"
CLOCK = r"'import time; print(1, flush=True); time.sleep(1000)'"

STUCK = {
    "echo before; sleep 1000; echo after": ["before"],
    "echo before; while :; do :; done": ["before"],
    "trap '' INT TERM; echo before; sleep 1000": ["before", "Killed"],
    "printf 'no newline'; sleep 100": ["no newline"],
    "set +m; (trap '' INT TERM; echo deaf; sleep 100)": ["deaf"],
    "sleep 1000": [],
    "sleep 4; touch late": [],
    "for i in 1 2 3; do sleep 1000; done; echo after": [],
    "f() { until false; do sleep .1; done; }; f; echo after": [],
    "set -e; sleep 1000": [],
    "tail -f /dev/null": [],
    "python3 -m http.server 0 --bind 127.0.0.1 >/dev/null 2>&1": [],
    "sleep 1000 | cat": [],
    "yes | (trap '' TERM PIPE; cat >/dev/null)": [],
    "echo before; (while :; do sleep 1; done) & sleep 100": ["before", "[1] N"],
    "(setsid sh -c 'sleep 1000 & sleep 1000' &); sleep 1000": [],
    "env -i setsid sh -c 'trap \"\" TERM INT; while :; do sleep 1; done' >/dev/null 2>&1 & sleep 1000": [
        "[1] N"
    ],
    "nohup sleep 1000 >/dev/null 2>&1 & disown; sleep 1000": ["[1] N"],
    "sleep 1000 & kill -STOP $!; sleep 1000": ["[1] N"],
    "sh -c 'trap \"\" INT TERM HUP; echo deaf; while :; do sleep 1; done'": ["deaf", "Killed"],
    f"python3 -c {CLOCK} 2>/dev/null": ["1"],
    "(sleep 1; echo after one second) | tail -1; sleep 1000": ["after one second"],
}
"""Commands, and the lines of their output, with the shell's own words."""
WAITING = {
    "read x </dev/tty; echo after": [],
    "printf 'Ok? '; head -1 </dev/tty; echo after": ["Ok? "],
    "cat /dev/tty": [],
    "read -p 'Name: ' x </dev/tty 2>/dev/tty; echo got:$x": ["Name: "],
}
FULL_SCREEN = ["seq 300 > f; less f", "seq 300 > f; more f", "vi f", "watch -n1 true"]
ON_TERMINAL = {
    "read x; echo got:$x": [],
    "read -p 'Ok? ' x; echo got:$x": ["Ok? "],
    "cat; echo after": [],
    "echo a; cat | wc -c": ["a"],
}
SLOW_PIPELINES = {
    "(sleep 1; echo hi) | tail -1": "hi",
    "(sleep 1; seq 3) | tee log | wc -l; cat log": "3\n1\n2\n3",
}
FLOODS = {"while :; do echo x; done": "x", "yes": "y"}
UNSTOPPABLE = ["trap '' INT; while :; do :; done", "trap 'sleep 1000' EXIT; exit 4"]
REPL = "python3 -q"
COUNT_LEFT = "pgrep -c -P $$ || true"


def all_at_once(bench, commands: list[str], folder: Path) -> dict[str, Any]:
    """What each command came to between two more, then what it left, `echo ok` and the shell's state."""
    sessions = {
        command: bench.begin(
            "kept=yes; env true", command, COUNT_LEFT, "echo ok", "echo $kept", folder=folder / str(n)
        )
        for n, command in enumerate(commands)
        if (folder / str(n)).mkdir() is None
    }
    bench.wait([*sessions.values()])
    told = {command: bench.told(session) for command, session in sessions.items()}
    bench.close(*sessions.values())
    return told


def assert_usable(told: Any) -> None:
    """What the call after a stuck one, and the next, must show."""
    assert "0" in told.texts[2].split("\n"), "it has left something"
    assert told.texts[3:] == ["ok", "yes"]
    assert told.took_s[1] < LIMIT_S + OVERRUN_S
    assert "shell was reset" not in "".join(told.texts)


@pytest.fixture(scope="module")
def ended(bash_bench, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """With the default `stdin: null`."""
    folder = tmp_path_factory.mktemp("null")
    commands = [*STUCK, *WAITING, *FULL_SCREEN, *SLOW_PIPELINES, *FLOODS, *UNSTOPPABLE]
    told = all_at_once(bash_bench(**LIMITED), commands, folder)
    assert not [*folder.glob("*/late")], "its process was gone all the time"
    return told


@pytest.fixture(scope="module")
def ended_on_terminal(bash_bench, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """With `stdin: tty`."""
    commands = [*ON_TERMINAL, *SLOW_PIPELINES, REPL]
    return all_at_once(bash_bench(**LIMITED, stdin="tty"), commands, tmp_path_factory.mktemp("tty"))


@pytest.mark.alone
@pytest.mark.parametrize("command", [*STUCK, *WAITING])
def test_a_stuck_command_is_ended_with_all_that_it_started_and_the_state_kept(ended, command: str) -> None:
    told = ended[command]
    first, *output, last = told.texts[1].split("\n")
    lines = [re.sub(r"^\[1\] \d+$", "[1] N", line) for line in output]
    assert (first, last) == (STOPPED if command in STUCK else WAITED, KEPT)
    job_notices = [line for line in lines if line.startswith("[1]+") or not line]
    assert [line for line in lines if line not in job_notices] == (STUCK | WAITING)[command]
    assert told.facts[1].get("timedOut", False) == (command in STUCK)
    assert_usable(told)


@pytest.mark.alone
@pytest.mark.parametrize("command", FULL_SCREEN)
def test_a_full_screen_program_is_left(ended, command: str) -> None:
    assert_usable(ended[command])
    lines = ended[command].texts[1].split("\n")
    assert lines[0] in (STOPPED, WAITED)
    assert lines[-1] == KEPT


@pytest.mark.alone
@pytest.mark.parametrize("command", SLOW_PIPELINES)
def test_a_slow_pipeline_is_no_wait_for_input(ended, ended_on_terminal, command: str) -> None:
    assert ended[command].texts[1] == SLOW_PIPELINES[command]
    assert ended_on_terminal[command].texts[1] == SLOW_PIPELINES[command]


@pytest.mark.alone
@pytest.mark.parametrize("command", ON_TERMINAL)
def test_a_question_on_the_terminal_is_noticed(ended_on_terminal, command: str) -> None:
    assert_usable(ended_on_terminal[command])
    first, *lines, last = ended_on_terminal[command].texts[1].split("\n")
    assert (first, lines, last) == (WAITED, ON_TERMINAL[command], KEPT)


@pytest.mark.alone
def test_a_repl_on_the_terminal_is_left(ended_on_terminal) -> None:
    assert_usable(ended_on_terminal[REPL])
    assert ended_on_terminal[REPL].texts[1].split("\n")[-1] == KEPT


@pytest.mark.alone
def test_a_wait_for_a_key_is_noticed(ended_on_terminal) -> None:
    """Which a line editor does in `select`, after some polls of its own."""
    assert WAITED in ended_on_terminal[REPL].texts[1]


@pytest.mark.alone
@pytest.mark.parametrize("command", FLOODS)
def test_an_endless_flood_is_stopped_and_shown_in_part(ended, command: str) -> None:
    told = ended[command]
    first, *lines, last = told.texts[1].split("\n")
    assert (first, last) == (STOPPED, KEPT)
    assert lines[0] == lines[-1] == FLOODS[command]
    assert told.facts[1] == {"exitCode": 130, "timedOut": True, "truncated": True}
    assert_usable(told)


@pytest.mark.alone
@pytest.mark.parametrize("command", UNSTOPPABLE)
def test_a_shell_that_will_not_stop_is_replaced_and_that_is_told(ended, command: str) -> None:
    told = ended[command]
    lines = told.texts[1].split("\n")
    assert (lines[0], lines[-1]) == (STOPPED, RESET_NOTICE)
    assert "".join(told.texts).count("shell was reset") == 1
    assert told.texts[2:] == ["0", "ok", ""]
    assert told.took_s[1] < LIMIT_S + OVERRUN_S


def test_with_on_timeout_reset_the_state_is_lost_and_that_is_told(bash_lost) -> None:
    """TB-059."""
    told = bash_lost("export X=1", "echo a; sleep 100", timeoutMs=1000, onTimeout="reset")
    assert told.texts[1].split("\n")[1:] == ["a", RESET_NOTICE]


def test_the_time_in_the_queue_is_not_counted(bash_kept) -> None:
    told = bash_kept([f"sleep .6; echo {name}" for name in "abcdef"], **LIMITED)
    assert told.texts == list("abcdef")


def test_jobs_of_earlier_calls_outlive_a_timeout(bash_texts) -> None:
    *_, alive, ok = bash_texts(
        "sleep 60 & env true", "sleep 1000", "kill -0 $! && echo alive", "echo ok", timeoutMs=1000
    )
    assert (alive, ok) == ("alive", "ok")


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("read x; echo got:$x:$?", "got::1"),
        ("read -p 'Ok? ' x; echo got:$x", "got:"),
        ("cat", ""),
        ("python3", ""),
        ("wc -l", "0"),
        ("while read line; do echo $line; done", ""),
        ("python3 -c 'input()' 2>&1 | tail -1", "EOFError: EOF when reading a line"),
        ("select x in a b; do echo $x; done", "1) a\n2) b\n#? \n[exit code: 1]"),
        ("tty", "not a tty\n[exit code: 1]"),
        ("git init -q . && git commit --allow-empty -q 2>&1 | grep -c Aborting", "1"),
        ("git help -g | head -1", "The Git concept guides are:"),
        ("top -b -n1 | grep -c load; top", "1\ntop: failed tty get\n[exit code: 1]"),
    ],
)
def test_a_question_gets_end_of_file_at_once(bash_kept, command: str, shown: str) -> None:
    """With the default `stdin: null`."""
    git = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=b"
    told = bash_kept(git, command)
    assert told.texts[1] == shown
    assert told.took_s[1] < SOON_S


def test_a_pass_phrase_prompt_is_noticed(bash_kept) -> None:
    """TB-049: it opens the terminal itself."""
    told = bash_kept("env true", "python3 -c 'import getpass; getpass.getpass()' 2>/dev/null", **LIMITED)
    assert told.texts[1].split("\n")[:2] == [WAITED, "Password: "]
    assert told.took_s[1] < LIMIT_S + OVERRUN_S


@pytest.mark.parametrize("stop", ["kill -INT $$", "sleep 100"])
def test_a_redirection_is_undone_after_an_abort_too(bash_kept, tmp_path: Path, stop: str) -> None:
    bash_kept("env true", f"exec > f; {stop}", timeoutMs=1000)
    assert (tmp_path / "place" / "f").read_text() == ""


@pytest.mark.parametrize("stop", ["kill -INT $$", "sleep 100"])
def test_an_abort_on_a_terminal_that_echoes_shows_nothing_of_ours(bash_kept, stop: str) -> None:
    told = bash_kept("env true", f"stty sane </dev/tty; {stop}", timeoutMs=1000)
    assert "builtin" not in told.texts[1]


def test_an_interrupt_early_in_a_session_shows_nothing_of_ours(bash_bench, tmp_path: Path) -> None:
    """Many at once, because it depends on who comes first at the start of the shell."""
    bench = bash_bench()
    sessions = [bench.begin("sh -c 'kill -INT $$'", folder=tmp_path) for _ in range(50)]
    bench.wait(sessions)
    texts = [bench.told(session).texts[0] for session in sessions]
    bench.close(*sessions)
    assert not [words for words in texts if "builtin" in words]

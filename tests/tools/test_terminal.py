"""The tool `terminal` through the real path: programs that people sit in front of."""

from __future__ import annotations

import shutil
import signal
import sys
from functools import partial
from pathlib import Path

import pytest

from daemon import wait_for_file
from tools.terminal_session import act, drive

PYTHON = f"{sys.executable} -q"
LIMIT = 30


def found(result_state: str, name: str = "main") -> bool:
    return result_state == f"[terminal {name}: running; the pattern was found]"


def test_a_python_repl_answers_line_by_line(tmp_path: Path) -> None:
    made = drive(
        tmp_path,
        act("start", command=PYTHON, pattern=">>> $"),
        act("send", text="6 * 7\n", pattern=">>> $"),
        act("send", text="for n in range(2):\n    print('n', n)\n\n", pattern="n 1\n>>> $"),
        act("send", keys=["ctrl-d"]),
    )
    assert made[0].lines[-2] == ">>> " and found(made[0].state)
    assert made[1].lines == ["6 * 7", "42", ">>> ", made[1].state] and found(made[1].state)
    assert made[2].lines[-4:-1] == ["n 0", "n 1", ">>> "]
    assert made[3].state == "[terminal main: exited with code 0]"
    assert made[3].meta == {"running": False, "stop": "ended", "exitCode": 0}


def test_the_result_ends_where_the_match_ends_and_the_rest_comes_next(tmp_path: Path) -> None:
    made = drive(
        tmp_path,
        act("start", command="printf 'one\\ntwo\\nthree\\n'; read -r x", pattern="two"),
        act("wait", pattern="thr"),
        act("send", keys=["enter"]),
    )
    assert made[0].lines[:-1] == ["one", "two"]
    assert made[1].lines[:-1] == ["", "thr"]
    assert made[2].lines[0] == "ee" and made[2].state == "[terminal main: exited with code 0]"


def test_a_prompt_that_is_still_unread_is_not_taken_for_the_next_one(tmp_path: Path) -> None:
    made = drive(
        tmp_path,
        act(
            "start",
            command="printf 'welcome\n> '; sleep 1; "
            "while read -r x; do sleep 0.2; printf '%s!\n> ' $x; touch said; done",
            pattern="welcome",
        ),
        act("wait", silence_seconds=0.3),
        act("send", text="one\n", pattern="!"),
        act("send", text="two\n", pattern="^> $"),
        before={3: partial(wait_for_file, tmp_path / "said")},  # the prompt is there, and unread
    )
    assert made[2].lines[:-1] == ["one", "one!"]
    assert made[3].lines[:-1] == ["", "> two", "two!", "> "]


def test_a_password_is_read_and_never_shown(tmp_path: Path) -> None:
    secret = "Zwiebelkuchen"
    ask = f"{sys.executable} -c 'import getpass; p = getpass.getpass(); print(len(p), \"letters\")'"
    made = drive(
        tmp_path,
        act("start", command=ask, pattern="Password: $"),
        act("send", text=f"{secret}\n", pattern="letters"),
        act(
            "start", name="b", command="read -rsp 'PIN? ' pin; echo; echo ${#pin} digits", pattern=r"PIN\? $"
        ),
        act("send", name="b", text="1234\n", pattern="digits"),
    )
    assert made[1].lines[:-1] == ["", f"{len(secret)} letters"]
    assert made[3].lines[:-1] == ["", "4 digits"]
    assert not any(secret in one.text or "1234" in one.text for one in made)


@pytest.mark.skipif(not shutil.which("less"), reason="no less")
def test_a_pager_shows_its_screen(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("".join(f"line {n}\n" for n in range(1, 501)))
    made = drive(
        tmp_path,
        act("start", command="less f", pattern="line 39", silence_seconds=LIMIT),
        act("send", text="/line 400\n", pattern="line 438", screen=True),
        act("send", keys=["up"], pattern="line 399", screen=True),
        act("send", text="q"),
    )
    assert made[1].lines[:3] == [
        "[screen of 40 rows and 160 columns; cursor at row 40, column 2]",
        "line 400",
        "line 401",
    ]
    assert made[1].lines[-3:-1] == [":", "[end of the screen]"]
    assert made[2].lines[1:3] == ["line 399", "line 400"]
    assert made[3].state == "[terminal main: exited with code 0]"


@pytest.mark.skipif(not shutil.which("vi"), reason="no vi")
def test_an_editor_is_driven_by_keys(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old\n")
    made = drive(
        tmp_path,
        act("start", command="vi -u NONE f", pattern='"f"'),
        act("send", text="onew", keys=["escape"], silence_seconds=1, screen=True),
        act("send", keys=["up"], text="", silence_seconds=1, screen=True),
        act("send", text=":wq\n", pattern="written", timeout_seconds=LIMIT),
        act("wait", pattern="never"),
    )
    assert made[1].lines[1:4] == ["old", "new", "~"]
    assert "cursor at row 2, column 3]" in made[1].lines[0]
    assert "cursor at row 1, column 3]" in made[2].lines[0]
    assert made[4].state == "[terminal main: exited with code 0; the pattern was not found]"
    assert (tmp_path / "f").read_text() == "old\nnew\n"


@pytest.mark.skipif(not shutil.which("gdb"), reason="no gdb")
def test_a_debugger_runs_a_program_that_runs_on_the_same_terminal(tmp_path: Path) -> None:
    prompt = r"^\(gdb\) $"
    made = drive(
        tmp_path,
        act("start", command="gdb -q -nx /bin/cat", pattern=prompt, timeout_seconds=LIMIT),
        act("send", text="p 6*7\n", pattern=prompt),
        act("send", text="set confirm off\nquit\n", pattern="never", timeout_seconds=LIMIT),
    )
    assert made[1].lines[-3:-1] == ["$1 = 42", "(gdb) "]
    assert made[2].state == "[terminal main: exited with code 0; the pattern was not found]"


def test_jobs_of_an_interactive_bash_stop_and_go_on(tmp_path: Path) -> None:
    prompt = r"^\$ $"
    made = drive(
        tmp_path,
        act("start", command="PS1='$ ' bash --norc --noprofile -i", pattern=prompt),
        act("send", text="cat\n", pattern="cat\n"),
        act("send", text="echoed\n", pattern="echoed\nechoed"),
        act("send", keys=["ctrl-z"], pattern=prompt),
        act("send", text="fg\n", pattern="^cat\n"),
        act("send", text="again\n", pattern="again\nagain"),  # now it has the terminal, and not bash
        act("send", keys=["ctrl-c"], pattern=prompt),
        act("send", text="kill -STOP $$; echo a'wake'\n", pattern="^awake"),
        config="{env: {LC_ALL: C}}",
    )
    assert any("Stopped" in line for line in made[3].lines)
    assert all(found(one.state) for one in made)


def test_a_program_without_a_shell_above_it_cannot_be_stopped_for_good(tmp_path: Path) -> None:
    made = drive(
        tmp_path,
        act("start", command=PYTHON, pattern=">>> $"),
        act("send", keys=["ctrl-z"], silence_seconds=0.2),
        act("send", keys=["enter"], pattern=">>> $"),
        act(
            "send",
            text="import os, signal; os.kill(0, signal.SIGSTOP); print('a' 'wake')\n",
            pattern="^awake",
        ),
    )
    assert found(made[2].state) and found(made[3].state)


@pytest.mark.parametrize(
    ("command", "state", "meta"),
    [
        ("true", "exited with code 0", {"exitCode": 0}),
        ("exit 7", "exited with code 7", {"exitCode": 7}),
        ("kill -TERM $$", "killed by signal SIGTERM", {"signal": "SIGTERM"}),
        ("no-such-program", "exited with code 127", {"exitCode": 127}),
        ("sleep 1000 & nohup sleep 1000 & exit 3", "exited with code 3", {"exitCode": 3}),
    ],
)
def test_a_program_that_ends_at_once_says_how(
    command: str, state: str, meta: dict[str, object], tmp_path: Path
) -> None:
    first, again, last = drive(
        tmp_path,
        act("start", command=command, pattern="never", timeout_seconds=LIMIT),
        act("start", command="echo ok", pattern="ok"),
        act("wait"),
    )
    assert first.state == f"[terminal main: {state}; the pattern was not found]"
    assert first.meta == {"running": False, "stop": "ended", **meta}
    assert again.lines[0] == "ok"
    assert last.state == "[terminal main: exited with code 0]"


def test_a_program_that_ignores_interrupts_is_stopped(tmp_path: Path) -> None:
    program = "trap '' INT TERM HUP; echo ready; while :; do sleep 0.1; done"
    made = drive(
        tmp_path,
        act("start", command=program, pattern="ready"),
        act("send", keys=["ctrl-c", "ctrl-c"], silence_seconds=0.3),
        act("stop"),
        act("list"),
    )
    assert made[1].state == "[terminal main: running; nothing was printed for 0.3 s]"
    assert made[2].state == "[terminal main: killed by signal SIGKILL]"
    assert made[2].meta["signal"] == signal.SIGKILL.name
    assert made[3].text == "There are no terminals."


def test_a_flood_is_cut_in_the_middle_and_the_terminal_goes_on(tmp_path: Path) -> None:
    line = "x" * 99
    flood, after = drive(
        tmp_path,
        act(
            "start",
            command=f"yes {line} | head -c 6000000; echo over; read -r x",
            pattern="^over$",
            timeout_seconds=50,
        ),
        act("send", text="\n", pattern="never"),
        limit_s=55,
    )
    assert found(flood.state) and flood.meta["truncated"]
    assert flood.lines[0] == line and flood.lines[-3:-1] == [line, "over"]
    [gap] = [line for line in flood.lines if "omitted" in line]
    assert "5,98" in gap, gap
    assert len(flood.text) < 17_000
    assert after.state.startswith("[terminal main: exited with code 0")


def test_escape_garbage_harms_neither_the_output_nor_the_screen(tmp_path: Path) -> None:
    garbage = (
        r"\033[\033]0;title\033\\\033[999999999999m\033[1;2;3;4;5A\033[?5C\033#8"
        r"\033P never\n\303\050\033[6n\033["
    )
    made = drive(
        tmp_path,
        act(
            "start",
            command=f"printf '{garbage}'; head -c 20000 /dev/urandom; clear; echo; echo clean; read -r x",
            pattern="clean\n",
            timeout_seconds=LIMIT,
        ),
        act("read", screen=True),
        act("send", text="\n", pattern="never"),
    )
    assert found(made[0].state)
    assert "\x1b" not in made[0].text
    assert made[1].lines[2] == "clean"
    assert made[2].state.startswith("[terminal main: exited with code 0")


def test_what_is_printed_late_is_not_lost_by_a_wait_that_was_too_short(tmp_path: Path) -> None:
    made = drive(
        tmp_path,
        act("start", command="read -r x; echo late; read -r x", silence_seconds=0.1),
        act("wait", pattern="late", timeout_seconds=0.1),
        act("send", text="\n", silence_seconds=0.05),
        act("send", text="\n", pattern="never"),
    )
    assert made[3].state.startswith("[terminal main: exited with code 0")
    assert (
        made[1].state == "[terminal main: running; the pattern was not found within the time limit of 0.1 s]"
    )
    assert made[1].meta == {"running": True, "stop": "expired"}
    assert sum(line == "late" for one in made for line in one.lines) == 1

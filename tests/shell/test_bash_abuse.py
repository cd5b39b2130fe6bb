"""A shell that survives the model: redirections, traps, shadowed builtins, death."""

from __future__ import annotations

import re
import time

import pytest

from cordisd.shell.bash import Bash
from cordisd.shell.report import RESET_NOTICE, WAS_RESET_NOTICE
from measure import ATTEMPTS, QUICK_S, SOON_S, comes_meanwhile
from processes import alive


@pytest.mark.parametrize(
    "redirection", [">f", "2>/dev/null", ">/dev/null 2>&1", "</dev/null", "1>&-", "<&- >&- 2>&-"]
)
def test_after_exec_with_a_redirection_the_next_call_prints_again(texts, redirection: str):
    first, second, third = texts(f"exec {redirection}", "echo next; echo error >&2", "echo third")
    assert second.split("\n")[-2:] == ["next", "error"]
    assert third == "third"
    if redirection != "</dev/null":
        assert "terminal again" in first + second


def test_output_through_a_process_substitution_is_waited_for_and_never_lost(drive, tmp_path):
    async def body(bash: Bash) -> None:
        for n in range(ATTEMPTS):
            commands = (
                f"exec > >(tee log{n}) 2>&1; echo a",
                "echo b; sleep 0.05; echo c >&2",
                "exec >/dev/tty 2>&1; wait",
            )
            told = [(await bash.run(command)).text for command in commands]
            lines = [line for words in told for line in words.split("\n")]
            assert [line for line in lines if line in ("a", "b", "c")] == ["a", "b", "c"]
            assert (tmp_path / f"log{n}").read_text() == "a\nb\nc\n"
            if told[1].endswith("b\nc"):
                return  # else tee was kept from the processor for longer than silence is waited for
        pytest.fail("it was never waited for")

    drive(body)


def test_output_that_comes_while_the_shell_is_led_back_to_its_terminal_is_not_lost(texts):
    late = "(sleep 0.002; echo late >/dev/tty) & exec >/dev/null"
    told = texts(*[late, "sleep 0.05; echo next"] * 10, "wait")
    assert "\n".join(told).split("\n").count("late") == 10


def test_no_line_of_a_background_job_is_lost_between_and_around_calls(texts):
    """A job that prints without pause hits every moment of our own lines too."""
    job = "for i in {1..3000}; do echo n$i; done > /dev/tty & true"
    told = "\n".join(texts(job, *["true"] * 150, "wait")).split("\n")
    numbers = [line for line in told if re.fullmatch(r"n\d+", line)]
    assert numbers == [f"n{i}" for i in range(1, 3001)]


@pytest.mark.parametrize(
    "change",
    [
        "set -x",
        "set -v",
        "set -u",
        "trap 'echo D' DEBUG; trap 'echo E' ERR; trap 'echo X' EXIT",
        "PS1=a PS2=b PROMPT_COMMAND='exit 5'",
        "unset PROMPT_COMMAND PS1",
        "readonly PS1 PROMPT_COMMAND",
        "printf(){ echo P; }; eval(){ echo E; }; read(){ :; }; mapfile(){ :; }; declare(){ :; }",
        "alias printf=false eval=false builtin=false",
        "PATH=; IFS=x",
        "set -o posix",
        "stty raw -echo </dev/tty 2>/dev/null; stty cols 20 </dev/tty",
        "set +o emacs; set -o vi; shopt -s nullglob dotglob",
        "ulimit -f 0",
    ],
)
def test_a_changed_shell_stays_quick_and_shows_nothing_of_ours(drive, change: str):
    async def body(bash: Bash) -> None:
        await bash.run(change)
        took_s: list[float] = []
        while len(took_s) < 2 or (min(took_s) >= QUICK_S and len(took_s) < ATTEMPTS):
            start_s = time.monotonic()
            text = (await bash.run("echo next")).text
            took_s.append(time.monotonic() - start_s)
            assert text.split("\n")[-1] == "next"
            assert "builtin" not in text and "background" not in text and "reset" not in text
        assert min(took_s) < QUICK_S

    drive(body)


def test_tracing_shows_the_command_alone(texts):
    assert texts("set -x", "echo t", "set +x; trap 'echo D' DEBUG", "echo u") == [
        "",
        "++ echo t\nt",
        "++ set +x",
        "D\nu",
    ]


def test_an_error_trap_fires_once_and_the_status_stays_exact(texts):
    assert texts(
        "trap 'echo E' ERR",
        "(exit 7)",
        "echo $?",
        "true | false",
        "f() { return 3; }; f || echo handled",
        "trap - ERR; set -e",
        "if false; then :; fi; ! true; echo on",
        "(exit 4)",
        "echo ok",
    ) == [
        "",
        "E\n[exit code: 7]",
        "7",
        "E\n[exit code: 1]",
        "handled",
        "",
        "on",
        f"[shell exited: code 4]\n{RESET_NOTICE}",
        "ok",
    ]


@pytest.mark.parametrize(
    "change",
    [
        "builtin(){ :; }",
        "enable -n printf",
        "enable -n eval",
        "enable -n mapfile",
        "enable -n builtin",
        "readonly __cordisd=1",
        "shopt -s extdebug; trap false DEBUG",
        "ulimit -n 3",
        "exec 250<&- 251>&- 10>&- 11>&- 12>&- 13>&-",
        "unset PROMPT_COMMAND; kill -INT $$",
    ],
)
def test_a_sabotaged_driver_is_cured_or_replaced_and_never_runs_a_command_twice(drive, change: str, tmp_path):
    async def body(bash: Bash) -> None:
        start = time.monotonic()
        await bash.run(change)
        result = await bash.run("echo run >> count; echo next")
        assert result.text.endswith("next")
        assert time.monotonic() - start < SOON_S
        assert (tmp_path / "count").read_text() == "run\n"

    drive(body)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("printf a; exit 3", "aexit\n[shell exited: code 3]"),
        ("echo exit; exit 3", "exit\nexit\n[shell exited: code 3]"),
        ("exec echo exit", "exit\n[shell exited: code 0]"),
        ("set -e; false", "[shell exited: code 1]"),
        ("kill -9 $$", "[shell killed by signal: SIGKILL]"),
        ("kill -HUP $$", "[shell killed by signal: SIGHUP]"),
        ("exec bash", "[shell exited: code 0]"),
    ],
)
def test_the_death_of_the_shell_is_told_once(texts, command: str, told: str):
    first, second, third = texts("x=1; " + command, 'echo "[$x]"', "echo third")
    assert first == f"{told}\n{RESET_NOTICE}"
    assert (second, third) == ("[]", "third")


def test_errexit_is_sticky_and_its_effect_is_explained(texts):
    assert texts("set -e", "false") == ["", f"[shell exited: code 1]\n{RESET_NOTICE}"]


@pytest.mark.parametrize("command", ["kill -STOP $$; echo on", "suspend; echo on"])
def test_a_stopped_shell_goes_on(texts, command: str):
    assert texts(command) == ["on"]


def test_a_shell_that_died_between_calls_is_replaced_and_the_command_runs(drive, tmp_path):
    async def body(bash: Bash) -> None:
        begun = await bash.run("(until [ -e go ]; do sleep 0.01; done; kill -9 $$) & disown; x=1; echo $$")
        (tmp_path / "go").touch()
        shell = int(begun.text.split("\n")[-1])
        assert await comes_meanwhile(lambda: not alive({shell}))
        result = await bash.run('echo "[$x]"')
        assert result.text.endswith(
            f"[before this call: shell killed by signal: SIGKILL]\n{WAS_RESET_NOTICE}\n[]"
        )
        assert result.exit_code == 0 and not result.shell_reset
        assert (await bash.run("echo b")).text == "b"

    drive(body)


def test_with_the_terminal_as_stdin_its_loss_kills_no_later_command(texts):
    first, second = texts("exec </dev/null", "echo next", stdin="tty")
    assert (first, second) == ("", "next")


def test_an_abort_by_the_shell_is_told(texts):
    first, second = texts("echo a; kill -INT $$; echo b", "echo next")
    assert first == "a\n[The shell abandoned the command; the rest of it was not run.]\n[exit code: 130]"
    assert second == "next"


def test_a_missing_workspace_is_replaced_by_its_nearest_ancestor(texts, tmp_path):
    first, second = texts(f"rm -rf {tmp_path}; exit", "pwd")
    assert first.endswith(RESET_NOTICE)
    there = tmp_path.parent
    assert second == f"[The workspace {tmp_path} cannot be entered; the shell started in {there}.]\n{there}"


def test_a_command_cannot_read_its_token_nor_forge_its_end(texts):
    told = texts(
        "set -- $__cordisd; echo \"$# $4$5\"; set | grep -c '[_]_cordisd=' ; declare -p __cordisd 2>&1",
        "printf 'S %s 0\\nP 0\\n' 0123456789abcdef > /proc/$$/fd/12 2>/dev/null; sleep 0.1; echo all",
        "head -c 300000 /dev/zero > /proc/$$/fd/12 2>/dev/null; echo on",
        "echo P x > /proc/$$/fd/12 2>/dev/null; echo $?; (exit 3)",
        "echo $?",
    )
    assert told[0].split("\n")[:2] == ["0 ", "0"]
    assert [words.split("\n")[-1] for words in told[1:]] == ["all", "on", "[exit code: 3]", "3"]

"""What a command does to the shell itself: state that must stay, abuse that must not be felt afterwards."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cordisd.shell.report import RESET_NOTICE, WAS_RESET_NOTICE
from measure import QUICK_S, SOON_S, in_some_attempt

LOST_BETWEEN = f"[The persistent shell could not run commands any more.]\n{WAS_RESET_NOTICE}\n"


def led_back(names: str) -> str:
    return (
        f"[The command had redirected the shell's own {names}; for the next call it is the terminal again.]"
    )


def test_all_state_is_kept_between_calls(bash_kept) -> None:
    """TB-060."""
    told = bash_kept(
        "cd /tmp; export A=1; b=(x 'y z'); f(){ echo f; }; alias g='echo g'; umask 077; set -o pipefail",
        'echo "$PWD $A ${b[1]}"; f; g; umask; sh -c "echo \\$A"; false | true',
        "cd $OLDPWD; set +o pipefail; shopt -s extglob nullglob",
        "shopt -q extglob && echo *.none .; trap",
    )
    assert told.texts == ["", "/tmp 1 y z\nf\ng\n0077\n1\n[exit code: 1]", "", "."]


@pytest.mark.parametrize(
    ("redirection", "names"),
    [
        ("> f", "stdout"),
        ("2> /dev/null", "stderr"),
        ("> /dev/null 2>&1", "stdout and stderr"),
        ("1>&-", "stdout"),
        ("2>&-", "stderr"),
        ("<&- >&- 2>&-", "stdout and stderr"),
        ("> /dev/full", "stdout"),
    ],
)
def test_after_exec_with_a_redirection_the_next_call_prints_again(
    bash_kept, redirection: str, names: str
) -> None:
    told = bash_kept(f"exec {redirection}", "echo out; echo err >&2", 'test -t 1 -a -t 2; echo "$?"')
    assert told.texts == [led_back(names), "out\nerr", "0"]
    assert max(told.took_s) < SOON_S


@pytest.mark.parametrize(
    "command", ["exec < /dev/null", "exec <&-", "exec 3>&1 4</dev/null", "exec 250>f 251>f"]
)
def test_other_redirections_of_exec_are_not_felt(bash_kept, command: str) -> None:
    assert bash_kept(command, "echo a; cat").texts == ["", "a"]


def test_a_redirection_that_is_undone_in_the_command_is_not_spoken_of(bash_kept) -> None:
    told = bash_kept("exec 9>&1 > f; echo hidden; exec 1>&9 9>&-; echo shown", "cat f")
    assert told.texts == ["shown", "hidden"]


def test_output_through_a_process_substitution_is_all_there(bash_texts, tmp_path: Path) -> None:

    def talk() -> None:
        """`tee` is waited for as long as it is not silent: with the processor taken from it, it may be."""
        *told, last = bash_texts(
            "exec > >(tee log) 2>&1", "echo b; sleep .05; echo c >&2", "seq 1000 | tail -1", "echo ok"
        )
        assert (tmp_path / "log").read_text() == "b\nc\n1000\nok\n"
        assert (told[1][-3:], told[2], last) == ("b\nc", "1000", "ok")

    in_some_attempt(talk)


@pytest.mark.parametrize(
    "change",
    [
        "set -u",
        "set -e",
        "set -f -C -b -h -m",
        "set -o posix",
        "set -o noexec",
        "trap 'echo E' ERR",
        "trap 'echo X' EXIT",
        "trap 'echo R' RETURN; f() { :; }; f",
        "trap '' INT TERM HUP QUIT TSTP",
        "shopt -s extdebug",
        "PS1=a PS2=b PROMPT_COMMAND='exit 5'",
        "PROMPT_COMMAND='sleep 1000'",
        "PROMPT_COMMAND=(a b c)",
        "unset PROMPT_COMMAND PS1 PS2 PS4",
        "readonly PS1 PS2 PROMPT_COMMAND",
        "printf() { echo P; }; eval() { echo E; }; read() { :; }; mapfile() { :; }; declare() { :; }",
        "test() { false; }; trap() { :; }; exec() { :; }; unset() { :; }; kill() { :; }; [() { :; }",
        "alias printf=false eval=false builtin=false exec=false kill=false test=false",
        "enable -n kill read trap cd exec declare unset return set enable",
        "PATH=",
        "IFS=x",
        "unset -v IFS HOME TERM LANG",
        "LC_ALL=C",
        "POSIXLY_CORRECT=1",
        "BASHOPTS= 2>/dev/null; SHELLOPTS= 2>/dev/null; true",
        "history -s foo; history -c; set -H",
        "stty raw -echo </dev/tty",
        "stty sane </dev/tty; stty echo opost </dev/tty",
        "stty cols 20 rows 5 </dev/tty",
        "TERM=xterm tput smcup; TERM=xterm tput civis; printf '\\e[?1049h\\e[5;5H\\e(0'",
        "reset 2>/dev/null; clear; true",
        "ulimit -f 0",
        "ulimit -v 200000",
        "ulimit -u 0",
        "cd /; mkdir -p $OLDPWD/gone; cd $OLDPWD/gone; rmdir $PWD; cd ..",
        "suspend",
        "command_not_found_handle() { exit 3; }",
        "coproc cat",
        "exec 9<&0 8>&1; wait; hash -r; disown -a",
    ],
)
def test_a_changed_shell_is_as_quick_and_as_clean_as_before(bash_kept, change: str) -> None:
    bash_kept(change)


def test_the_terminal_has_its_size_and_modes_again(bash_kept) -> None:
    told = bash_kept(
        "stty size </dev/tty; stty raw echo cols 20 </dev/tty", "stty size </dev/tty; stty -a </dev/tty"
    )
    assert told.texts[0] == "40 160"
    assert told.texts[1].startswith("40 160\n") and " -echo " in told.texts[1] and " icanon " in told.texts[1]


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ("set -x", "++ echo ok\nok"),
        ("set -v", "echo ok\nok"),
        ("set -xv", "echo ok\n++ echo ok\nok"),
        ("trap 'echo D' DEBUG", "D\nok"),
        ("trap 'echo D; false' DEBUG; set -o functrace", "D\nok"),
        ("PS4='% '; set -x", "%% echo ok\nok"),
        ("alias echo='echo x'", "x ok"),
        ('echo() { builtin echo f "$@"; }', "f ok"),
    ],
)
def test_tracing_shows_the_command_alone_and_costs_nothing(bash_calls, change: str, shown: str) -> None:
    told = bash_calls("kept=yes", change, *["echo ok"] * 9, '[ "$kept" = yes ]')
    assert told.texts[1] in ("", "D") and told.texts[2:-1] == [shown] * 9
    assert min(told.took_s[2:-1]) < QUICK_S
    assert "exit code" not in told.texts[-1]


def test_an_err_trap_runs_once_for_each_failure(bash_kept) -> None:
    assert bash_kept("trap 'echo E' ERR", "false; true", "false").texts == ["", "E", "E\n[exit code: 1]"]


def test_ps0_is_not_shown(bash_kept) -> None:
    bash_kept("PS0=z")


@pytest.mark.parametrize("command", ["builtin() { :; }", "builtin() { echo B; }", "enable -n printf"])
def test_a_sabotaged_driver_is_cured(bash_kept, command: str, tmp_path: Path) -> None:
    told = bash_kept(command, "echo run >> count; echo next")
    assert told.texts[0].endswith("[The shell did not say how the command ended; its exit code is unknown.]")
    assert told.texts[1] == "next"
    assert told.took_s[0] < SOON_S
    assert (tmp_path / "place" / "count").read_text() == "run\n"


@pytest.mark.parametrize("command", ["enable -n builtin", "set -r"])
def test_a_driver_beyond_cure_is_replaced_and_that_is_told(bash_lost, command: str) -> None:
    told = bash_lost(command)
    assert "[The shell did not answer any more; the command may not have run to its end.]" in told.texts[0]
    assert told.took_s[0] < SOON_S


@pytest.mark.parametrize("command", ["enable -n eval", "readonly __cordisd=1", "alias fi=x"])
def test_a_shell_that_cannot_run_the_next_command_is_replaced_before_it(
    bash_calls, tmp_path: Path, command: str
) -> None:
    told = bash_calls(f"kept=yes; {command}", "echo run >> count; echo next", "echo ok", 'echo "[$kept]"')
    assert told.texts == ["", f"{LOST_BETWEEN}next", "ok", "[]"]
    assert told.took_s[1] < SOON_S
    assert (tmp_path / "count").read_text() == "run\n"


@pytest.mark.parametrize("word", ["if", "then"])
def test_an_alias_for_a_reserved_word_does_not_end_the_session(bash_texts, word: str) -> None:
    assert bash_texts(f"alias {word}=false", "echo a", "echo ok")[2] == "ok"


@pytest.mark.parametrize("command", ["set -o vi", "set -o emacs", "set +o emacs +o vi"])
def test_an_editing_mode_ends_bash_and_that_is_told(bash_lost, command: str) -> None:
    """A fault of bash 5.2, where the mode is set in an `eval` and bash was started without line editing."""
    bash_lost(command)


@pytest.mark.parametrize("limit", ["ulimit -n 3", "ulimit -n 0"])
def test_a_shell_without_descriptors_is_replaced(bash_lost, limit: str) -> None:
    told = bash_lost(f"echo a; {limit}")
    assert told.texts[0].startswith("a\n") and "[shell exited: code 1]" in told.texts[0]
    assert told.took_s[0] < SOON_S


def test_the_signal_of_a_file_too_large_is_told(bash_lost) -> None:
    told = bash_lost("ulimit -f 0; echo a; echo b > f")
    assert told.texts == [f"a\n[shell killed by signal: SIGXFSZ]\n{RESET_NOTICE}"]


def test_a_deleted_workspace_is_replaced_by_its_nearest_ancestor_and_that_is_told_once(
    bash_bench, tmp_path: Path
) -> None:
    place = tmp_path / "a" / "b"
    place.mkdir(parents=True)
    told = bash_bench().run(f"rm -rf {place.parent}; pwd", "exit", "pwd", "pwd", "echo ok", folder=place)
    assert told.texts == [
        str(place),
        f"exit\n[shell exited: code 0]\n{RESET_NOTICE}",
        f"[The workspace {place} cannot be entered; the shell started in {tmp_path}.]\n{tmp_path}",
        str(tmp_path),
        "ok",
    ]
    assert told.failed == [False] * 5


def test_a_workspace_that_is_deleted_before_the_first_call_is_told_too(bash_bench, tmp_path: Path) -> None:
    place = tmp_path / "a"
    place.mkdir()
    bench = bash_bench()
    session = bench.begin(folder=place)
    bench.wait([session])
    shutil.rmtree(place)
    bench.begin("pwd", "echo ok", folder=place, session=session)
    first, ok = bench.finish(session).texts
    assert first == f"[The workspace {place} cannot be entered; the shell started in {tmp_path}.]\n{tmp_path}"
    assert ok == "ok"

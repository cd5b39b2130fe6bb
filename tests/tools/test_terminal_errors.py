"""The tool `terminal`: calls that cannot be carried out, and what remains when calls and sessions end."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from cordisd.mock import call, text
from daemon import Daemon
from measure import PATIENCE_S, comes
from processes import gone, gone_within, with_environment
from tools.terminal_session import Result, act, composition, daemon_with, drive, results

REFUSED = [
    (act("send", text="x"), 'no terminal "main": there are cat; use "start"'),
    (act("wait", name="cap"), 'no terminal "cap" (did you mean "cat"?)'),
    (act("jump"), '"action" must be one of ["start","send","wait","read","stop","list"]'),
    (act("start"), '"start" needs a command'),
    (act("start", command="  "), "the command is empty"),
    (act("start", command="a\0b"), "the command contains a NUL"),
    (act("start", command="x", name="a b"), '"a b" is no name of a terminal'),
    (act("start", command="x", name="cat"), "terminal \"cat\" is in use: it runs 'cat'"),
    (act("start", command="x", text="y"), '"start" does not take text; beside name it takes command,'),
    (act("read", name="cat", pattern="x"), '"read" does not take pattern'),
    (act("send", name="cat"), '"send" needs text or keys'),
    (act("send", name="cat", keys=["entr"]), 'unknown key "entr" (did you mean "enter"?)'),
    (act("send", name="cat", text="x" * 5000), "takes no line of more than 4094 bytes"),
    (act("wait", name="cat", pattern="(x"), "invalid pattern: missing ): (x (the syntax is that of RE2"),
    (act("wait", name="cat", pattern=r"(x)\1"), r"invalid pattern: invalid escape sequence: \1"),
    (act("wait", name="cat", pattern="((a{900}){900}){900}"), "invalid pattern: invalid repetition size"),
    (act("wait", name="cat", pattern=r"\w{999}"), "the pattern is too large"),
    (act("wait", name="cat", pattern="x" * 1001), "the pattern is too long"),
    (act("wait", name="cat", timeout_seconds=601), "timeout_seconds must be from 0 to 600"),
    (act("wait", name="cat", silence_seconds=0), "silence_seconds must be more than 0"),
    (act("wait", name="cat", screen="yes"), '"screen" must be a boolean'),
]


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Result, Result]]:
    """Of each call of `REFUSED`, its result and what a terminal answers afterwards; all in one session."""
    ok = act("send", name="cat", text="ok\n", pattern="ok\nok\n")
    made = drive(
        tmp_path_factory.mktemp("refused"),
        act("start", name="cat", command="cat", silence_seconds=0.05),
        *(one for arguments, _ in REFUSED for one in (arguments, ok)),
    )
    return list(zip(made[1::2], made[2::2], strict=True))


@pytest.mark.parametrize("number", range(len(REFUSED)), ids=[message for _, message in REFUSED])
def test_a_call_that_cannot_be_carried_out_changes_nothing(
    refused: list[tuple[Result, Result]], number: int
) -> None:
    error, after = refused[number]
    assert error.is_error and error.text.startswith("Error: ") and REFUSED[number][1] in error.text
    assert after.lines[:-1] == ["ok", "ok"]


def test_no_pattern_can_hold_the_daemon(tmp_path: Path) -> None:
    made = drive(
        tmp_path,
        act("start", command="printf 'a%.0s' {1..60000}; read -r x", silence_seconds=1),
        act(
            "start",
            name="b",
            command="printf 'a%.0s' {1..60000}; echo; read -r x",
            pattern="(a|aa)*(a*)*(a+)+$b",
            timeout_seconds=2,
        ),
        act("send", name="b", text="ok\n", pattern="^ok\n"),
    )
    assert made[1].state.endswith("the pattern was not found within the time limit of 2 s]")
    assert made[2].lines[0] == "ok"


def test_there_are_only_so_many_terminals(tmp_path: Path) -> None:
    made = drive(
        tmp_path,
        act("start", name="a", command="cat", silence_seconds=0.05),
        act("start", name="b", command="true"),
        act("start", name="c", command="cat"),
        act("start", name="b", command="cat", silence_seconds=0.05),
        act("stop", name="a"),
        act("start", name="c", command="exec cat", silence_seconds=0.05),
        act("list"),
        config="{maxTerminals: 2}",
    )
    assert "there are already 2 terminals, the most allowed (a, b)" in made[2].text
    assert made[4].lines == [
        "[no new output]",
        "[Its terminal is closed.]",
        "[terminal a: killed by signal SIGHUP]",
    ]
    assert made[6].lines == [
        "b: running; no unread output; command: cat",
        "c: running; no unread output; command: exec cat",
    ]


def test_programs_see_neither_secrets_nor_the_daemons_own_settings(tmp_path: Path) -> None:
    asked = (
        'echo "<$DEEPSEEK_API_KEY$DSH_SESSION_ROOT$OPENAI_X>" "$OPENAI_PASSED" "$TERM" "$ADDED" "$PWD"; tty; '
        "ls -x /proc/self/fd"
    )
    [made] = drive(
        tmp_path,
        act("start", command=asked, pattern="never"),
        config="{env: {ADDED: added, TERM: xterm}, passEnv: [OPENAI_PASSED]}",
        OPENAI_X="secret",
        OPENAI_PASSED="passed",
    )
    assert made.lines[0] == f"<> passed linux added {tmp_path}"
    assert made.lines[1].startswith("/dev/pts/")
    assert made.lines[2].split() == ["0", "1", "2", "3"], "the fourth is the listing's own"


@pytest.mark.parametrize(("config", "reads"), [("{}", "[1;3"), ("{answerQueries: false}", "")])
def test_queries_are_answered_when_they_were_asked(config: str, reads: str, tmp_path: Path) -> None:
    wait_s = 30 if reads else 1
    asked = (
        rf"stty -icanon -echo; printf 'ab\033[6n'; IFS= read -r -s -d R -t {wait_s} x; echo; "
        "echo got ${x:1}."
    )
    printed = r"printf 'ab\033[6n'; IFS= read -r -t 1 x; echo; echo got ${#x}."
    made = drive(
        tmp_path,
        act("start", command=asked, pattern=r"^got.*\.", timeout_seconds=PATIENCE_S),
        act("start", name="b", command=printed, pattern=r"^got.*\."),
        config=config,
    )
    assert made[0].lines[-2] == f"got {reads}."
    assert made[1].lines[-2] == "got 0."


def test_a_cancelled_wait_loses_nothing(tmp_path: Path) -> None:
    wait = r"read -r x; echo first; touch began; read -r x; echo second"
    script = [
        call("c1", "terminal", act("start", command=wait, silence_seconds=0.1)),
        call("c2", "terminal", act("send", text="\n", pattern="never", timeout_seconds=500)),
        call("c3", "terminal", act("send", text="\n", pattern="second")),
        text("end"),
    ]
    with daemon_with(script, tmp_path) as (daemon, _):
        daemon.prompt("s", "go")
        daemon.wait(lambda: len(results(daemon.events("s"))) == 1)
        deadline = time.monotonic() + PATIENCE_S
        while not (tmp_path / "began").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        daemon.request("session/cancel", {"sessionId": "s"})
        daemon.wait_idle("s")
        [_, cancelled] = results(daemon.events("s"))
        assert cancelled.text == "Error: tool call aborted"
        [made] = results(daemon.run("s", "go on"))
        assert [line for line in made.lines if line] == ["first", "second", made.state]
        assert b"Traceback" not in daemon.stderr


_STUBBORN = (
    "trap '' HUP TERM INT; nohup sleep 1000 & setsid sleep 1000 & (setsid sleep 1000 &) ; echo up; cat; :"
)


@pytest.mark.parametrize("end", ["close", "shutdown", "kill"])
def test_no_process_of_a_terminal_is_left(end: str, tmp_path: Path) -> None:
    mark = f"TERMINAL_TEST_{os.getpid()}_{time.monotonic_ns()}"
    script = [
        call("c1", "terminal", act("start", command=_STUBBORN, pattern="up$")),
        call("c2", "terminal", act("start", name="py", command=f"{sys.executable} -q", pattern=">>> ")),
        text("end"),
    ]
    with daemon_with(script, tmp_path, f"{{env: {{MARK: {mark}}}}}") as (daemon, _):
        assert len(results(daemon.run("s", "go"))) == 2
        # Up to three sleeps, the stubborn bash, its cat, python.
        assert comes(lambda: len(with_environment(f"MARK={mark}")) >= 6)
        began = with_environment(f"MARK={mark}")
        if end == "close":
            daemon.request("session/close", {"sessionId": "s"})
        elif end == "shutdown":
            daemon.request("shutdown")
        else:
            daemon.process.send_signal(signal.SIGKILL)
            daemon.process.wait()
        assert gone(began)
        assert gone_within(f"MARK={mark}")


def test_a_daemon_keeps_no_descriptor_of_ended_terminals(tmp_path: Path) -> None:
    calls = [act("start", name=f"t{n % 3}", command="echo hi", pattern="never") for n in range(12)]
    script = [call(f"c{n}", "terminal", one) for n, one in enumerate(calls)]
    half = [*script[:6], text("half"), *script[6:], text("end")]
    with daemon_with(half, tmp_path) as (daemon, _):

        def descriptors() -> list[str]:
            folder = Path(f"/proc/{daemon.process.pid}/fd")
            return sorted(os.readlink(folder / fd).split(":")[0] for fd in os.listdir(folder))

        assert len(results(daemon.run("s", "go"))) == 6
        before = descriptors()
        assert not any("ptmx" in target for target in before)
        assert len(results(daemon.run("s", "go"))) == 6
        assert comes(lambda: descriptors() == before), (before, descriptors())


def test_the_libraries_of_the_terminal_are_loaded_by_its_first_call_only(tmp_path: Path) -> None:
    # What is mapped into the daemon tells: RE2 is a shared object.
    def loaded(daemon: Daemon) -> bool:
        return "re2" in Path(f"/proc/{daemon.process.pid}/maps").read_text()

    script = [text("nothing"), call("c1", "terminal", act("list")), text("end")]
    with daemon_with(script, tmp_path) as (daemon, _):
        daemon.run("s", "go")
        assert not loaded(daemon)
        daemon.run("s", "go")
        assert loaded(daemon)


@pytest.mark.parametrize("config", ["{rows: 0}", "{timeoutMs: 700000}", "{silenceMs: 0}", "{colums: 80}"])
def test_a_wrong_configuration_is_refused_with_its_line(config: str, tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, composition=composition(tmp_path, config))
    assert daemon.process.wait(PATIENCE_S) == 2
    daemon.end()
    assert b".cordis.yml:" in daemon.stderr and b'entry "terminal"' in daemon.stderr

"""Section D of the runtime cases, word for word: what a command does to its shell, and the call after it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from conversations import World, hosted
from cordisd.mock import call
from cordisd.shell.report import RESET_NOTICE

RESET = f"\n{RESET_NOTICE}"
LED_BACK = (
    "[The command had redirected the shell's own stdout and stderr; "
    "for the next call it is the terminal again.]"
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with hosted(tmp_path_factory.mktemp("shell"), composition="minimal") as (daemon, model):
        yield World(daemon, model)


def told(world: World, name: str, *commands: str) -> list[str]:
    """What the model of a new session is told of these commands, and then of `echo next`."""
    made = [call(f"c{number}", "bash", {"command": one}) for number, one in enumerate(commands)]
    world.run(name, *made, call("next", "bash", {"command": "echo next"}))
    messages = world.model.received[name][-1]["messages"]
    return [message["content"] for message in messages if message["role"] == "tool"]


def test_what_reads_its_input_gets_its_end_and_the_next_call_is_clean(world: World) -> None:
    """Case 31."""
    first, after = told(world, "input", "python3 -c 'print(input())'")
    assert first.endswith("EOFError: EOF when reading a line\n[exit code: 1]")
    assert after == "next"


def test_a_redirected_shell_is_led_back(world: World) -> None:
    """Case 32."""
    assert told(world, "redirected", "exec >/dev/null 2>&1") == [LED_BACK, "next"]


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("cat <<'EOF'\nx", "here-document"),
        ('echo "abc', "unexpected EOF"),
        ("(", "unexpected end of file"),
        ("echo a \\", "a \\"),
    ],
)
def test_what_is_not_finished_ends_at_once(world: World, command: str, complaint: str) -> None:
    """Case 33: bash takes the backslash before the end of the input for itself."""
    first, after = told(world, f"unfinished {command}", command)
    assert complaint in first and after == "next"


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("exit 3", f"exit\n[shell exited: code 3]{RESET}"),
        ("set -e; false", f"[shell exited: code 1]{RESET}"),
        ("kill -9 $$", f"[shell killed by signal: SIGKILL]{RESET}"),
        ("exec sleep 1", f"[shell exited: code 0]{RESET}"),
    ],
)
def test_a_shell_that_has_ended_says_so_and_the_next_call_runs(
    world: World, command: str, shown: str
) -> None:
    """Case 34."""
    assert told(world, f"ended {command}", command) == [shown, "next"]


def test_a_shell_with_other_prompts_traps_and_modes_goes_on(world: World) -> None:
    """Case 34."""
    change = "kept=yes; PS1=a; PROMPT_COMMAND='sleep 1000'; trap 'echo D' DEBUG; set -x; stty echo </dev/tty"
    *_, kept, after = told(world, "changed", change, "echo $kept")
    assert [words.split("\n")[-1] for words in (kept, after)] == ["yes", "next"]
    assert "reset" not in kept + after


@pytest.mark.parametrize(
    ("command", "n_bytes"),
    [
        ("yes | head -c 50000000", 50_000_000),
        ("head -c 300000 /dev/zero | tr '\\0' x", 300_000),
    ],
)
def test_large_output_keeps_its_ends_and_says_what_is_missing(
    world: World, command: str, n_bytes: int
) -> None:
    """Case 35."""
    first, after = told(world, command, command)
    [omitted] = re.findall(r"\n\[\.\.\. ([\d,]+) (?:bytes|characters) omitted here, ", first)
    assert n_bytes - int(omitted.replace(",", "")) in (16_000, 16_001), "the last line end is never shown"
    assert len(first) < 16_200
    assert after == "next"


def test_every_byte_is_text_in_the_end(world: World) -> None:
    """Case 35: what is no UTF-8 is replaced; what controls a terminal is carried out, in eight bits, too.

    0x90 begins a control string, which its line ends.
    """
    every = "python3 -c 'import sys; sys.stdout.buffer.write(bytes(range(256)))'"
    first, after = told(world, "bytes", every)
    assert first == "\t\n" + "".join(map(chr, range(32, 127))) + "\ufffd" * 16
    assert after == "next"

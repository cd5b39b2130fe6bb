"""The command line picks the right subcommand, whatever form it is given in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cordisd import __version__
from daemon import clean_environment
from measure import PATIENCE_S


def cordisd(*arguments: str, cwd: Path, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cordisd", *arguments],
        cwd=cwd,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        **{"stdin": subprocess.DEVNULL, **options},  # type: ignore[call-overload]
    )


def test_the_version_and_the_help_are_printed(tmp_path: Path) -> None:
    assert cordisd("--version", cwd=tmp_path).stdout == f"cordisd {__version__}\n"
    shown = cordisd("--help", cwd=tmp_path)
    assert shown.returncode == 0
    assert all(name in shown.stdout for name in ("run", "demo", "serve", "check", "preset", "profile"))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["serve", "--nope"], "unrecognized arguments: --nope"),
        (["nope"], "invalid choice: 'nope'"),
        (["--profile", "nope"], "invalid choice: 'nope' (choose from"),
        (["serve"], "nothing to serve on"),
        (["serve", "--stdio", "minimal", "--profile", "sdk"], "not both"),
        (["serve", "--stdio", "no-such-name"], "no-such-name"),
        (["./missing.yml"], "missing.yml"),
    ],
)
def test_a_wrong_command_line_is_one_message_and_exit_code_2(
    arguments: list[str], complaint: str, tmp_path: Path
) -> None:
    ended = cordisd(*arguments, cwd=tmp_path)
    assert ended.returncode == 2
    assert complaint in ended.stderr
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("arguments", [["preset", "list"], ["serve", "--stdio"], []])
def test_a_working_directory_that_is_gone_is_one_line_and_exit_code_2(
    arguments: list[str], tmp_path: Path
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    inside = f'cd {gone} && rmdir {gone} && exec "$0" -m cordisd "$@"'
    ended = subprocess.run(
        ["bash", "-c", inside, sys.executable, *arguments],
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "cordisd: the working directory cannot be used: No such file or directory\n"


@pytest.mark.parametrize(
    ("command", "code", "out"),
    [
        ("serve --stdio <&-", 0, ""),
        ("serve --stdio <&- >&-", 0, ""),
        ("preset check nope 2>&-", 2, ""),
        ("preset check minimal <&- 2>&-", 0, "ok: minimal sha256:"),
    ],
)
def test_a_closed_standard_stream_is_the_null_device(
    command: str, code: int, out: str, tmp_path: Path
) -> None:
    ended = subprocess.run(
        ["bash", "-c", f'"$0" -m cordisd {command}', sys.executable],
        cwd=tmp_path,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (ended.returncode, ended.stdout[:19], ended.stderr) == (code, out, "")


def test_without_arguments_an_ended_pipe_is_served_and_ends_cleanly(tmp_path: Path) -> None:
    ended = cordisd(cwd=tmp_path, input="", stdin=None)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


@pytest.mark.parametrize(("target", "n_lines"), [("/dev/full", 1), ("pipe", 0)])
def test_an_output_that_cannot_be_written_is_one_line_at_most(
    target: str, n_lines: int, tmp_path: Path
) -> None:
    if target == "pipe":
        reader, writer = os.pipe()
        os.close(reader)
    else:
        writer = os.open(target, os.O_WRONLY)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "cordisd", "demo"],
            cwd=tmp_path,
            env=clean_environment(),
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE_S,
        )
    finally:
        os.close(writer)
    assert done.returncode == 1
    assert done.stderr.count("cannot write to standard output") == n_lines
    for word in ('Traceback (most recent call last):\n  File "/', "BrokenPipe", "OSError", "ignored"):
        assert word not in done.stderr

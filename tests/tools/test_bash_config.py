"""The keys of bash's configuration, through the daemon: what the model is told, and what is left behind."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from daemon import Daemon
from measure import PATIENCE_S
from tools.conftest import Bench, Told

KEPT = "[Everything that it had started was ended. The shell is still running, its state kept.]"
WAITED = (
    "[The command was stopped because it waited for input from the terminal, where nobody can type; "
    "its output until then follows.]"
)
WHOLE = "".join(f"{n}\n" for n in range(1, 20_001))
"""What `seq 20000` prints."""


Run = Callable[..., Told]
Start = Callable[..., Bench]
Texts = Callable[..., list[str]]


def long_text(first: int, where: str) -> str:
    """What the model is told of `WHOLE`, of which the first part of that length is at `where`."""
    n_kept = first * 3 // 8
    head, left_out, tail = WHOLE[:n_kept], WHOLE[n_kept : n_kept - first - 1], WHOLE[n_kept - first - 1 : -1]
    gap = f"{len(left_out):,} characters omitted here, {left_out.count(chr(10)):,} line ends among them"
    return f"{head}\n[... {gap}; {where} ...]\n{tail}"


@pytest.mark.parametrize(
    ("config", "what"),
    [
        ({"user": "nosuchuser"}, 'failed to mount: there is no user "nosuchuser" on this machine'),
        (
            {"rlimits": {"nofile": 255}},
            "$.rlimits: nofile must be at least 256, where the shell's own descriptors are",
        ),
        (
            {"spillDir": "/tmp", "truncation": "reference"},
            "$: spillDir needs truncation: headTail, whose notice names the copy",
        ),
        ({"spillDir": "copies"}, "$.spillDir: string should match pattern '^/', got 'copies'"),
        (
            {"user": 10**14},
            "failed to mount: 100000000000000 is no user number: they are below 4294967295",
        ),
        (
            {"rlimits": {"files": 300}},
            'unknown key $.rlimits.files (did you mean "nofile"?); allowed: as, core, cpu, data, fsize, '
            "memlock, nofile, nproc, stack",
        ),
        (
            {"env": {"A=B": "x"}},
            "$.env.A=B: this name should match pattern",
        ),
        (
            {"env": {"A": "a\0b"}},
            "$.env.A: string should match pattern",
        ),
    ],
)
def test_what_cannot_work_is_refused_with_its_place_and_what_is_allowed(
    tmp_path: Path, config: dict[str, Any], what: str
) -> None:
    patch = tmp_path / "patch.yml"
    patch.write_text(f"- id: bash\n  config: {json.dumps(config)}\n")
    command = [sys.executable, "-m", "cordisd"]
    check = subprocess.run(
        [*command, "check", "minimal", "--patch", str(patch)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (check.returncode, check.stdout) == (2, "")
    [line] = check.stderr.splitlines()
    assert what in line and re.match(r'/.+\.yml:\d+, entry "bash": ', line)
    daemon = Daemon(tmp_path, argv=[*command, "serve", "--stdio", "minimal", "--patch", str(patch)])
    assert daemon.process.wait(PATIENCE_S) == 2
    daemon.end()
    assert daemon.stderr.decode() == f"cordisd: {line}\n"


def test_a_long_output_is_on_disk_byte_by_byte_until_the_session_ends(
    bash_bench: Start, tmp_path: Path
) -> None:
    copies = tmp_path / "copies"
    bench = bash_bench(spillDir=str(copies), spillMaxBytes=200_000, maxOutputChars=1_000)
    steps = ("seq 20000", "echo short", "seq 20000 | sed 's/$/\\r/'", "seq 20000", "echo ok")
    session = bench.begin(*steps, folder=tmp_path)
    bench.wait([session])
    [folder] = copies.iterdir()
    full, n_left = "(the session's quota of copies is used up)", 200_000 - len(WHOLE)
    assert bench.told(session).texts == [
        long_text(1_000, f"the whole output is in {folder}/1.txt"),
        "short",
        long_text(1_000, f"its first {n_left:,} bytes are in {folder}/2.txt {full}"),
        long_text(1_000, f"there is no copy of it {full}"),
        "ok",
    ]
    assert (folder / "1.txt").read_bytes() == WHOLE.encode()
    assert (folder / "2.txt").read_bytes() == WHOLE.replace("\n", "\r\n").encode()[:n_left]
    bench.close(session)
    assert list(copies.iterdir()) == []


def test_a_reference_truncation_shows_the_beginning_only(bash_texts: Texts) -> None:
    assert bash_texts("seq 20000", "echo ok", truncation="reference", maxOutputChars=100) == [
        f"{WHOLE[:100]}<response clipped><NOTE>Only the first part of this output is shown, because it "
        "exceeds the limit. Search for what you need with `grep -n`, or print a range of lines.</NOTE>",
        "ok",
    ]


def test_a_secret_passes_only_where_it_is_named(bash_own_bench: Start, tmp_path: Path) -> None:
    names = ("OPENAI_ORG", "OPENAI_PASSED", "DSH_NOTE", "CORDISD_NOTE", "PLAIN", "CHANGED")
    bench = bash_own_bench(
        environment=dict.fromkeys(names, "hidden"),
        env={"ADDED": "a b$HOME", "CHANGED": "anew"},
        passEnv=["OPENAI_PASSED", "ABSENT"],
    )
    asked = "env | grep -E '^(DEEPSEEK|OPENAI|DSH|CORDISD|ABSENT|ADDED|CHANGED)|=hidden|test-key' | sort"
    expected = "ADDED=a b$HOME\nCHANGED=anew\nOPENAI_PASSED=hidden\nPLAIN=hidden"
    texts = bench.run(asked, "exit", asked, folder=tmp_path).texts
    assert (texts[0], texts[2]) == (expected, expected)


def test_a_command_that_reads_the_terminal_is_reported_as_waiting(bash_kept: Run) -> None:
    told = bash_kept("echo asks; read y", "cat", "echo in | cat", stdin="tty", inputWaitMs=300)
    assert told.texts == [f"{WAITED}\nasks\n{KEPT}", f"{WAITED}\n{KEPT}", "in"]

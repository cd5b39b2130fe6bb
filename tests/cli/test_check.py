from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cli.conftest import ROSTER, Folder
from daemon import module_path
from measure import PATIENCE_S

TESTS = Path(__file__).resolve().parents[1]
SCRIPT = """
import argparse, sys
from cordisd.cli import check
parser = argparse.ArgumentParser()
check.add_arguments(parser)
sys.exit(check.run(parser.parse_args()))
"""


def _check(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": module_path(TESTS)}
    command = [sys.executable, "-c", SCRIPT, *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE_S
    )


@pytest.fixture
def composition(tmp_path: Path) -> Path:
    path = tmp_path / "c.yml"
    path.write_text(
        "- {id: a, name: kernel.sample_entries:Sample}\n"
        "- {id: b, name: kernel.sample_entries:SessionSample, config: {timeoutMs: 5}}\n"
        "- {id: c, name: kernel.sample_entries:Sample, disabled: true}\n"
    )
    return path


def test_a_good_composition_is_summed_up_with_the_digest_of_its_agent(composition: Path) -> None:
    done = _check(composition.parent, "c.yml")
    assert (done.returncode, done.stderr) == (0, "")
    summed_up, digest = done.stdout.splitlines()
    assert summed_up == "ok: 2 entries (host: a; session: b)"
    assert re.fullmatch("digest: sha256:[0-9a-f]{64}", digest)


def test_every_problem_goes_to_stderr_and_the_exit_code_is_2(composition: Path) -> None:
    composition.write_text(composition.read_text() + "- {id: a, name: bsh}\n- {id: d, nam: x}\n")
    done = _check(composition.parent, "c.yml")
    assert (done.returncode, done.stdout) == (2, "")
    lines = done.stderr.splitlines()
    assert lines[0] == 'c.yml:4, entry "a": duplicate loader entry id: "a" is already used at c.yml:1'
    assert lines[1].startswith('c.yml:4, entry "a": failed to import loader entry: unknown name "bsh"')
    assert sorted(line.split(": ")[1].split(" ")[0] for line in lines[2:]) == ["has", "unknown"]


def test_patches_are_applied_and_warnings_are_marked(composition: Path) -> None:
    (composition.parent / "p.yml").write_text("- {id: c, disabled: false}\n- {id: nobody, disabled: true}\n")
    (composition.parent / "q.yml").write_text("- {id: b, disabled: true}\n")
    done = _check(composition.parent, "c.yml", "--patch", "p.yml", "--patch", "q.yml")
    summed_up, digest = done.stdout.splitlines()
    assert (done.returncode, summed_up) == (0, "ok: 2 entries (host: a, c; session: none)")
    assert digest.startswith("digest: sha256:")
    assert done.stderr == 'warning: p.yml:2, entry "nobody": patch skipped: there is no entry of this id\n'


def test_a_missing_file_lists_what_is_shipped(tmp_path: Path) -> None:
    done = _check(tmp_path, "minmal")
    assert (done.returncode, done.stdout) == (2, "")
    missing, listed = done.stderr.splitlines()
    assert missing == "minmal: config file not found"
    assert "minimal" in listed


def test_a_shipped_composition_is_checked_by_its_name(tmp_path: Path) -> None:
    done = _check(tmp_path, "minimal")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("ok: ")


def test_the_empty_composition_is_good(tmp_path: Path) -> None:
    (tmp_path / "c.yml").write_text("[]\n")
    done = _check(tmp_path, "c.yml")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("ok: 0 entries (host: none; session: none)\ndigest: sha256:")


def test_an_unknown_prompt_variable_is_found_at_the_entry_that_wrote_it(folder: Folder) -> None:
    (folder.root / "c.yml").write_text(
        "- {id: one, name: host-section, config: {name: one, text: 'In {{cwd}} with {{modle}}'}}\n"
        "- {id: two, name: section, config: {name: two, text: '{{Two}}'}}\n"
        "- {id: three, name: section, config: {name: three, text: '{{{{three}}'}}\n"
    )
    ended = folder.run_bare("check", "c.yml")
    assert (ended.code, ended.out) == (2, "")
    first, second = ended.err.splitlines()
    assert first.startswith('c.yml:1, entry "one": unknown prompt variable "{{modle}}" in section "one"')
    assert second.startswith('c.yml:2, entry "two": malformed prompt variable "{{Two}}" in section "two"')


def test_the_default_preset_is_checked_too_and_the_digest_is_its(folder: Folder) -> None:
    (folder.root / "c.yml").write_text(ROSTER.replace("roots", "default: minimal, roots"))
    assert (
        folder.run_bare("preset", "diff", "c.yml", "presets/minimal").out
        in folder.run_bare("check", "c.yml").out
    )
    folder.change("minimal", "You are a helpful", "You are {{who}}")
    ended = folder.run_bare("check", "c.yml")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.count("\n") == 1 and 'agent.cordis.yml:3, entry "persona": ' in ended.err

"""`cordisd run` with an agent preset, a required digest and patches."""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path

import pytest

from cli.conftest import Folder
from cordisd import mock as model
from cordisd.cli import run as command
from cordisd_sdk.launch import check_options, command_line
from daemon import clean_environment
from measure import PATIENCE_S


def _run(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    work = root / "work"
    work.mkdir(exist_ok=True)
    arguments = ["--cwd", str(work), "--session-root", str(root / "run-logs")]
    return subprocess.run(
        [sys.executable, "-m", "cordisd", "run", "do it", *arguments, *words],
        cwd=root,
        env=clean_environment(DSH_HOME=str(root / "home")),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


def test_a_preset_of_the_host_runs_as_it_is_rendered(folder: Folder) -> None:
    rendered = folder.run_bare(
        "preset", "render", "rl-minimal-v1", "--prompt", "do it", "--cwd", str(folder.root / "work")
    )
    digest = json.loads(folder.run_bare("preset", "list", "--json").out)["presets"][1]["digest"]
    with model.MockModelThread([model.text("done"), model.text("again")]) as mock:
        words = ["--preset", "rl-minimal-v1", "--session", "s1", "--base-url", mock.url]
        done = _run(folder.root, *words, "--require-preset", digest)
        assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
        assert mock.requests[0].body.decode() == rendered.out
        words[1] = "minimal"  # a session keeps the agent that it was begun with
        refused = _run(folder.root, *words)
        assert (refused.returncode, refused.stdout, len(mock.requests)) == (1, "", 1)
    assert 'session "s1" was begun with the preset "rl-minimal-v1", not with "minimal"' in refused.stderr


def test_another_digest_or_an_unknown_preset_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    with model.MockModelThread([]) as mock:
        other = _run(tmp_path, "--base-url", mock.url, "--require-preset", f"sha256:{'0' * 64}")
        unknown = _run(tmp_path, "--base-url", mock.url, "--preset", "minmal")
        assert mock.requests == []
    assert (other.returncode, other.stdout) == (unknown.returncode, unknown.stdout) == (2, "")
    assert f"required is sha256:{'0' * 64}" in other.stderr
    assert '(did you mean "minimal"?)' in unknown.stderr
    assert "Traceback" not in other.stderr + unknown.stderr


def test_patches_apply_to_the_composition_in_their_order(tmp_path: Path) -> None:
    for name, text in (("a.yml", "Once."), ("b.yml", "Twice.")):
        (tmp_path / name).write_text(f"- {{id: persona, config: {{text: {text}, complete: true}}}}\n")
    with model.MockModelThread([model.text("done")]) as mock:
        done = _run(tmp_path, "--base-url", mock.url, "--patch", "a.yml", "--patch", "b.yml")
        assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
        assert mock.requests[0].json["messages"][0] == {"role": "system", "content": "Twice."}


def test_the_composition_is_host_with_a_preset_and_minimal_without(tmp_path: Path) -> None:
    parser = ArgumentParser()
    command.add_arguments(parser)

    def composition(*words: str) -> object:
        return command.daemon_options(parser.parse_args(["x", *words]), tmp_path, {})["composition"]

    assert composition() == "minimal"
    assert composition("--preset", "minimal") == "host"
    assert composition("--preset", "minimal", "--composition", "my.yml") == "my.yml"


def test_patches_are_no_option_beside_a_whole_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    argv = command_line({"composition": "host", "patches": ["a.yml", Path("/b/c.yml")]})
    assert argv[-5:] == ["host", "--patch", "/a.yml", "--patch", "/b/c.yml"]
    with pytest.raises(TypeError, match="command is the whole of it"):
        check_options({"command": ["cordisd"], "patches": ["a.yml"]})

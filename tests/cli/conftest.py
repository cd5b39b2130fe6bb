"""What commands are about, and the command line over it in this process: presets, session logs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from cordisd.cli.main import main
from cordisd.shipped import presets_folder
from daemon import CLEARED
from stored_logs import everything

ROSTER = "- {id: presets, name: presets, config: {roots: [{path: presets}], includeUserRoot: false}}\n"
MODEL = "- {id: model, name: openai, config: {provider: deepseek-official}}\n"


class Ended(NamedTuple):
    code: int
    out: str
    err: str


class Folder:
    """`presets` holds copies of the shipped presets; `roster.yml` is a composition with these."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root = root
        self.presets = root / "presets"
        self._capsys = capsys
        self._capsys.readouterr()

    def run(self, *words: str) -> Ended:
        """`cordisd WORDS`, with `roster.yml` as the composition."""
        return self.run_bare(*words, "--composition", "roster.yml")

    def run_bare(self, *words: str) -> Ended:
        """`cordisd WORDS`; paths in its messages start in this folder."""
        code = main(list(words))
        out, err = self._capsys.readouterr()
        return Ended(code, out, err.replace(f"{self.root}/", ""))

    def change(self, preset: str, old: str, new: str) -> None:
        """Put `new` where the agent file of `preset` has `old`, which it has once."""
        path = self.presets / preset / "agent.cordis.yml"
        text = path.read_text()
        assert text.count(old) == 1
        path.write_text(text.replace(old, new))

    def add(self, name: str, agent: str, label: str | None = None) -> None:
        """A new preset."""
        folder = self.presets / name
        folder.mkdir()
        (folder / "agent.cordis.yml").write_text(agent)
        if label is not None:
            (folder / "preset.yml").write_text(label)


@pytest.fixture
def folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Folder]:
    for name in list(os.environ):
        if name.startswith(CLEARED):
            monkeypatch.delenv(name)
    monkeypatch.setenv("DSH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DSH_SESSION_ROOT", str(tmp_path / "logs"))
    monkeypatch.chdir(tmp_path)
    shutil.copytree(presets_folder(), tmp_path / "presets")
    (tmp_path / "roster.yml").write_text(ROSTER + MODEL)
    yield Folder(tmp_path, capsys)
    assert not (tmp_path / "logs").exists()


class Logs:
    """A session root, and a command over it, which is `log` unless it is set."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root = root
        self.command = "log"
        self._capsys = capsys
        self.err = ""

    def run(self, *words: str) -> tuple[int, str]:
        """Exit code and output of the command; what it says of problems is in `err`."""
        self._capsys.readouterr()
        code = main([self.command, *words])
        out, self.err = self._capsys.readouterr()
        return code, out

    def verify(self, path: Path | None = None) -> tuple[int, str]:
        """Exit code and, without the path, what is said of the log at `path`; nothing may change."""
        before = everything(self.root)
        code, out = self.run("verify", str(path or self.root))
        assert everything(self.root) == before
        [line] = out.splitlines()
        status, place = line.split(maxsplit=1)
        return code, f"{status}: {place.partition(': ')[2]}"


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Logs:
    monkeypatch.setenv("DSH_SESSION_ROOT", str(tmp_path / "logs"))
    return Logs(tmp_path / "logs", capsys)

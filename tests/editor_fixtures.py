"""Editors of real daemons as fixtures: `pytest_plugins = ["editor_fixtures"]` in a test module."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from editor_calls import EditorDaemon, EditorSession, editor_host, without_capabilities


@pytest.fixture(scope="module")
def editor_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EditorDaemon]:
    """One daemon for the module."""
    with editor_host(tmp_path_factory.mktemp("editor")) as host:
        yield host


@pytest.fixture
def editor(editor_daemon: EditorDaemon, tmp_path: Path) -> EditorSession:
    """A new session in `tmp_path`."""
    return editor_daemon.session(tmp_path)


@pytest.fixture(scope="module")
def plain_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EditorDaemon]:
    """One daemon without capabilities for the module."""
    with editor_host(tmp_path_factory.mktemp("plain"), prefix=without_capabilities()) as host:
        yield host


@pytest.fixture
def plain_editor(plain_daemon: EditorDaemon, tmp_path: Path) -> EditorSession:
    """A new session in `tmp_path`, whose daemon has no capabilities."""
    return plain_daemon.session(tmp_path)


@pytest.fixture
def configured_editor(tmp_path: Path) -> Iterator[Callable[..., EditorSession]]:
    """Starts a session of a daemon of its own, whose editor has the given configuration."""
    shipped = Path(__file__).parents[1] / "minimal.cordis.yml"

    def start(**config: object) -> EditorSession:
        entry = "  name: str-replace-editor\n"
        composition = tmp_path / "composition.cordis.yml"
        before, after = shipped.read_text().split(entry)
        composition.write_text(f"{before}{entry}  config: {json.dumps(config)}\n{after}")
        folder = tmp_path / "host"
        folder.mkdir()
        gap = "\t" if config.get("lineNumbers") == "tab" else "  "
        return stack.enter_context(editor_host(folder, composition, number_gap=gap)).session(tmp_path)

    with ExitStack() as stack:
        yield start

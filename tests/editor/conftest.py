from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cordisd.agent.arguments import parse_arguments
from cordisd.editor.commands import Editor
from cordisd.editor.local import LocalFiles
from cordisd.entries.str_replace_editor import StrReplaceEditorConfig, tool_schema
from cordisd.errors import ToolError

Run = Callable[..., str]
PARAMETERS = tool_schema(StrReplaceEditorConfig()).parameters


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs one command, as the model writes it, on real files and returns its text.

    `max_output` and `snippet` configure the editor.
    """

    def call(
        command: str, path: Path | str, *, max_output: int = 16_000, snippet: int = 0, **arguments: object
    ) -> str:
        editor = Editor(
            LocalFiles(), lambda: str(tmp_path), max_output_characters=max_output, n_snippet_lines=snippet
        )
        raw = json.dumps({"command": command, "path": str(path), **arguments})
        return asyncio.run(editor.run(parse_arguments(raw, PARAMETERS)))

    return call


@pytest.fixture
def refuse(run: Run) -> Run:
    """Runs one command that must fail, and returns the error's text, which is always short."""

    def call(command: str, path: Path | str, **arguments: object) -> str:
        with pytest.raises(ToolError) as caught:
            run(command, path, **arguments)
        text = str(caught.value)
        assert len(text.encode()) <= 2048
        assert "Errno" not in text
        return text

    return call


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that any user of the machine can reach, which pytest's own folders are not."""
    folder = Path(tempfile.mkdtemp(prefix="cordisd-editor-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def umask() -> Iterator[Callable[[int], int]]:
    """Sets the umask for one test."""
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)

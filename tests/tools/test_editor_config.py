"""The configuration of the editor, through the daemon."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from editor_calls import EditorSession

pytest_plugins = ["editor_fixtures"]

Start = Callable[..., EditorSession]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a"
    path.write_bytes(b"one\r\ntwo\r\n")
    return path


def test_by_default_the_model_is_shown_the_published_parameters(editor: EditorSession, path: Path) -> None:
    editor("view", path)
    tool = editor.tool()
    properties = tool["parameters"]["properties"]
    assert properties["command"]["enum"] == ["view", "create", "str_replace", "insert"]
    assert tool["parameters"]["required"] == ["command", "path"]
    assert "undo" not in json.dumps(tool)


def test_line_numbers_can_be_followed_by_a_tab(configured_editor: Start, path: Path) -> None:
    editor = configured_editor(lineNumbers="tab")
    assert editor("view", path).endswith(":\n     1\tone\n     2\ttwo\n")
    assert editor("str_replace", path, old_str="     1\tone", new_str="x").endswith(
        "Without the line numbers of the view it matches at line 1; leave them out."
    )
    assert editor("str_replace", path, old_str="one", new_str="1").endswith(
        "\nLines 1-2 are now:\n     1\t1\n     2\ttwo"
    )


def test_an_edit_can_be_answered_with_one_line(configured_editor: Start, path: Path) -> None:
    editor = configured_editor(snippetLines=0)
    assert editor("str_replace", path, old_str="one", new_str="1") == (
        f"The file {path} has been edited successfully."
    )
    assert path.read_bytes() == b"1\r\ntwo\r\n"


def test_the_size_of_a_view_can_be_chosen(configured_editor: Start, path: Path) -> None:
    path.write_text("x\n" * 100)
    assert configured_editor(maxOutputChars=50)("view", path).endswith(
        ":\n"
        + "".join(f"{n:6}  x\n" for n in range(1, 6))
        + "[The output limit of 50 characters is reached: lines 1-5 of 100 are shown. "
        + "Continue with view_range [6, 10].]\n"
    )


def test_with_undo_edit_the_model_can_take_edits_back(
    configured_editor: Start, path: Path, tmp_path: Path
) -> None:
    editor = configured_editor(undoEdit=True, snippetLines=1)
    editor("view", path)
    tool = editor.tool()
    assert tool["parameters"]["properties"]["command"]["enum"][-1] == "undo_edit"
    assert "`undo_edit` takes back the last edit" in tool["description"]
    new = tmp_path / "sub" / "new"
    editor("create", new, file_text="x\n")
    editor("str_replace", path, old_str="one", new_str="1")
    editor("insert", path, insert_line=2, new_str="three")
    assert path.read_bytes() == b"1\r\ntwo\r\nthree\r\n"
    undone = f"The last edit of {path} has been undone.\n"
    assert editor("undo_edit", path) == f"{undone}Lines 2-2 are now:\n     2  two"
    assert editor("undo_edit", path) == f"{undone}Lines 1-2 are now:\n     1  one\n     2  two"
    assert path.read_bytes() == b"one\r\ntwo\r\n"
    assert editor.refused("undo_edit", path) == (
        f"There is no edit of {path} by this tool left that could be undone."
    )
    assert editor("undo_edit", new) == f"The file {new} has been removed: that undoes its creation."
    assert not new.exists()


def test_an_undo_never_loses_what_somebody_else_wrote(configured_editor: Start, path: Path) -> None:
    editor = configured_editor(undoEdit=True)
    editor("str_replace", path, old_str="one", new_str="1")
    path.write_bytes(path.read_bytes() + b"theirs")
    assert editor.refused("undo_edit", path) == (
        f"{path} was changed by something else since your last edit of it, so `undo_edit` would lose that "
        f"change; nothing was undone. View the file and use `str_replace`."
    )
    assert path.read_bytes() == b"1\r\ntwo\r\ntheirs"

"""`undo_edit`: what was, comes back; what somebody else did, is not lost."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cordisd.editor import undo
from cordisd.editor.commands import Editor
from cordisd.editor.local import LocalFiles
from cordisd.editor.undo import UndoHistory
from cordisd.errors import ToolError

Session = Callable[..., str]


def new_session(snippet: int = 0) -> Session:
    editor = Editor(
        LocalFiles(),
        lambda: "/",
        max_output_characters=16_000,
        n_snippet_lines=snippet,
        history=UndoHistory(),
    )

    def call(command: str, path: Path, **arguments: object) -> str:
        return asyncio.run(editor.run({"command": command, "path": str(path), **arguments}))

    return call


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\nthree")
    return path


def test_edits_are_undone_byte_for_byte_newest_first(path: Path) -> None:
    session = new_session()
    contents = [path.read_bytes()]
    for edit in (
        {"command": "str_replace", "old_str": "one\ntwo", "new_str": "1\n2"},
        {"command": "insert", "insert_line": 3, "new_str": "end"},
        {"command": "str_replace", "old_str": "three"},
    ):
        session(**edit, path=path)
        contents.append(path.read_bytes())
    while len(contents) > 1:
        assert path.read_bytes() == contents.pop()
        assert session("undo_edit", path) == f"The last edit of {path} has been undone."
    assert path.read_bytes() == contents.pop()
    with pytest.raises(ToolError, match=r"no edit of .* left that could be undone"):
        session("undo_edit", path)


def test_an_undone_edit_shows_the_lines_that_are_back(path: Path) -> None:
    session = new_session(snippet=1)
    session("str_replace", path, old_str="two\n", new_str="")
    assert session("undo_edit", path).splitlines()[1:] == [
        "Lines 1-3 are now:",
        "     1  one",
        "     2  two",
        "     3  three",
    ]


def test_undoing_a_creation_removes_the_file_and_it_can_be_created_again(tmp_path: Path) -> None:
    session = new_session()
    path = tmp_path / "new"
    session("create", path, file_text="x")
    session("str_replace", path, old_str="x", new_str="y")
    session("undo_edit", path)
    assert session("undo_edit", path) == f"The file {path} has been removed: that undoes its creation."
    assert os.listdir(tmp_path) == []
    session("create", path, file_text="z")
    assert path.read_text() == "z"


def test_the_last_ten_edits_of_a_file_are_kept(path: Path, tmp_path: Path) -> None:
    session = new_session()
    other = tmp_path / "other"
    session("create", other, file_text="")
    for n in range(12):
        session("insert", path, insert_line=0, new_str=f"line {n}")
    for _ in range(10):
        session("undo_edit", path)
    assert path.read_bytes() == b"\xef\xbb\xbfline 1\nline 0\none\r\ntwo\nthree"
    with pytest.raises(ToolError, match="left"):
        session("undo_edit", path)
    session("undo_edit", other)
    assert not other.exists()


def test_equal_edits_are_undone_one_by_one(tmp_path: Path) -> None:
    session = new_session()
    path = tmp_path / "a"
    path.write_text("x")
    for old, new in ("xy", "yx", "xy", "yx", "xy"):
        session("str_replace", path, old_str=old, new_str=new)
    seen = []
    for _ in range(5):
        session("undo_edit", path)
        seen.append(path.read_text())
    assert seen == ["x", "y", "x", "y", "x"]


def test_a_change_by_something_else_is_never_undone(path: Path) -> None:
    session = new_session()
    session("str_replace", path, old_str="two", new_str="2")
    theirs = path.read_bytes() + b" and more"
    path.write_bytes(theirs)
    with pytest.raises(ToolError, match="changed by something else since your last edit"):
        session("undo_edit", path)
    assert path.read_bytes() == theirs


def test_a_created_file_that_something_else_changed_is_not_removed(tmp_path: Path) -> None:
    session = new_session()
    path = tmp_path / "new"
    session("create", path, file_text="x")
    path.write_text("theirs")
    with pytest.raises(ToolError, match="changed by something else"):
        session("undo_edit", path)
    assert path.read_text() == "theirs"


def test_a_file_that_is_gone_is_not_brought_back(path: Path) -> None:
    session = new_session()
    session("str_replace", path, old_str="two", new_str="2")
    path.unlink()
    with pytest.raises(ToolError, match="does not exist"):
        session("undo_edit", path)


def test_a_touched_file_is_still_undone(path: Path) -> None:
    session = new_session()
    before = path.read_bytes()
    session("str_replace", path, old_str="two", new_str="2")
    os.utime(path)
    path.chmod(0o600)
    session("undo_edit", path)
    assert path.read_bytes() == before


def test_another_session_has_another_history(path: Path) -> None:
    new_session()("str_replace", path, old_str="two", new_str="2")
    with pytest.raises(ToolError, match="no edit of"):
        new_session()("undo_edit", path)


def test_an_edit_by_a_link_is_undone_by_the_file_itself(path: Path) -> None:
    session = new_session()
    before = path.read_bytes()
    link = path.with_name("link")
    link.symlink_to(path)
    session("str_replace", link, old_str="two", new_str="2")
    session("undo_edit", path)
    assert path.read_bytes() == before
    assert link.is_symlink()


def test_edits_that_fail_or_change_nothing_are_not_in_the_history(path: Path) -> None:
    session = new_session()
    session("str_replace", path, old_str="two", new_str="two")
    with pytest.raises(ToolError, match="No match"):
        session("str_replace", path, old_str="four", new_str="4")
    with pytest.raises(ToolError, match="no edit of"):
        session("undo_edit", path)


def test_the_memory_of_the_history_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(undo, "_MAX_BYTES", 250_000)
    session = new_session()
    for name in "abc":
        (tmp_path / name).write_text("x" * 100_000)
        session("str_replace", tmp_path / name, old_str="x" * 100_000, new_str="y")
    session("undo_edit", tmp_path / "c")
    session("undo_edit", tmp_path / "b")
    with pytest.raises(ToolError, match="left"):
        session("undo_edit", tmp_path / "a")

"""What an edit leaves of a file besides its content, through the daemon, with and without capabilities."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from editor_calls import EditorSession

pytest_plugins = ["editor_fixtures"]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="files of another owner can only be made by root")
READ_ONLY = "[The file is marked read-only; it was changed all the same and keeps its mode.]"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a"
    path.write_text("old\n")
    return path


def edited(path: Path, note: str = "") -> str:
    return f"The file {path} has been edited successfully.\nLines 1-1 are now:\n     1  newer" + (
        f"\n{note}" if note else ""
    )


def edit(editor: EditorSession, path: Path) -> str:
    told = editor("str_replace", path, old_str="old", new_str="newer")
    if not told.startswith("Error"):
        assert path.read_text() == "newer\n"
    return told


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755, 0o640, 0o4755, 0o2755, 0o1644, 0o777])
def test_the_mode_stays(editor: EditorSession, path: Path, mode: int) -> None:
    path.chmod(mode)
    assert edit(editor, path) == edited(path)
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert os.listdir(path.parent) == ["a"]


def test_a_read_only_file_is_edited_and_mentioned(
    editor: EditorSession, plain_editor: EditorSession, path: Path
) -> None:
    for session in (editor, plain_editor):
        path.write_text("old\n")
        path.chmod(0o444)
        assert edit(session, path) == edited(path, READ_ONLY)
        assert stat.S_IMODE(path.stat().st_mode) == 0o444


@needs_root
@pytest.mark.parametrize("mode", [0o644, 0o6755])
def test_owner_and_group_stay(editor: EditorSession, path: Path, mode: int) -> None:
    os.chown(path, 1234, 2345)
    path.chmod(mode)
    assert edit(editor, path) == edited(path)
    status = path.stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (1234, 2345, mode)


@needs_root
def test_an_owner_that_cannot_be_given_away_stays_by_overwriting(
    plain_editor: EditorSession, path: Path
) -> None:
    os.chown(path, 1234, 2345)
    path.chmod(0o666)
    inode = path.stat().st_ino
    assert edit(plain_editor, path) == edited(path)
    status = path.stat()
    assert (status.st_uid, status.st_gid, status.st_ino) == (1234, 2345, inode)
    assert os.listdir(path.parent) == ["a"]


@needs_root
def test_the_unwritable_file_of_another_owner_is_refused(plain_editor: EditorSession, path: Path) -> None:
    os.chown(path, 1234, 2345)
    path.chmod(0o644)
    assert edit(plain_editor, path) == f"Error: Cannot edit {path}: permission denied."
    assert path.read_text() == "old\n"
    assert os.listdir(path.parent) == ["a"]


def test_a_writable_file_in_a_folder_that_is_not_is_overwritten(
    plain_editor: EditorSession, path: Path
) -> None:
    inode = path.stat().st_ino
    path.parent.chmod(0o555)
    try:
        assert edit(plain_editor, path) == edited(path)
    finally:
        path.parent.chmod(0o755)
    assert path.stat().st_ino == inode


def test_an_unreadable_file_is_refused(plain_editor: EditorSession, path: Path) -> None:
    path.chmod(0)
    for command, arguments in (
        ("str_replace", {"old_str": "a"}),
        ("insert", {"insert_line": 0, "new_str": "a"}),
    ):
        assert plain_editor.refused(command, path, **arguments) == f"Cannot edit {path}: permission denied."
    assert plain_editor.refused("view", path) == f"Cannot view {path}: permission denied."


@pytest.mark.parametrize("mode", [0o644, 0o4755])
def test_hard_links_and_the_mode_stay(editor: EditorSession, path: Path, mode: int) -> None:
    other = path.with_name("b")
    os.link(path, other)
    path.chmod(mode)
    assert edit(editor, path) == edited(path)
    assert other.read_text() == "newer\n"
    assert path.stat().st_ino == other.stat().st_ino
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert sorted(os.listdir(path.parent)) == ["a", "b"]


def test_a_setuid_file_that_is_overwritten_without_capabilities_keeps_its_mode(
    plain_editor: EditorSession, path: Path
) -> None:
    os.link(path, path.with_name("b"))
    path.chmod(0o4755)
    assert edit(plain_editor, path) == edited(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o4755


@pytest.mark.parametrize(("old", "new"), [("old", "o"), ("old", "old\nand longer"), ("old\n", "")])
def test_a_file_with_two_names_becomes_shorter_and_longer(
    editor: EditorSession, path: Path, old: str, new: str
) -> None:
    os.link(path, path.with_name("b"))
    path.write_text("begin old\nend")
    editor("str_replace", path, old_str=old, new_str=new)
    assert path.with_name("b").read_text() == "begin old\nend".replace(old, new)


def test_edits_by_both_names_of_a_file_are_all_kept(editor: EditorSession, path: Path) -> None:
    other = path.with_name("b")
    os.link(path, other)
    told = editor.in_one_step(
        *(
            {"command": "insert", "path": str((path, other)[n % 2]), "insert_line": 0, "new_str": f"line {n}"}
            for n in range(4)
        )
    )
    assert all("edited successfully" in answer for answer in told)
    assert path.read_text() == "line 3\nline 2\nline 1\nline 0\nold\n"


def test_symbolic_links_stay_and_their_target_is_edited(editor: EditorSession, path: Path) -> None:
    folder = path.parent / "folder"
    folder.mkdir()
    link = folder / "link"
    link.symlink_to("../second")
    (path.parent / "second").symlink_to(path)
    assert edit(editor, link) == edited(link)
    assert os.readlink(link) == "../second"
    assert os.readlink(path.parent / "second") == str(path)
    assert path.read_text() == "newer\n"
    assert os.listdir(folder) == ["link"]


def test_extended_attributes_stay(editor: EditorSession, path: Path) -> None:
    try:
        os.setxattr(path, "user.note", b"kept")
    except OSError:
        pytest.skip("the file system has no extended attributes")
    assert edit(editor, path) == edited(path)
    assert os.getxattr(path, "user.note") == b"kept"

"""New files, through the daemon: what is on disk, and that a failure leaves nothing."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from editor_calls import EditorSession

pytest_plugins = ["editor_fixtures"]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "a\n",
        "a",
        "\n",
        "a\r\nb\r\n",
        "a\rb",
        "\ufeffa\n",
        "日本 é\n",
        "😀",
        "$& \\1 `x` ${y}\n",
        "\x01\x1b\x7f",
    ],
)
def test_the_new_file_has_exactly_the_text(editor: EditorSession, tmp_path: Path, content: str) -> None:
    path = tmp_path / "a"
    assert editor("create", path, file_text=content) == f"New file created successfully at: {path}"
    assert path.read_bytes() == content.encode()
    assert os.listdir(tmp_path) == ["a"]


def test_the_mode_is_that_of_any_new_file_and_parents_are_made(editor: EditorSession, tmp_path: Path) -> None:
    umask = os.umask(0o022)
    os.umask(umask)  # that of the daemon, which was started by this process
    path = tmp_path / "a" / "b" / "c"
    assert editor("create", path, file_text="x") == f"New file created successfully at: {path}"
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o777 & ~umask


def test_nothing_that_exists_is_overwritten(editor: EditorSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "dangling").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    kinds = {
        "file": "a file",
        "folder": "a directory",
        "link": "a symbolic link",
        "dangling": "a symbolic link",
        "pipe": "a file",
    }
    for name, kind in kinds.items():
        assert editor.refused("create", tmp_path / name, file_text="new") == (
            f"{tmp_path}/{name} already exists ({kind}); `create` never overwrites. "
            f"Use `str_replace` or `insert` to change a file, or choose another path."
        )
    assert (tmp_path / "file").read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == sorted(kinds)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "`file_text` is required for the command `create`."),
        ({"file_text": None}, "`file_text` is required for the command `create`."),
        ({"file_text": 3}, 'invalid arguments: "file_text" must be a string'),
        (
            {"file_text": "a\0b"},
            "`file_text` contains a NUL character; the editor writes text only. Use bash for binary files.",
        ),
        (
            {"file_text": "ab\ud83d"},
            "`file_text` contains a lone surrogate (U+D83D at character 2), which UTF-8 cannot hold. "
            "Write the whole character.",
        ),
    ],
)
def test_what_no_text_file_holds_is_refused_and_leaves_no_parents(
    editor: EditorSession, tmp_path: Path, arguments: dict[str, object], told: str
) -> None:
    assert editor.refused("create", tmp_path / "sub" / "a", **arguments) == told
    assert os.listdir(tmp_path) == []


def test_two_creations_in_one_step_happen_in_order(editor: EditorSession, tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    first, second, third = editor.in_one_step(
        {"command": "create", "path": path, "file_text": "one\n"},
        {"command": "create", "path": path, "file_text": "two\n"},
        {"command": "str_replace", "path": path, "old_str": "one", "new_str": "1"},
    )
    assert first == f"New file created successfully at: {path}"
    assert second.startswith(f"Error: {path} already exists (a file)")
    assert third == f"The file {path} has been edited successfully.\nLines 1-1 are now:\n     1  1"
    assert Path(path).read_text() == "1\n"


def test_a_folder_that_is_not_writable_takes_no_new_file(plain_editor: EditorSession, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o555)
    for path in (folder / "a", folder / "sub" / "a"):
        assert plain_editor.refused("create", path, file_text="x") == (
            f"Cannot create {path}: permission denied."
        )
    assert os.listdir(folder) == []


def test_a_large_file_is_created_whole(editor: EditorSession, tmp_path: Path) -> None:
    path = tmp_path / "a"
    content = "0123456789\r\n" * 100_000
    assert editor("create", path, file_text=content) == f"New file created successfully at: {path}"
    assert path.read_bytes() == content.encode()
    assert os.listdir(tmp_path) == ["a"]

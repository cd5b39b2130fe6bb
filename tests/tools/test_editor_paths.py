"""Paths that a model may write, through the daemon: what it is told, and that nothing was made or changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from editor_calls import EditorSession

pytest_plugins = ["editor_fixtures"]

BLANK = "`path` must not be blank; give the absolute path of a file or directory."


def edits(path: Path | str) -> list[dict[str, object]]:
    return [
        {"command": "view", "path": path},
        {"command": "str_replace", "path": path, "old_str": "a", "new_str": "b"},
        {"command": "insert", "path": path, "insert_line": 0, "new_str": "b"},
    ]


@pytest.mark.parametrize("path", ["", " ", "\t\n"])
def test_a_blank_path_is_refused(editor: EditorSession, path: str) -> None:
    assert editor.refused("view", path) == BLANK
    assert editor.refused("create", path, file_text="x") == BLANK


@pytest.mark.parametrize("path", ["a/b", "./x", "../x", "file:///etc/passwd", " /etc/passwd", "*.py"])
def test_a_relative_path_to_nothing_suggests_a_slash(
    editor: EditorSession, tmp_path: Path, path: str
) -> None:
    told = f'The path "{path}" is not absolute; it must start with /. Did you mean "/{path}"?'
    assert editor.refused("view", path) == told
    assert editor.refused("create", path, file_text="x") == told
    assert os.listdir(tmp_path) == []


def test_a_relative_path_to_something_in_the_working_directory_suggests_that(
    editor: EditorSession, tmp_path: Path
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("a\n")
    for path in ("src/a.py", "./src/../src/a.py"):
        assert editor.refused("str_replace", path, old_str="a", new_str="b") == (
            f'The path "{path}" is not absolute; it must start with /. Did you mean "{tmp_path}/src/a.py"?'
        )
    assert (tmp_path / "src" / "a.py").read_text() == "a\n"


def test_a_tilde_is_not_expanded(editor: EditorSession) -> None:
    assert editor.refused("view", "~/.bashrc") == (
        'The path "~/.bashrc" is not absolute; it must start with / (~ is not expanded). '
        'Did you mean "/~/.bashrc"?'
    )


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/tmp/a\0b", "`path` contains a NUL character; no file name can."),
        ("/tmp/\ud83d", "`path` contains a lone surrogate; no file name can."),
    ],
)
def test_a_path_that_no_file_can_have_is_refused(editor: EditorSession, path: str, told: str) -> None:
    assert editor.refused("view", path) == told
    assert editor.refused("create", path, file_text="x") == told


def test_a_missing_file_is_named_with_the_name_that_is_like_it(editor: EditorSession, tmp_path: Path) -> None:
    (tmp_path / "settings.py").touch()
    path = f"{tmp_path}/setings.py"
    for arguments in edits(path):
        assert editor.refused(**arguments) == (
            f'The path {path} does not exist (did you mean "settings.py"?). '
            f"Give the path of an existing file or directory."
        )


def test_a_missing_parent_names_the_part_that_exists(editor: EditorSession, tmp_path: Path) -> None:
    path = f"{tmp_path}/no/such/file"
    for arguments in edits(path):
        assert editor.refused(**arguments) == (
            f"The path {path} does not exist; the part of it that exists is {tmp_path}."
        )


def test_a_path_through_a_file_names_that_file(editor: EditorSession, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\n")
    path = f"{tmp_path}/f/x/y"
    for arguments in edits(path):
        action = "view" if arguments["command"] == "view" else "edit"
        told = editor.refused(**arguments)
        assert told == f"Cannot {action} {path}: {tmp_path}/f is not a directory."
    assert editor.refused("create", path, file_text="") == (
        f"Cannot create {path}: {tmp_path}/f is not a directory."
    )
    assert (tmp_path / "f").read_text() == "a\n"


def test_a_slash_behind_a_file_is_an_error_and_behind_a_directory_is_not(
    editor: EditorSession, tmp_path: Path
) -> None:
    (tmp_path / "f").write_text("a\n")
    for arguments in edits(f"{tmp_path}/f/"):
        assert editor.refused(**arguments).endswith(f"{tmp_path}/f is not a directory.")
    assert editor("view", f"{tmp_path}/").endswith(f"\nd\t{tmp_path}\nf\t{tmp_path}/f\n")
    assert (tmp_path / "f").read_text() == "a\n"


def test_a_new_file_cannot_have_a_slash_behind_it(editor: EditorSession, tmp_path: Path) -> None:
    assert editor.refused("create", f"{tmp_path}/new/", file_text="x") == (
        f"{tmp_path}/new/ ends with a slash, so it names a directory; `create` makes files."
    )
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("length", [250, 255])
def test_the_longest_names_can_be_created_edited_and_viewed(
    editor: EditorSession, tmp_path: Path, length: int
) -> None:
    path = tmp_path / ("n" * length)
    assert editor("create", path, file_text="a\n") == f"New file created successfully at: {path}"
    assert "has been edited successfully" in editor("str_replace", path, old_str="a", new_str="b")
    assert editor("view", path).endswith(":\n     1  b\n")
    assert os.listdir(tmp_path) == ["n" * length]


@pytest.mark.parametrize("length", [256, 5000])
def test_a_name_that_is_too_long_is_a_short_error(editor: EditorSession, tmp_path: Path, length: int) -> None:
    path = f"{tmp_path}/sub/{'n' * length}"
    for command, arguments in (("create", {"file_text": "x"}), ("view", {})):
        told = editor.refused(command, path, **arguments)
        assert told.endswith(": the name is too long.") or "the part of it that exists is" in told
        assert len(told) < 400
    assert os.listdir(tmp_path) == []


def test_a_name_with_a_newline_is_a_name(editor: EditorSession, tmp_path: Path) -> None:
    path = tmp_path / "a\nb"
    assert editor("create", path, file_text="x\n") == f"New file created successfully at: {path}"
    assert path.read_text() == "x\n"
    assert editor("view", tmp_path).endswith(f"\nf\t{tmp_path}/a\\nb\n")
    assert editor.refused("view", f"{tmp_path}/c\nd").startswith(f"The path {tmp_path}/c\\nd does not exist")


def test_loops_and_dangling_links_are_named(editor: EditorSession, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nowhere")
    for arguments in edits(f"{tmp_path}/loop"):
        assert editor.refused(**arguments).endswith(f"{tmp_path}/loop: its symbolic links form a loop.")
    for arguments in edits(f"{tmp_path}/dangling"):
        assert editor.refused(**arguments) == (
            f"{tmp_path}/dangling is a symbolic link whose target does not exist."
        )
    assert not (tmp_path / "nowhere").exists()


def test_dots_are_resolved_as_the_shell_resolves_them(editor: EditorSession, tmp_path: Path) -> None:
    (tmp_path / "real" / "inner").mkdir(parents=True)
    (tmp_path / "real" / "x").write_text("right\n")
    (tmp_path / "x").write_text("wrong\n")
    (tmp_path / "link").symlink_to("real/inner")
    editor("str_replace", f"{tmp_path}//link/../x", old_str="right", new_str="edited")
    assert (tmp_path / "real" / "x").read_text() == "edited\n"
    assert (tmp_path / "x").read_text() == "wrong\n"


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null", "/dev/tty"])
def test_devices_are_not_opened(editor: EditorSession, device: str) -> None:
    for arguments in edits(device):
        assert editor.refused(**arguments) == (
            f"{device} is a device, neither a regular file nor a directory; it was not opened."
        )


def test_a_named_pipe_is_not_opened(editor: EditorSession, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for arguments in edits(str(pipe)):
        assert editor.refused(**arguments) == (
            f"{pipe} is a named pipe, neither a regular file nor a directory; it was not opened."
        )
    with pytest.raises(OSError, match="No such device"):  # nobody has it open for reading
        os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)


def test_a_directory_can_only_be_viewed(editor: EditorSession, tmp_path: Path) -> None:
    for arguments in edits(str(tmp_path))[1:]:
        assert editor.refused(**arguments) == f"{tmp_path} is a directory; only `view` works on directories."
    assert editor.refused("create", tmp_path, file_text="x") == (
        f"{tmp_path} already exists (a directory); `create` never overwrites. "
        f"Use `str_replace` or `insert` to change a file, or choose another path."
    )

"""Edits through the daemon: every byte outside the edit stays, and the model is told what is there now."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from editor_calls import EditorSession

pytest_plugins = ["editor_fixtures"]

NOT_A_LINE = "but {} has 2 lines; it must be in [0, 2] (0 inserts before the first line)."


def edited(path: Path, *rows: str) -> str:
    """The answer to an edit of `path` after which these lines, from the first on, are shown."""
    return "\n".join(
        [
            f"The file {path} has been edited successfully.",
            f"Lines 1-{len(rows)} are now:",
            *(f"{n:6}  {row}" for n, row in enumerate(rows, 1)),
        ]
    )


@pytest.mark.parametrize(
    ("before", "old", "new", "after", "rows"),
    [
        (
            b"all:\n\techo a\n\techo b\n",
            "echo a",
            "echo c",
            b"all:\n\techo c\n\techo b\n",
            ["all:", "\techo c", "\techo b"],
        ),
        (b"x\n", "x", "a$&b$$c\\1\\g<0>$`$'", b"a$&b$$c\\1\\g<0>$`$'\n", ["a$&b$$c\\1\\g<0>$`$'"]),
        (b"ascii\n", "ascii", "\u00fc", b"\xc3\xbc\n", ["\u00fc"]),
        ("e\u0301 \u00e9\n".encode(), "\u00e9", "x", "e\u0301 x\n".encode(), ["e\u0301 x"]),
        (b"plain\n", "plain", "text", b"text\n", ["text"]),
        (b"no newline", "no ", "", b"newline", ["newline"]),
        (b"a\n", "a\n", "a", b"a", ["a"]),
        (b"a\nb\nc", "b\n", "", b"a\nc", ["a", "c"]),
        (b"\xef\xbb\xbf\xc3\xa9=1\n", "1", "2", b"\xef\xbb\xbf\xc3\xa9=2\n", ["é=2"]),
        (b"\xef\xbb\xbfa\n", "a\n", "b\n", b"\xef\xbb\xbfb\n", ["b"]),
        (b"a\r\nb\r\nc\r\n", "a\nb", "x\ny", b"x\r\ny\r\nc\r\n", ["x", "y", "c"]),
        (b"a\r\nb\r\nc\r\n", "a\r\nb", "x\ny", b"x\r\ny\r\nc\r\n", ["x", "y", "c"]),
        (b"a\r\nb\r\nc", "c", "c\nd\n", b"a\r\nb\r\nc\r\nd\r\n", ["a", "b", "c", "d"]),
        (b"a\nb\r\nc\n", "c", "x\ny", b"a\nb\r\nx\ny\n", ["a", "b", "x", "y"]),
        (b"a\r\nb\nc\r\n", "b", "x\ny", b"a\r\nx\r\ny\nc\r\n", ["a", "x", "y", "c"]),
        (b"a\r\nb\nc\r\nd", "a\nb\nc\nd", "a\nb\nc\ne", b"a\r\nb\nc\r\ne", ["a", "b", "c", "e"]),
        (b"a\rb\n", "a\rb", "c\rd", b"c\rd\n", ["c\rd"]),
        (b"GET\n", "GET", "GET\r\nHost", b"GET\r\nHost\n", ["GET", "Host"]),
        (b"a\fb\x1b[0m\x7f\n", "b\x1b", "c\x1b", b"a\fc\x1b[0m\x7f\n", ["a\fc\x1b[0m\x7f"]),
    ],
)
def test_a_replacement_changes_nothing_else(
    editor: EditorSession, tmp_path: Path, before: bytes, old: str, new: str, after: bytes, rows: list[str]
) -> None:
    path = tmp_path / "a"
    path.write_bytes(before)
    assert editor("str_replace", path, old_str=old, new_str=new) == edited(path, *rows)
    assert path.read_bytes() == after


@pytest.mark.parametrize(
    ("before", "line", "new", "after", "rows"),
    [
        (b"a\nb\n", 0, "x", b"x\na\nb\n", ["x", "a", "b"]),
        (b"a\nb\n", 1, "x\n", b"a\nx\nb\n", ["a", "x", "b"]),
        (b"a\nb\n", 2, "x", b"a\nb\nx\n", ["a", "b", "x"]),
        (b"a\nb", 1, "x", b"a\nx\nb", ["a", "x", "b"]),
        (b"a\nb", 2, "x", b"a\nb\nx\n", ["a", "b", "x"]),
        (b"a\r\nb", 2, "x\ny", b"a\r\nb\r\nx\r\ny\r\n", ["a", "b", "x", "y"]),
        (b"a\r\nb\nc\r\n", 2, "x", b"a\r\nb\nx\r\nc\r\n", ["a", "b", "x", "c"]),
        (b"", 0, "x", b"x\n", ["x"]),
        (b"a\n", 1, "", b"a\n\n", ["a", ""]),
        (b"a\n", 1, "\n\n", b"a\n\n\n", ["a", "", ""]),
        (b"\xef\xbb\xbfa\n", 0, "x", b"\xef\xbb\xbfx\na\n", ["x", "a"]),
        (b"\xef\xbb\xbf", 0, "$&", b"\xef\xbb\xbf$&\n", ["$&"]),
        (b"a\rb\n", 1.0, "x", b"a\rb\nx\n", ["a\rb", "x"]),
    ],
)
def test_inserted_text_becomes_whole_lines(
    editor: EditorSession,
    tmp_path: Path,
    before: bytes,
    line: float,
    new: str,
    after: bytes,
    rows: list[str],
) -> None:
    path = tmp_path / "a"
    path.write_bytes(before)
    assert editor("insert", path, insert_line=line, new_str=new) == edited(path, *rows)
    assert path.read_bytes() == after


def test_insert_text_is_another_name_for_new_str(editor: EditorSession, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("a\n")
    told = editor("insert", path, insert_line=0, insert_text="x", new_str=None, old_str=None, extra=[1])
    assert told == edited(path, "x", "a")
    assert path.read_text() == "x\na\n"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            3,
            f"`insert_line` is 3, {NOT_A_LINE}",
        ),
        (
            -1,
            f"`insert_line` is -1, {NOT_A_LINE}",
        ),
        (1.5, 'invalid arguments: "insert_line" must be an integer'),
        ("1", 'invalid arguments: "insert_line" must be an integer'),
        (None, "`insert_line` is required for the command `insert`."),
    ],
)
def test_a_line_that_does_not_exist_is_refused_with_the_allowed_range(
    editor: EditorSession, tmp_path: Path, line: object, told: str
) -> None:
    path = tmp_path / "a"
    path.write_text("a\nb\n")
    assert editor.refused("insert", path, insert_line=line, new_str="x") == told.format(path)
    assert path.read_text() == "a\nb\n"


@pytest.mark.parametrize("new", [{}, {"new_str": None}, {"new_str": ""}])
def test_without_new_text_the_old_text_is_removed(
    editor: EditorSession, tmp_path: Path, new: dict[str, object]
) -> None:
    path = tmp_path / "a"
    path.write_text("abc")
    assert editor("str_replace", path, old_str="b", **new) == edited(path, "ac")
    assert path.read_text() == "ac"


def test_removing_everything_says_that_the_file_is_empty(editor: EditorSession, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("a\n")
    assert editor("str_replace", path, old_str="a\n") == (
        f"The file {path} has been edited successfully.\n[The file is empty now.]"
    )
    assert path.read_bytes() == b""


def test_equal_texts_succeed_say_so_and_write_nothing(editor: EditorSession, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("a\n")
    before = path.stat()
    assert editor("str_replace", path, old_str="a", new_str="a") == (
        f"The file {path} has been edited successfully.\n"
        f"[Nothing changed: the new text is the same as the old text.]"
    )
    after = path.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        ({"command": "str_replace"}, "`old_str` is required for the command `str_replace`."),
        ({"command": "str_replace", "old_str": None}, "`old_str` is required for the command `str_replace`."),
        (
            {"command": "str_replace", "old_str": ""},
            "`old_str` must not be empty. Use `insert` to add text, or `create` for a new file.",
        ),
        ({"command": "str_replace", "old_str": 3}, 'invalid arguments: "old_str" must be a string'),
        ({"command": "insert", "insert_line": 0}, "`new_str` is required for the command `insert`."),
        (
            {"command": "insert", "insert_line": 0, "insert_text": 3},
            "`insert_text` must be a string.",
        ),
        (
            {"command": "str_replace", "old_str": "a", "new_str": "\0"},
            "`new_str` contains a NUL character; the editor writes text only. Use bash for binary files.",
        ),
        (
            {"command": "str_replace", "old_str": "\udc80"},
            "`old_str` contains a lone surrogate (U+DC80 at character 0), which UTF-8 cannot hold. "
            "Write the whole character.",
        ),
        (
            {"command": "undo_edit"},
            'invalid arguments: "command" must be one of ["view","create","str_replace","insert"]',
        ),
        ({"command": None}, 'invalid arguments: "command" must be a string'),
    ],
)
def test_arguments_that_do_not_fit_are_named(
    editor: EditorSession, tmp_path: Path, raw: dict[str, object], told: str
) -> None:
    path = tmp_path / "a"
    path.write_text("a\n")
    assert editor.raw(json.dumps({"path": str(path), **raw})) == f"Error: {told}"
    assert path.read_text() == "a\n"


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        ("", 'invalid arguments: missing required property "command"; missing required property "path"'),
        ('{"command": "view", "path": "/tmp"', "not JSON"),
        ("[1]", 'invalid arguments: "arguments" must be an object'),
    ],
)
def test_arguments_that_are_no_object_are_refused(editor: EditorSession, raw: str, told: str) -> None:
    assert told in editor.raw(raw)


def test_edits_of_one_step_apply_in_order(editor: EditorSession, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("a\n")
    edit = {"command": "str_replace", "path": str(path)}
    assert editor.in_one_step(
        {**edit, "old_str": "a", "new_str": "b"},
        {**edit, "old_str": "b", "new_str": "c"},
        {**edit, "command": "insert", "insert_line": 1, "new_str": "d"},
        {**edit, "old_str": "c\nd", "new_str": "e"},
    ) == [edited(path, "b"), edited(path, "c"), edited(path, "c", "d"), edited(path, "e")]
    assert path.read_text() == "e\n"


def test_the_lines_around_an_edit_are_shown_with_their_numbers(editor: EditorSession, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("".join(f"l{n}\n" for n in range(1, 21)))
    assert editor("str_replace", path, old_str="l10\n", new_str="x\ny\n") == "\n".join(
        [
            f"The file {path} has been edited successfully.",
            "Lines 6-15 are now:",
            *(f"{n:6}  l{n}" for n in range(6, 10)),
            "    10  x",
            "    11  y",
            *(f"{n:6}  l{n - 1}" for n in range(12, 16)),
        ]
    )


def test_a_long_change_is_shown_in_part(editor: EditorSession, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("a\nb\n")
    told = editor("insert", path, insert_line=1, new_str="x" * 5000 + "\n" + "y\n" * 999)
    assert told.splitlines()[1:4] == [
        "Lines 1-1002 are now:",
        "     1  a",
        f"     2  {'x' * 500} [4500 more characters]",
    ]
    assert "        [974 more changed lines]" in told.splitlines()
    assert told.endswith("\n  1002  b")
    assert path.read_text() == "a\n" + "x" * 5000 + "\n" + "y\n" * 999 + "b\n"

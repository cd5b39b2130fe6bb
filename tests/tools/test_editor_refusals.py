"""Edits that cannot be made, through the daemon: short errors with the one hint that helps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from editor_calls import EditorSession

pytest_plugins = ["editor_fixtures"]

HAS_NUL = " (it contains NUL bytes); the editor handles UTF-8 text only. Use bash."


def not_unique(path: Path, n: int, lines: str, old: str) -> str:
    return (
        f"Not unique: `old_str` occurs {n} times in {path}, so nothing was changed. "
        f"It starts on {lines}. It was: {json.dumps(old, ensure_ascii=False)}\n"
        f"Add lines around it to `old_str` until it is unique."
    )


@pytest.mark.parametrize(
    ("content", "old", "n", "lines"),
    [
        (b"x\nx\n", "x", 2, "lines 1, 2"),
        (b"aaa", "aa", 2, "line 1"),
        (b"ab\nab\nab\n", "ab\nab", 2, "lines 1, 2"),
        (b"a\n" * 30, "a", 30, "lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …"),
        (b"a\r\nb\r\na\r\n", "a\n", 2, "lines 1, 3"),
        (b"x\n" * 2_000_000, "x", 2_000_000, "lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …"),
    ],
)
def test_text_that_is_not_unique_is_refused_with_its_lines(
    editor: EditorSession, tmp_path: Path, content: bytes, old: str, n: int, lines: str
) -> None:
    path = tmp_path / "a"
    path.write_bytes(content)
    assert editor.refused("str_replace", path, old_str=old, new_str="y") == not_unique(path, n, lines, old)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("content", "old", "hint"),
    [
        (
            "a\nb  \nc\n",
            "b\nc",
            "At line 2 the file differs only in blanks at the end of a line; copy them exactly.",
        ),
        (
            "a\nb\nc\n",
            "b \nc",
            "At line 2 the file differs only in blanks at the end of a line; copy them exactly.",
        ),
        (
            "a\n\tb\n",
            "    b",
            "At line 2 the file differs only in blanks (tabs, spaces, indentation); copy them exactly.",
        ),
        (
            "a\nb\n",
            "     1  a\n     2  b",
            "Without the line numbers of the view it matches at line 1; leave them out.",
        ),
        (
            "a\nb\n",
            "     2\tb\n",
            "Without the line numbers of the view it matches at line 2; leave them out.",
        ),
        ("a\nb\n", "a\r\nb", "With LF instead of CRLF line ends it matches at line 1."),
        ("x\nabc\n", "\n\nabc\n\n\n", "Without the blanks and empty lines around it, it matches at line 2."),
        (
            "a\nb\n",
            "a\\nb",
            'With its backslash escapes (\\n, \\t, \\") as real characters it matches at line 1.',
        ),
        ("x\nFoo\n", "foo", "At line 2 the file differs only in upper and lower case."),
        (
            "a\none\ntwo\nthree\n",
            "one\ntwo\nfour",
            "It starts like line 2 of the file, but line 4 is different; view that place.",
        ),
        ("a\n", "nothing like it", "View the file and copy the text from there."),
        ("e\u0301\n", "\u00e9", "View the file and copy the text from there."),
    ],
)
def test_text_that_does_not_occur_is_refused_with_the_provable_reason(
    editor: EditorSession, tmp_path: Path, content: str, old: str, hint: str
) -> None:
    path = tmp_path / "a"
    path.write_text(content)
    assert editor.refused("str_replace", path, old_str=old, new_str="y") == (
        f"No match: `old_str` does not occur in {path}, so nothing was changed. "
        f"It was: {json.dumps(old, ensure_ascii=False)}\n{hint}"
    )
    assert path.read_text() == content


def test_an_old_text_of_twenty_kilobytes_is_echoed_in_part(editor: EditorSession, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("a\n")
    assert editor.refused("str_replace", path, old_str="z" * 20_000, new_str="y") == (
        f"No match: `old_str` does not occur in {path}, so nothing was changed. "
        f'It was: "{"z" * 200}" … (20000 characters in all)\nView the file and copy the text from there.'
    )


@pytest.mark.parametrize("char", ["\x01", "😀", '"', "\\", "é"])
def test_the_longest_path_and_text_make_an_error_below_two_kilobytes(
    editor: EditorSession, tmp_path: Path, char: str
) -> None:
    path = tmp_path / ("😀" * 60) / ("😀" * 60) / ("😀" * 60)
    path.parent.mkdir(parents=True)
    path.write_text(f"{char}{'x' * 100}\n" * 100)
    assert "Not unique" in editor.refused("str_replace", path, old_str=char, new_str="y")
    for old in (char * 3000, char * 200):
        assert "No match" in editor.refused("str_replace", path, old_str=old, new_str="y")
    editor.refused("insert", path, insert_line=10**300, new_str="y")
    editor.refused("view", path, view_range=[10**300, 10**301])
    editor.refused("view", f"{path}/x/y")
    editor.refused("view", f"{path}-no")
    editor.refused("view", f"{path}"[1:])


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (
            b"x\0",
            "{} seems to be a binary file" + HAS_NUL,
        ),
        (
            b"x" * 9000 + b"\0",
            "{} seems to be a binary file" + HAS_NUL,
        ),
        (
            "x\n".encode("utf-16"),
            "{} seems to be UTF-16 text" + HAS_NUL,
        ),
        (
            b"ok\ncaf\xe9\n",
            "{} is not UTF-8 text (line 2 has the byte 0xE9); the editor handles UTF-8 text only. "
            "Use bash, for example iconv, to convert a copy.",
        ),
        (
            b"ok\xe2\x82",
            "{} is not UTF-8 text (line 1 has the byte 0xE2); the editor handles UTF-8 text only. "
            "Use bash, for example iconv, to convert a copy.",
        ),
    ],
)
def test_what_is_not_utf8_text_is_refused_and_left_alone(
    editor: EditorSession, tmp_path: Path, content: bytes, told: str
) -> None:
    path = tmp_path / "a"
    path.write_bytes(content)
    assert editor.refused("view", path) == told.format(path)
    assert editor.refused("str_replace", path, old_str="x", new_str="y") == told.format(path)
    assert editor.refused("insert", path, insert_line=0, new_str="y") == told.format(path)
    assert path.read_bytes() == content


def test_lines_before_the_bad_bytes_can_be_viewed(editor: EditorSession, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"ok\ncaf\xe9\n")
    assert editor("view", path, view_range=[1, 1]).endswith("[1, 1]:\n     1  ok\n")


def test_a_file_above_the_limit_is_not_edited(editor: EditorSession, tmp_path: Path) -> None:
    path = tmp_path / "a"
    with path.open("wb") as file:
        file.truncate(200_000_000)
    assert editor.refused("str_replace", path, old_str="x", new_str="y") == (
        f"{path} has 200000000 bytes; the editor changes files of up to 10000000 bytes. "
        f"Use bash, for example sed -i."
    )

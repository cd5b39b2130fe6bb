"""Views of files and directories, through the daemon."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from editor_calls import EditorSession

pytest_plugins = ["editor_fixtures"]


def header(path: Path, n_lines: int, view_range: str = "") -> str:
    suffix = f" with view_range={view_range}" if view_range else ""
    return f"Here's the content of {path} with line numbers (which has a total of {n_lines} lines){suffix}:\n"


@pytest.mark.parametrize(
    ("content", "n_lines", "rows"),
    [
        (b"", 0, "[The file is empty.]\n"),
        (b"\n", 1, "     1  \n"),
        (b"one\n\ttwo\n", 2, "     1  one\n     2  \ttwo\n"),
        (b"one\ntwo", 2, "     1  one\n     2  two\n"),
        (b"one\n\n\n", 3, "     1  one\n     2  \n     3  \n"),
        (b"a\r\nb\r\n", 2, "     1  a\n     2  b\n"),
        (b"a\r\nb\nc\r", 3, "     1  a\n     2  b\n     3  c\r\n"),
        (b"a\rb\r\n", 1, "     1  a\rb\n"),
        (b"a\fb\x1b[31m\n", 1, "     1  a\fb\x1b[31m\n"),
        ("\ufeffé=1\n".encode(), 1, "     1  é=1\n"),
        (b"\xef\xbb\xbf", 0, "[The file is empty.]\n"),
        ("a\u2028b\x85c\n".encode(), 1, "     1  a\u2028b\x85c\n"),
        ("😀\n".encode(), 1, "     1  😀\n"),
    ],
)
def test_the_rows_are_the_lines_of_the_file(
    editor: EditorSession, tmp_path: Path, content: bytes, n_lines: int, rows: str
) -> None:
    path = tmp_path / "a"
    path.write_bytes(content)
    assert editor("view", path) == header(path, n_lines) + rows
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("view_range", "shown", "rows"),
    [
        ([1, 1], "[1, 1]", "     1  l1\n"),
        ([2, 3], "[2, 3]", "     2  l2\n     3  l3\n"),
        ([3, -1], "[3, -1]", "     3  l3\n"),
        ([1.0, 2.0], "[1, 2]", "     1  l1\n     2  l2\n"),
        ([2, 999], "[2, 999]", "     2  l2\n     3  l3\n[view_range ends at 999, but the last line is 3.]\n"),
    ],
)
def test_a_range_shows_its_lines_and_is_cut_at_the_end_with_a_note(
    editor: EditorSession, tmp_path: Path, view_range: list[float], shown: str, rows: str
) -> None:
    path = tmp_path / "a"
    path.write_text("l1\nl2\nl3\n")
    assert editor("view", path, view_range=view_range) == header(path, 3, shown) + rows


@pytest.mark.parametrize(
    ("view_range", "told"),
    [
        ([0, 1], "Invalid `view_range` [0, 1]: lines are counted from 1."),
        ([-1, 1], "Invalid `view_range` [-1, 1]: lines are counted from 1."),
        ([4, -1], "Invalid `view_range` [4, -1]: {} has 3 lines, so the first number must be in [1, 3]."),
        ([4, 9], "Invalid `view_range` [4, 9]: {} has 3 lines, so the first number must be in [1, 3]."),
        ([3, 2], "Invalid `view_range` [3, 2]: last must be -1 or at least 3."),
        ([2, -2], "Invalid `view_range` [2, -2]: last must be -1 or at least 2."),
        ([1], "`view_range` must be two integers, [first, last]; -1 as last means the end of the file."),
        ([], "`view_range` must be two integers, [first, last]; -1 as last means the end of the file."),
        (
            [1, 2, 3],
            "`view_range` must be two integers, [first, last]; -1 as last means the end of the file.",
        ),
        ([1, 1.5], 'invalid arguments: "view_range[1]" must be an integer'),
        (["1", 2], 'invalid arguments: "view_range[0]" must be an integer'),
        ("1,2", 'invalid arguments: "view_range" must be an array'),
    ],
)
def test_a_range_that_does_not_fit_is_refused(
    editor: EditorSession, tmp_path: Path, view_range: object, told: str
) -> None:
    path = tmp_path / "a"
    path.write_text("l1\nl2\nl3\n")
    assert editor.refused("view", path, view_range=view_range) == told.format(path)


def test_a_null_range_is_no_range(editor: EditorSession, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("a\n")
    told = editor("view", path, view_range=None, file_text=None, old_str=None, insert_line=None, other=1)
    assert told == header(path, 1) + "     1  a\n"


def test_a_long_file_is_cut_between_lines_and_the_note_leads_through_all_of_it(
    editor: EditorSession, tmp_path: Path
) -> None:
    path = tmp_path / "a"
    path.write_text("".join(f"line {n}\n" for n in range(1, 2001)))
    first, *rows, note = editor("view", path).splitlines()
    assert first + "\n" == header(path, 2000)
    n_shown = len(rows)
    assert rows == [f"{n:6}  line {n}" for n in range(1, n_shown + 1)]
    assert sum(len(row) + 1 for row in rows) <= 16_000
    assert note == (
        f"[The output limit of 16000 characters is reached: lines 1-{n_shown} of 2000 are shown. "
        f"Continue with view_range [{n_shown + 1}, {2 * n_shown}].]"
    )
    while suggested := re.search(r"Continue with view_range \[(\d+), (\d+)\]", note):
        _, *more = editor(
            "view", path, view_range=[int(number) for number in suggested.groups()]
        ).splitlines()
        note = more[-1]
        rows += [row for row in more if not row.startswith("[")]
        if note == rows[-1] and len(rows) < 2000:  # what was suggested fitted; the model asks for the rest
            note = f"Continue with view_range [{len(rows) + 1}, 2000]"
    assert rows == [f"{n:6}  line {n}" for n in range(1, 2001)]


def test_a_line_longer_than_the_limit_is_cut_between_characters(
    editor: EditorSession, tmp_path: Path
) -> None:
    path = tmp_path / "a"
    path.write_text("😀" * 20_000 + "\nend\n")
    assert editor("view", path) == (
        header(path, 2)
        + "     1  "
        + "😀" * 15_991
        + "\n[Line 1 is longer than the output limit of 16000 characters and was cut. "
        + "Use bash, for example cut -c, to see the rest.]\n"
    )


def test_a_file_of_two_million_lines_is_counted_and_shown_at_its_end(
    editor: EditorSession, tmp_path: Path
) -> None:
    path = tmp_path / "a"
    path.write_text("x\n" * 2_000_000)
    assert editor("view", path, view_range=[1_999_999, -1]) == (
        header(path, 2_000_000, "[1999999, -1]") + "1999999  x\n2000000  x\n"
    )


def test_text_files_of_proc_are_shown_although_their_size_is_zero(editor: EditorSession) -> None:
    assert "\n     1  Name:\t" in editor("view", "/proc/self/status")


def test_a_range_is_no_answer_for_a_directory(editor: EditorSession, tmp_path: Path) -> None:
    assert editor.refused("view", tmp_path, view_range=[1, 2]) == (
        f"{tmp_path} is a directory; `view_range` is for files only."
    )


def listing(path: Path, *rows: str) -> str:
    return (
        f"Files and directories in {path}, up to two levels deep "
        f"(hidden items, node_modules and __pycache__ are left out):\n"
    ) + "".join(f"{row}\n" for row in rows)


def test_a_directory_is_listed_with_every_kind_of_entry_on_one_row(
    editor: EditorSession, tmp_path: Path
) -> None:
    for hidden in (".git", "node_modules", "__pycache__", "b/.cache"):
        (tmp_path / hidden).mkdir(parents=True)
    (tmp_path / "b" / "c" / "too-deep").mkdir(parents=True)
    (tmp_path / "b" / "f").touch()
    (tmp_path / "b" / "up").symlink_to(tmp_path)
    (tmp_path / "b-x").touch()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "file").symlink_to("b/f")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "two\nlines\t\x1b").touch()
    os.close(os.open(os.fsencode(tmp_path) + b"/z\xff", os.O_CREAT))
    assert editor("view", tmp_path) == listing(
        tmp_path,
        f"d\t{tmp_path}",
        f"d\t{tmp_path}/b",
        f"f\t{tmp_path}/b-x",
        f"d\t{tmp_path}/b/c",
        f"f\t{tmp_path}/b/f",
        f"d\t{tmp_path}/b/up",
        f"?\t{tmp_path}/dangling\t(link target does not exist)",
        f"f\t{tmp_path}/file",
        f"?\t{tmp_path}/loop\t(its symbolic links form a loop)",
        f"?\t{tmp_path}/pipe\t(named pipe)",
        f"f\t{tmp_path}/two\\nlines\\t\\x1b",
        f"f\t{tmp_path}/z\\xff",
    )


def test_an_empty_directory_is_one_row(editor: EditorSession, tmp_path: Path) -> None:
    assert editor("view", tmp_path) == listing(tmp_path, f"d\t{tmp_path}")


def test_a_huge_directory_is_cut_and_says_how_many_entries_are_left_out(
    editor: EditorSession, tmp_path: Path
) -> None:
    for n in range(3000):
        (tmp_path / f"f{n:04}").touch()
    *rows, note = editor("view", tmp_path).splitlines()[1:]
    assert rows == [f"d\t{tmp_path}", *(f"f\t{tmp_path}/f{n:04}" for n in range(len(rows) - 1))]
    assert sum(len(row) + 1 for row in rows) <= 16_000
    assert note == (f"[{3001 - len(rows)} entries are not shown; view a directory below, or use bash.]")


def test_an_unreadable_child_is_a_row_and_the_rest_is_shown(
    plain_editor: EditorSession, tmp_path: Path
) -> None:
    (tmp_path / "locked").mkdir(mode=0)
    (tmp_path / "open").touch()
    try:
        assert plain_editor("view", tmp_path) == listing(
            tmp_path,
            f"d\t{tmp_path}",
            f"?\t{tmp_path}/locked\t(directory cannot be read: permission denied)",
            f"f\t{tmp_path}/open",
        )
        assert plain_editor.refused("view", tmp_path / "locked") == (
            f"Cannot view {tmp_path}/locked: permission denied."
        )
        assert plain_editor.refused("view", tmp_path / "locked" / "x") == (
            f"Cannot view {tmp_path}/locked/x: permission denied."
        )
    finally:
        (tmp_path / "locked").chmod(0o700)

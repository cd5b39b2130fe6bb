from __future__ import annotations

from pathlib import Path

import pytest

EDITED = "The file {} has been edited successfully."


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"all:\n\techo a\n\techo b\n", "echo a", "echo c", b"all:\n\techo c\n\techo b\n"),
        (b"a b", " b", "", b"a"),
        (b"x\n", "x", "a$&b$$c\\1\\g<0>", b"a$&b$$c\\1\\g<0>\n"),
        (b"x\n", "x", "\u00fc", b"\xc3\xbc\n"),
        (b"a\n\nb", "a\n\nb", "c\n", b"c\n"),
        (b"\xef\xbb\xbf\xc3\xa9=1\n", "1", "2", b"\xef\xbb\xbf\xc3\xa9=2\n"),
        (b"\xef\xbb\xbfa\n", "a\n", "b\n", b"\xef\xbb\xbfb\n"),
        (b"plain\n", "plain", "text", b"text\n"),
        (b"a\r\nb\r\nc\r\n", "a\nb", "x\ny", b"x\r\ny\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "a\r\nb", "x\ny", b"x\r\ny\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "b\n", "", b"a\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "\nb", "\n", b"a\r\n\r\nc\r\n"),
        (b"a\nb\r\nc\n", "c", "x\ny", b"a\nb\r\nx\ny\n"),
        (b"a\r\nb\nc\r\n", "b", "x\ny", b"a\r\nx\r\ny\nc\r\n"),
        (b"a\r\nb\nc\r\nd", "a\nb\nc\nd", "a\nb\nc\ne", b"a\r\nb\nc\r\ne"),
        (b"a\r\nb\nc\r\nd\n", "a\nb\nc\nd", "e\nb\nc\nd", b"e\r\nb\nc\r\nd\n"),
        (b"a\r\nb\nc\r\nd\n", "a\nb\nc\n", "a\nx\ny\nb\nc\n", b"a\r\nx\ny\nb\nc\r\nd\n"),
        (b"a\rb\r\r\nc\r\n", "c", "d", b"a\rb\r\r\nd\r\n"),
        (b"a\rb", "a\rb", "c\rd", b"c\rd"),
        (b"GET\n", "GET", "GET\r\nHost", b"GET\r\nHost\n"),
        (b"a\n", "a\n", "a", b"a"),
        (b"a\fb\x1b[0m\n", "b\x1b", "c\x1b", b"a\fc\x1b[0m\n"),
    ],
)
def test_a_replacement_changes_nothing_else(
    run, tmp_path: Path, before: bytes, old: str, new: str, after: bytes
) -> None:
    path = tmp_path / "a"
    path.write_bytes(before)
    assert run("str_replace", path, old_str=old, new_str=new) == EDITED.format(path)
    assert path.read_bytes() == after


@pytest.mark.parametrize(
    ("before", "line", "new", "after"),
    [
        (b"a\nb\n", 0, "x", b"x\na\nb\n"),
        (b"a\nb\n", 1, "x\n", b"a\nx\nb\n"),
        (b"a\nb\n", 2, "x", b"a\nb\nx\n"),
        (b"a\nb", 1, "x", b"a\nx\nb"),
        (b"a\nb", 2, "x", b"a\nb\nx\n"),
        (b"a\r\nb", 2, "x\ny", b"a\r\nb\r\nx\r\ny\r\n"),
        (b"", 0, "x", b"x\n"),
        (b"", 0, "x\ny\n", b"x\ny\n"),
        (b"a\n", 1, "", b"a\n\n"),
        (b"a\n", 1, "\n", b"a\n\n"),
        (b"a\n", 1, "\n\n", b"a\n\n\n"),
        (b"\xef\xbb\xbfa\n", 0, "x", b"\xef\xbb\xbfx\na\n"),
        (b"\xef\xbb\xbf", 0, "x", b"\xef\xbb\xbfx\n"),
        (b"a\n", 1.0, "x", b"a\nx\n"),
        (b"a\rb\n", 1, "x", b"a\rb\nx\n"),
    ],
)
def test_inserted_text_becomes_whole_lines(
    run, tmp_path: Path, before: bytes, line, new: str, after: bytes
) -> None:
    path = tmp_path / "a"
    path.write_bytes(before)
    assert run("insert", path, insert_line=line, new_str=new) == EDITED.format(path)
    assert path.read_bytes() == after


def test_insert_text_is_another_name_for_new_str(run, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("a\n")
    run("insert", path, insert_line=0, insert_text="x", new_str=None)
    assert path.read_text() == "x\na\n"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (3, "[0, 2]"),
        (-1, "[0, 2]"),
        (10**4000, "[0, 2]"),
        (1.5, "must be an integer"),
        ("1", "must be an integer"),
        (True, "must be an integer"),
        (None, "required"),
    ],
)
def test_a_line_that_does_not_exist_is_refused_with_the_allowed_range(
    refuse, tmp_path: Path, line, words
) -> None:
    path = tmp_path / "a"
    path.write_text("a\nb\n")
    assert words in refuse("insert", path, insert_line=line, new_str="x")
    assert path.read_text() == "a\nb\n"


@pytest.mark.parametrize(
    ("before", "old", "words"),
    [
        ("x\nx\n", "x", "2 times in {}, so nothing was changed. It starts on lines 1, 2."),
        ("aaa", "aa", "2 times in {}, so nothing was changed. It starts on line 1."),
        (
            "a\n" * 30,
            "a",
            "30 times in {}, so nothing was changed. It starts on lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ….",
        ),
        ("a\r\nb\r\na\r\n", "a\n", "lines 1, 3."),
        ("a" * 30 + "\na", "a", "31 times in {}, so nothing was changed. It starts on lines 1, 2."),
    ],
)
def test_text_that_is_not_unique_is_refused_with_its_lines(
    refuse, tmp_path: Path, before: str, old: str, words: str
) -> None:
    path = tmp_path / "a"
    path.write_bytes(before.encode())
    assert words.format(path) in refuse("str_replace", path, old_str=old, new_str="y")
    assert path.read_bytes() == before.encode()


def test_a_long_text_that_overlaps_itself_is_counted_in_bounded_time(refuse, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("-" * 1_000_000)
    text = refuse("str_replace", path, old_str="-" * 500_000, new_str="")
    assert "occurs more than 40 times" in text
    assert "It starts on line 1, …." in text


@pytest.mark.parametrize("char", [" ", "\t", "a", "\\n"])
def test_a_long_run_of_one_character_is_searched_for_reasons_in_bounded_time(
    refuse, tmp_path: Path, char: str
) -> None:
    path = tmp_path / "a"
    path.write_text(f"{char * 1_000_000}x\n")
    assert "No match" in refuse("str_replace", path, old_str=f"{char * 1000}y", new_str="")


def test_two_million_matches_make_a_short_error_with_the_total(refuse, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("x\n" * 2_000_000)
    assert "2000000 times" in refuse("str_replace", path, old_str="x", new_str="y")


@pytest.mark.parametrize(
    ("before", "old", "words"),
    [
        ("a\nb  \nc\n", "b\nc", "line 2 the file differs only in blanks at the end"),
        ("a\n\tb\n", "    b", "line 2 the file differs only in blanks (tabs"),
        ("a\nb\n", "     1  a\n     2  b", "line numbers of the view it matches at line 1"),
        ("a\nb\n", "     2\tb\n", "line numbers of the view it matches at line 2"),
        ("a\nb\n", "a\r\nb", "LF instead of CRLF line ends it matches at line 1"),
        ("x\nabc\n", "\n\nabc\n\n\n", "empty lines around it, it matches at line 2"),
        ("a\nb\n", "a\\nb", "backslash escapes"),
        ("x\nFoo\n", "foo", "upper and lower case"),
        ("a\none\ntwo\nthree\n", "one\ntwo\nfour", "starts like line 2 of the file, but line 4 is different"),
        ("a\n", "nothing like it", "View the file"),
    ],
)
def test_text_that_does_not_occur_is_refused_with_the_provable_reason(
    refuse, tmp_path: Path, before: str, old: str, words: str
) -> None:
    path = tmp_path / "a"
    path.write_text(before)
    text = refuse("str_replace", path, old_str=old, new_str="y")
    assert words in text
    assert "No match" in text
    assert path.read_text() == before


def test_an_endless_old_str_is_echoed_in_part(refuse, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("a\n")
    text = refuse("str_replace", path, old_str="\x01😀" * 10_000, new_str="y")
    assert "20000 characters in all" in text


def test_equal_texts_succeed_and_say_that_nothing_changed(run, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("a\n")
    before = path.stat()
    first, note = run("str_replace", path, old_str="a", new_str="a").splitlines()
    assert first == EDITED.format(path)
    assert "Nothing changed" in note
    assert path.stat().st_mtime_ns == before.st_mtime_ns


@pytest.mark.parametrize("new", [{}, {"new_str": None}])
def test_without_new_str_the_text_is_removed(run, tmp_path: Path, new: dict[str, None]) -> None:
    path = tmp_path / "a"
    path.write_text("abc")
    run("str_replace", path, old_str="b", **new)
    assert path.read_text() == "ac"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"x\0", "binary"),
        (b"x" * 9000 + b"\0", "binary"),
        (b"caf\xe9 x\n", "line 1"),
        ("x".encode("utf-16"), "UTF-16"),
    ],
)
def test_what_is_not_utf8_text_is_left_alone(refuse, tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "a"
    path.write_bytes(content)
    assert words in refuse("str_replace", path, old_str="x", new_str="y")
    assert words in refuse("insert", path, insert_line=0, new_str="y")
    assert path.read_bytes() == content


def test_a_file_above_the_limit_is_not_edited(refuse, tmp_path: Path) -> None:
    path = tmp_path / "a"
    with path.open("wb") as file:
        file.truncate(200_000_000)
    assert "200000000 bytes" in refuse("str_replace", path, old_str="x", new_str="y")


def test_a_file_of_nearly_the_limit_is_edited(run, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"first\r\n" + b"0123456789\r\n" * 830_000)
    run("str_replace", path, old_str="first\n0", new_str="second\n0", snippet=4)
    assert path.read_bytes() == b"second\r\n" + b"0123456789\r\n" * 830_000


@pytest.mark.parametrize(
    ("content", "edit", "lines"),
    [
        ("".join(f"l{n}\n" for n in range(1, 21)), ("l10\n", "x\ny\n"), ["Lines 6-15", 6, "l6", 15, "l14"]),
        ("a\nb\n", ("a", "x"), ["Lines 1-2", 1, "x", 2, "b"]),
        ("a\nb", ("b", "x"), ["Lines 1-2", 1, "a", 2, "x"]),
        ("".join(f"l{n}\n" for n in range(1, 21)), ("l20\n", ""), ["Lines 16-19", 16, "l16", 19, "l19"]),
        ("\ufeffa\r\nb\r\n", ("a", "x"), ["Lines 1-2", 1, "x", 2, "b"]),
    ],
)
def test_an_edit_is_answered_with_the_numbered_lines_around_it(
    run, tmp_path: Path, content: str, edit: tuple[str, str], lines: list
) -> None:
    path = tmp_path / "a"
    path.write_bytes(content.encode())
    answer, title, *rows = run("str_replace", path, old_str=edit[0], new_str=edit[1], snippet=4).splitlines()
    assert answer == EDITED.format(path)
    assert title == f"{lines[0]} are now:"
    assert rows[0] == f"{lines[1]:6}  {lines[2]}"
    assert rows[-1] == f"{lines[3]:6}  {lines[4]}"


def test_a_long_change_is_shown_in_part(run, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("a\nb\n")
    text = run("insert", path, insert_line=1, new_str="x" * 5000 + "\n" + "y\n" * 999, snippet=4)
    assert "Lines 1-1002 are now" in text
    assert "974 more changed lines" in text
    assert "4500 more characters" in text
    assert text.endswith("  1002  b")
    assert len(text) < 2000


def test_removing_everything_leaves_an_empty_file(run, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("a\n")
    assert run("str_replace", path, old_str="a\n", snippet=4).splitlines()[1] == "[The file is empty now.]"
    assert path.read_bytes() == b""


@pytest.mark.parametrize(
    ("command", "arguments", "words"),
    [
        ("str_replace", {}, "`old_str` is required"),
        ("str_replace", {"old_str": None}, "`old_str` is required"),
        ("str_replace", {"old_str": ""}, "must not be empty"),
        ("insert", {"insert_line": 0}, "`new_str` is required"),
        ("insert", {"new_str": "x"}, "`insert_line` is required"),
        ("str_replace", {"old_str": "a", "new_str": "\0"}, "NUL"),
        ("str_replace", {"old_str": "a", "new_str": "x\ud83d"}, "U+D83D at character 1"),
        ("str_replace", {"old_str": 3}, '"old_str" must be a string'),
        ("insert", {"insert_line": 0, "insert_text": 3}, "`insert_text` must be a string"),
        ("undo_edit", {}, 'must be one of ["view","create","str_replace","insert"]'),
    ],
)
def test_arguments_that_do_not_fit_are_named(
    refuse, tmp_path: Path, command: str, arguments: dict[str, object], words: str
) -> None:
    path = tmp_path / "a"
    path.write_text("a\n")
    assert words in refuse(command, path, **arguments)
    assert path.read_text() == "a\n"


@pytest.mark.parametrize(
    "arguments",
    [{"command": "str_replace", "old_str": "a"}, {"command": "insert", "insert_line": 0, "new_str": "a"}],
)
def test_directories_and_devices_are_not_edited(refuse, tmp_path: Path, arguments: dict[str, object]) -> None:
    command = arguments.pop("command")
    assert "only `view`" in refuse(command, tmp_path, **arguments)
    assert "device" in refuse(command, "/dev/zero", **arguments)
    assert "does not exist" in refuse(command, tmp_path / "none", **arguments)


def test_a_relative_path_suggests_the_file_in_the_working_directory(refuse, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a").touch()
    assert f'"{tmp_path}/src/a"?' in refuse("view", "src/a")
    assert f'"{tmp_path}/src/a"?' in refuse("view", "./src/a")


@pytest.mark.parametrize("path", ["tmp/none", "file:///etc/passwd", " /etc/passwd", "~/x"])
def test_a_relative_path_to_nothing_suggests_a_slash(refuse, path: str) -> None:
    text = refuse("view", path)
    assert f'The path "{path}" is not absolute' in text
    assert f'"/{path}"?' in text


@pytest.mark.parametrize(
    ("path", "words"), [("", "blank"), ("  ", "blank"), ("/a\0b", "NUL"), ("/\ud83d", "surrogate")]
)
def test_a_path_that_no_file_can_have_is_refused(refuse, path: str, words: str) -> None:
    assert words in refuse("view", path)

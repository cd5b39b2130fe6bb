from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

HEADER = "Here's the content of {} with line numbers (which has a total of {} lines){}:\n"


def test_a_file_is_shown_with_a_header_and_numbered_lines(run, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("one\n\ttwo\n")
    assert run("view", path) == HEADER.format(path, 2, "") + "     1  one\n     2  \ttwo\n"


def test_a_file_without_final_newline_counts_its_last_line(run, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("one\ntwo")
    assert run("view", path) == HEADER.format(path, 2, "") + "     1  one\n     2  two\n"


def test_an_empty_file_has_no_lines(run, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.touch()
    assert run("view", path) == HEADER.format(path, 0, "") + "[The file is empty.]\n"


def test_only_lf_separates_lines(run, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes("a\rb\fc\u2028d\x85e\n".encode())
    assert run("view", path) == HEADER.format(path, 1, "") + "     1  a\rb\fc\u2028d\x85e\n"


def test_the_carriage_returns_of_crlf_are_not_shown(run, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"a\r\n\r\nb\r")
    assert run("view", path) == HEADER.format(path, 3, "") + "     1  a\n     2  \n     3  b\r\n"


def test_the_byte_order_mark_is_not_shown(run, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"\xef\xbb\xbfa\n")
    assert run("view", path).endswith(":\n     1  a\n")


@pytest.mark.parametrize(
    ("view_range", "shown"),
    [
        ([1, 1], "     1  l1\n"),
        ([2, 3], "     2  l2\n     3  l3\n"),
        ([4, -1], "     4  l4\n     5  l5\n"),
        ([5, 5], "     5  l5\n"),
        ([1.0, 2.0], "     1  l1\n     2  l2\n"),
    ],
)
def test_a_range_shows_its_lines_only(run, tmp_path: Path, view_range, shown: str) -> None:
    path = tmp_path / "a"
    path.write_text("".join(f"l{n}\n" for n in range(1, 6)))
    first, last = (int(number) for number in view_range)
    header = HEADER.format(path, 5, f" with view_range=[{first}, {last}]")
    assert run("view", path, view_range=view_range) == header + shown


def test_a_range_beyond_the_end_is_cut_with_a_note(run, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("a\nb\nc\n")
    text = run("view", path, view_range=[2, 999])
    assert text.endswith(":\n     2  b\n     3  c\n[view_range ends at 999, but the last line is 3.]\n")


@pytest.mark.parametrize(
    ("view_range", "words"),
    [
        ([0, 1], "counted from 1"),
        ([-1, 1], "counted from 1"),
        ([4, -1], "[1, 3]"),
        ([4, 9], "[1, 3]"),
        ([3, 2], "at least 3"),
        ([2, -2], "at least 2"),
        ([1], "two integers"),
        ([], "two integers"),
        ([1, 2, 3], "two integers"),
        ([1, 1.5], '"view_range[1]" must be an integer'),
        ([1, True], '"view_range[1]" must be an integer'),
        ([1, float("nan")], "not JSON"),
        ([1, float("inf")], "not JSON"),
        ([10**4000, -1], "[1, 3]"),
        ([-(10**4000), 1], "counted from 1"),
        ("1,2", '"view_range" must be an array'),
    ],
)
def test_a_range_that_does_not_fit_is_refused(refuse, tmp_path: Path, view_range, words: str) -> None:
    path = tmp_path / "a"
    path.write_text("a\nb\nc\n")
    assert words in refuse("view", path, view_range=view_range)


def test_long_output_is_cut_between_lines_and_says_how_to_go_on(run, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("".join(f"{n:03}\n" for n in range(1, 101)))
    header, *rows = run("view", path, max_output=120).splitlines()
    assert "total of 100 lines" in header
    assert rows[:-1] == [f"{n:6}  {n:03}" for n in range(1, 11)]
    assert "lines 1-10 of 100" in rows[-1]
    assert "[11, 20]" in rows[-1]


def test_the_range_that_a_cut_view_suggests_shows_the_next_lines(run, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("".join(f"{n:03}\n" for n in range(1, 26)))
    seen, view_range = [], [1, 25]
    while True:
        rows = run("view", path, max_output=120, view_range=view_range).splitlines()[1:]
        seen += [row[8:] for row in rows if not row.startswith("[")]
        if not rows[-1].startswith("["):
            break
        view_range = [len(seen) + 1, 25]
    assert seen == [f"{n:03}" for n in range(1, 26)]


def test_a_line_longer_than_the_limit_is_cut_inside_and_says_so(run, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("é" * 100_000 + "\nend\n")
    _, row, note = run("view", path, max_output=50).splitlines()
    assert row == "     1  " + "é" * 41
    assert "Line 1 is longer" in note


@pytest.mark.parametrize("char", ["😀", "é", "x"])
def test_a_cut_never_splits_a_character(run, tmp_path: Path, char: str) -> None:
    path = tmp_path / "a"
    path.write_text(char * 70_000)
    assert run("view", path, max_output=16_000).splitlines()[1] == "     1  " + char * (16_000 - 9)


def test_a_file_larger_than_memory_should_hold_is_counted_and_shown_in_part(run, tmp_path: Path) -> None:
    path = tmp_path / "a"
    with path.open("w") as file:
        for n in range(60):
            file.write(f"block {n}\n" + "x" * 999_990 + "\n")
    text = run("view", path, view_range=[119, 119])
    assert "total of 120 lines" in text
    assert text.endswith("\n   119  block 59\n")


def test_lines_are_counted_across_blocks(run, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("".join(f"line {n}\n" for n in range(1, 100_001)))
    text = run("view", path, view_range=[65_535, 65_537])
    assert text.splitlines()[1:] == [f"{n:6}  line {n}" for n in range(65_535, 65_538)]


@pytest.mark.parametrize("offset", [0, 9_000, 600_000])
def test_nul_anywhere_makes_a_file_binary(refuse, tmp_path: Path, offset: int) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * offset + b"\0" + b"x\n")
    assert "binary" in refuse("view", path)


def test_utf16_is_named(refuse, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("hello\n", encoding="utf-16")
    assert "UTF-16" in refuse("view", path)


def test_latin_1_is_refused_with_line_and_byte(refuse, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"ok\ncaf\xe9\n")
    text = refuse("view", path)
    assert "line 2" in text
    assert "0xE9" in text


def test_a_sequence_cut_by_the_end_of_the_file_is_not_utf8(refuse, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"ok\xe2\x82")
    assert "not UTF-8" in refuse("view", path)


def test_text_files_of_proc_are_shown_although_their_size_is_zero(run) -> None:
    assert "     1  Name:\t" in run("view", "/proc/self/status")


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null", "/dev/tty"])
def test_devices_are_not_opened(refuse, device: str) -> None:
    assert "device" in refuse("view", device)


def test_a_named_pipe_is_not_opened(refuse, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "named pipe" in refuse("view", tmp_path / "pipe")
    with pytest.raises(OSError, match="No such device"):  # nobody reads: the editor has not opened it either
        os.open(tmp_path / "pipe", os.O_WRONLY | os.O_NONBLOCK)


def test_a_socket_is_not_opened(refuse, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        assert "socket" in refuse("view", tmp_path / "s")


def test_a_missing_file_is_named_with_its_neighbour(refuse, tmp_path: Path) -> None:
    (tmp_path / "settings.py").touch()
    text = refuse("view", tmp_path / "setings.py")
    assert f"{tmp_path}/setings.py does not exist" in text
    assert '"settings.py"' in text


def test_a_missing_parent_names_the_part_that_exists(refuse, tmp_path: Path) -> None:
    assert refuse("view", tmp_path / "no" / "such" / "file").endswith(f"exists is {tmp_path}.")


def test_a_path_through_a_file_names_that_file(refuse, tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    assert f"{tmp_path}/f is not a directory" in refuse("view", tmp_path / "f" / "x" / "y")


def test_a_slash_after_a_file_is_an_error(refuse, tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    assert "not a directory" in refuse("view", f"{tmp_path}/f/")


def test_loops_and_dangling_links_are_named(refuse, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nowhere")
    assert "loop" in refuse("view", tmp_path / "loop").removeprefix(f"Cannot view {tmp_path}/loop")
    assert "target does not exist" in refuse("view", tmp_path / "dangling")


def test_a_name_that_is_too_long_is_a_short_error(refuse, tmp_path: Path) -> None:
    assert "too long" in refuse("view", tmp_path / ("n" * 5000))


def test_links_are_resolved_as_the_shell_resolves_them(run, tmp_path: Path) -> None:
    (tmp_path / "real" / "inner").mkdir(parents=True)
    (tmp_path / "real" / "x").write_text("right\n")
    (tmp_path / "x").write_text("wrong\n")
    (tmp_path / "link").symlink_to("real/inner")
    assert "right" in run("view", f"{tmp_path}/link/../x")

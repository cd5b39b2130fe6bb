"""The screen: what a person would see, whatever is printed, and however it is cut into pieces."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyte")

from cordisd.shell.screen import Picture, Screen
from measure import no_collection


def picture(*pieces: bytes, rows: int = 6, columns: int = 20, answers: list[bytes] | None = None) -> Picture:
    screen = Screen(rows, columns, (answers if answers is not None else []).append)
    for piece in pieces:
        screen.take(piece)
        while not screen.advance(1):
            pass
    return screen.picture()


def rows(*pieces: bytes, **size: int) -> list[str]:
    return picture(*pieces, **size).rows


def test_lines_the_cursor_and_a_prompt() -> None:
    shown = picture(b"one\r\ntwo\r\n>>> ")
    assert (shown.rows, shown.row, shown.column) == (["one", "two", ">>>"], 3, 5)
    assert (shown.n_rows, shown.n_columns) == (6, 20)


def test_rows_below_what_is_used_are_left_out() -> None:
    assert rows(b"\x1b[5;3Hx\x1b[2;1H") == ["", "", "", "", "  x"]
    assert rows(b"\x1b[5;3H") == [""] * 5


def test_text_wraps_scrolls_and_is_erased() -> None:
    assert rows(b"a" * 25) == ["a" * 20, "a" * 5]
    assert rows(b"".join(b"%d\r\n" % n for n in range(9))) == ["4", "5", "6", "7", "8", ""]
    assert rows(b"one two\r\x1b[3C\x1b[K!\x1b[1P\x1b[2@") == ["one!"]


def test_the_alternate_screen_leaves_the_main_one_as_it_was() -> None:
    assert rows(b"$ edit\r\n\x1b[?1049h\x1b[Hfull screen") == ["full screen"]
    assert rows(b"$ edit\r\n\x1b[?1049h\x1b[Hfull screen\x1b[?1049l$ ") == ["$ edit", "$"]


def test_wide_characters_marks_and_characters_without_a_width() -> None:
    assert rows("日本 e\u0301 ❤\ufe0f after \u200bit".encode()) == ["日本 é ❤ after it"]
    assert rows("日本\x1b[1;1Hx".encode()) == ["x 本"]
    shown = picture(("e" + "\u0301" * 100_000 + "!").encode())
    assert len(shown.rows[0]) < 20 and shown.rows[0].endswith("!")


@pytest.mark.parametrize(
    "garbage",
    [
        "\x1b[1;2;3;4;5;6A",
        "\x1b[?5C",
        "\x1b[" + "9" * 5000 + "m",
        "\x1b[>4;2m\x1b[=1u\x1b[!p\x1b[2 q\x1b[?1$p\x1b[1 2m",
        "\x1b]0;title\x07\x1b]8;;http://x\x1b\\\x1bPq#0\x1b\\\x1b_x\x1b\\",
        "\x1b(0\x1b)B\x1b#8\x1b%G\x1b=\x1b>\x1b[?3h\x1b[?5h\x1b[?3l\x1b[?5l",
        "\x1b[[A\x0e\x0f\x00\x7f\x05\x9b",
        "\x1b]never\n\x1b[H\x1b[2J",
        "\x1b\x1b[H\x1b[9;9r\x1b[3J\x1b[2J",
    ],
)
def test_sequences_that_mean_nothing_to_the_screen_are_not_shown(garbage: str) -> None:
    assert rows((garbage + "\rclean").encode())[0].lstrip() == "clean"


def test_a_sequence_may_come_in_pieces() -> None:
    whole = "a\x1b[31mb\x1b[2;3H日\x1b]0;t\x1b\\c\x1b[?1049hd\x1b[K".encode()
    assert rows(*(whole[n : n + 1] for n in range(len(whole)))) == rows(whole)


def test_queries_are_answered_with_the_place_where_they_stand() -> None:
    answers: list[bytes] = []
    picture(b"ab\x1b[6n\r\n\x1b[5nx\x1b[c", answers=answers)
    assert answers == [b"\x1b[1;3R", b"\x1b[0n", b"\x1b[?6c"]


_PIECES = st.lists(
    st.one_of(
        st.sampled_from([b"\r\n", b"\n", b"\r", b"\t", b"\b", b"\x1b[31m", b"\x1b[K", b"\x1b[m"]),
        st.sampled_from(
            [b"\x1b[3;4H", b"\x1b[2J", b"\x1b[2;4r", b"\x1b[r", b"\x1b[4h", b"\x1b[4l", b"\x1bM"]
        ),
        st.sampled_from([b"\x1b[?7l", b"\x1b[?7h", b"\x1b[?6h", b"\x1b[?6l", b"\x1b[?1049h", b"\x1b[?1049l"]),
        st.text("abc日é ", max_size=30).map(str.encode),
        st.integers(0, 60).map(lambda n: b"".join(b"line %d\r\n" % m for m in range(n))),
        st.integers(0, 900).map(lambda n: b"0123456789"[: n % 10] + b"abcdefghij" * (n // 10)),
    ),
    max_size=12,
)


@settings(max_examples=300, deadline=None)
@given(_PIECES)
def test_what_is_not_drawn_because_it_scrolls_away_makes_no_difference(pieces: list[bytes]) -> None:
    import cordisd.shell.screen as module

    expected = picture(b"".join(pieces))
    worth = module._WORTH_SKIPPING_CHARS
    module._WORTH_SKIPPING_CHARS = 0
    try:
        assert picture(b"".join(pieces)) == expected
    finally:
        module._WORTH_SKIPPING_CHARS = worth


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400), st.integers(1, 40))
def test_no_bytes_break_it(data: bytes, size: int) -> None:
    shown = picture(*(data[n : n + size] for n in range(0, len(data), size)))
    assert len(shown.rows) <= 6
    assert 1 <= shown.row <= 6 and 1 <= shown.column <= 20


@pytest.mark.parametrize("flood", [b"y\r\n" * 20_000, b"\x1b[32mgreen\x1b[m\x1b[K\r\n" * 4000, b"x" * 64_000])
def test_a_flood_of_lines_is_mostly_not_drawn(flood: bytes) -> None:
    screen = Screen(40, 160, lambda reply: None)
    drawn = 0

    def count(token: object) -> None:
        nonlocal drawn
        drawn += 1
        draw(token)  # type: ignore[arg-type]

    draw, screen._draw = screen._draw, count  # type: ignore[method-assign]
    screen.take(flood)
    while not screen.advance(1):
        pass
    assert drawn < 500


def test_drawing_goes_on_where_it_was_when_its_time_was_up() -> None:
    data = b"\x1b[5;1Hab\x1b[3;2Hcd" * 3000
    screen = Screen(6, 20, lambda reply: None)
    screen.take(data)
    n_turns = 1
    while not screen.advance(0.001):
        n_turns += 1
    assert n_turns > 2
    assert screen.picture().rows == ["", "", " cd", "", "ab"]


FILLED = b"\x1b[H" + b"x" * 6400
WORST = {
    "lines": FILLED + b"\x1b[2J\x1b[9999L" * 200,
    "alignment": FILLED + b"\x1b#8\x1b[?5h" * 200,
    "marks": FILLED + ("e" + "\u0301" * 50).encode() * 200,
    "characters": FILLED + b"\x1b[9999@" * 200,
    "reset": FILLED + b"\x1bc" * 200,
    "text": "é".encode() * 100_000,
}


@pytest.mark.parametrize("worst", WORST)
def test_a_turn_of_drawing_is_short_whatever_is_drawn(worst: str) -> None:
    """A turn looks at the clock after each piece it draws, and no piece is dear."""

    def turns_s() -> list[float]:
        screen = Screen(40, 160, lambda reply: None)
        screen.take(WORST[worst])
        n_drawn, costs_s, done = 0, [], False

        def count(token: re.Match[str]) -> None:
            nonlocal n_drawn
            n_drawn += 1
            draw(token)

        draw, screen._draw = screen._draw, count  # type: ignore[method-assign]
        while not done:
            began_s = time.process_time()
            done = screen.advance(0)
            costs_s.append(time.process_time() - began_s)
            assert n_drawn <= len(costs_s), "more than one piece in no time"
        return costs_s

    with no_collection():
        attempts = [turns_s() for _ in range(3)]
    # The pieces are the same each time, and what is dear by itself is so every time.
    assert max(map(min, zip(*attempts, strict=True))) < 0.02  # usual 0.001; the text in one piece 0.15

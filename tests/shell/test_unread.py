"""What is unread, and the search for a pattern in it."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

pytest.importorskip("re2")

from cordisd.errors import ToolError
from cordisd.shell.unread import KEPT_CHARS, Unread, compiled


def found(pattern: str, *pieces: bytes) -> str | None:
    """The text up to the match, looked for while the pieces come; None if it is not found."""
    unread = Unread()
    unread.look_for(compiled(pattern))
    for piece in (*pieces, b""):
        unread.take(piece)
        while not unread.searched:
            if unread.search(1):
                return text(unread)
    return None


def text(unread: Unread) -> str:
    capture = unread.consume()
    assert capture.complete
    return (capture.head() + capture.tail()).decode()


def test_text_is_free_of_escape_sequences_and_carriage_returns() -> None:
    unread = Unread()
    unread.take(b"\x1b[31m>>> \x1b[m\x1b[?2004h1\a+1\r\r\n2\r\n\xff\xc3\xa9\x1b]0;t\x07")
    assert text(unread) == ">>> 1+1\n2\n\ufffdé"


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from([bytes([byte]) for byte in b"a\r\n\x1b[1m];\x07\\P\xc3\xa9\xff\x9b\x9d\x90\x9c"]),
        max_size=40,
    )
)
@example([b"\x9d", b"\x90", b"\x07", b"a"])
@example([b"\x1bP", b"\n", b"\x1b\\"])
@example([b"\x1b[1", b"\x1b", b"]", b"\x1b", b"\\", b"a"])
def test_it_makes_no_difference_how_output_is_cut_into_pieces(pieces: list[bytes]) -> None:
    whole, cut = Unread(), Unread()
    whole.take(b"".join(pieces), final=True)
    for piece in pieces:
        cut.take(piece)
    cut.take(b"", final=True)
    assert text(whole) == text(cut)


def test_a_match_ends_what_is_read_and_the_rest_stays() -> None:
    unread = Unread()
    unread.take(b"one two three")
    unread.look_for(compiled("two"))
    assert unread.search(1) and text(unread) == "one two"
    unread.look_for(compiled("two"))
    assert not unread.search(1) and unread.searched
    assert text(unread) == " three"
    assert not unread.has_text


def test_a_search_given_up_loses_nothing() -> None:
    unread = Unread()
    unread.take(b"one two ")
    unread.look_for(compiled("three"))
    assert not unread.search(1)
    unread.take(b"three")
    unread.look_for(compiled("two"))
    assert unread.search(1)
    unread.look_for(None)
    assert text(unread) == "one two three"


def test_what_is_skipped_is_read_but_not_searched() -> None:
    unread = Unread()
    unread.take(b"hello\n>>> ")
    unread.skip()
    unread.look_for(compiled(">>> $"))
    assert not unread.search(1)
    unread.take(b"1\r\n1\r\n>>> more")
    assert not unread.search(1)
    unread.look_for(compiled(">>> "))
    assert unread.search(1) and text(unread) == "hello\n>>> 1\n1\n>>> "


def test_a_line_begins_only_where_one_does() -> None:
    unread = Unread()
    unread.take(b">>> ")
    assert text(unread) == ">>> "
    unread.take(b"typed\r\n")
    unread.look_for(compiled("^typed"))
    assert not unread.search(1)
    unread.skip()
    unread.take(b"typed")
    unread.look_for(compiled("^typed"))
    assert unread.search(1) and text(unread) == "typed\ntyped"


@pytest.mark.parametrize(
    ("pattern", "pieces", "until"),
    [
        (">>> $", [b">>> 1\r\n", b"1\r\n>", b">> "], ">>> 1\n1\n>>> "),
        ("^b", [b"ab\r", b"\nb"], "ab\nb"),
        ("^cat$", [b"fg\r\n\x1b[?2004l\r", b"cat\r\n"], "fg\n\rcat"),
        ("^100%", [b" 50%\r100%"], " 50%\r100%"),
        ("pass(word|phrase): ", [b"pass", b"phra", b"se: "], "passphrase: "),
        ("[Pp]ass", [b"\x1b[1mP\x1b[0mass"], "Pass"),
        ("$", [b"abc"], "abc"),
        ("é", ["aé".encode()[:2], "aé".encode()[2:], b"b"], "aé"),
        ("(?i)READY", [b"it is ready!"], "it is ready"),
    ],
)
def test_a_pattern_is_found_over_the_borders_of_pieces(pattern: str, pieces: list[bytes], until: str) -> None:
    assert found(pattern, *pieces) == until


def test_the_beginning_of_a_line_is_not_found_where_old_text_was_dropped() -> None:
    pieces = [b"x" * 5000 + b"foo" + b"y" * 5000 for _ in range(6)]
    assert found("^(foo|y)", *pieces) is None
    assert found("^x", *pieces, b"\r\nx") is not None


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 20_000), st.integers(1, 7000), st.sampled_from([b"x", b"x\r\n", b"xy "]))
def test_a_match_of_some_length_is_found_wherever_it_is(n_before: int, size: int, filler: bytes) -> None:
    data = (filler * n_before)[:n_before] + b"<start" + b"." * 2000 + b"end>" + filler * 100
    pieces = [data[n : n + size] for n in range(0, len(data), size)]
    until = found("<start[.]*end>", *pieces)
    assert until is not None and until.endswith("end>")


def test_memory_is_bounded_and_what_was_dropped_is_counted() -> None:
    unread = Unread()
    for _ in range(100):
        unread.take(b"0123456789abcde\n" * 4096)
    assert len(unread._recent) <= 2 * KEPT_CHARS
    capture = unread.consume()
    assert not capture.complete
    assert (capture.n_bytes, capture.n_lines) == (100 * 65536, 100 * 4096)
    unread.look_for(compiled("never"))
    for _ in range(50):
        unread.take(b"0123456789abcde\n" * 4096)
        while not unread.searched:
            assert not unread.search(1)
    assert unread._buffer._before.tell() < 4 * KEPT_CHARS
    assert len(unread._buffer.buffer) < KEPT_CHARS
    for endless in (b"\r", b"\x1b]", b"\x1b[1;", b"\xc3"):
        for _ in range(20):
            unread.take(endless * 65536)
        assert len(unread._held) + len(unread._return) < KEPT_CHARS


def test_what_is_too_old_is_shown_but_not_found() -> None:
    unread = Unread()
    unread.take(b"needle\n")
    for _ in range(3):
        unread.take(b"hay\n" * 16384)
    unread.look_for(compiled("needle"))
    while not unread.searched:
        assert not unread.search(1)
    assert unread.consume().head().startswith(b"needle\nhay\n")


@pytest.mark.parametrize(
    "pattern", ["(", "[", "x{3,1}", r"\1", "(?=x)", "a" * 1001, r"\w{999}", "(a{500}){500}", "\ud800"]
)
def test_a_bad_pattern_is_an_error_for_the_model(pattern: str) -> None:
    with pytest.raises(ToolError, match="pattern"):
        compiled(pattern)


@pytest.mark.parametrize(
    "pattern", ["(a+)+$b", "(a|aa)+b", "(.*)*(.*)*y", "(a?){90}a{90}b", r"([a-z]{1,9}){40}9"]
)
def test_a_pattern_that_would_explode_elsewhere_is_just_not_found(pattern: str) -> None:
    assert found(pattern, b"a" * 100_000) is None

"""Lines come out whole, whatever the pieces that they come in."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordisd_sdk.frames import FrameTooLongError, LineSplitter


@given(st.binary(max_size=200).map(lambda b: b.replace(b"a", b"\n")), st.lists(st.integers(0, 200)))
def test_any_cutting_gives_the_same_lines(stream: bytes, cuts: list[int]) -> None:
    bounds = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    splitter = LineSplitter(1000)
    lines: list[bytes] = []
    for start, end in itertools.pairwise(bounds):
        lines += splitter.feed(stream[start:end])
    assert lines == stream.split(b"\n")[:-1]


@given(st.lists(st.integers(1, 7), min_size=1))
def test_a_line_is_too_long_from_its_first_byte_over_the_limit(sizes: list[int]) -> None:
    splitter = LineSplitter(20)
    n_bytes = 0
    for size in sizes:
        n_bytes += size
        if n_bytes > 20:
            with pytest.raises(FrameTooLongError, match="more than 20 bytes"):
                splitter.feed(b"x" * size)
            return
        assert splitter.feed(b"x" * size) == []
    assert splitter.feed(b"\n") == [b"x" * n_bytes]


def test_a_long_line_among_short_ones_in_one_piece_is_found() -> None:
    with pytest.raises(FrameTooLongError):
        LineSplitter(3).feed(b"a\nbbbb\nc\n")

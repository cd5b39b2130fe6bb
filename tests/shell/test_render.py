"""Rendering and bounded capture, over arbitrary bytes."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordisd.shell.driver import Token
from cordisd.shell.exchange import Ending, Exchange, background_capture
from cordisd.shell.output import Capture
from cordisd.shell.render import render, render_tail
from cordisd.shell.report import shown_output
from measure import least_cpu_s

PIECES = st.lists(st.binary(max_size=40), max_size=40)
TERMINAL = st.lists(
    st.sampled_from(
        [
            b"\x1b",
            b"[",
            b"]",
            b"P",
            b"\\",
            b"\x07",
            b"\r",
            b"\n",
            b"\b",
            b"a",
            b"\x9b",
            b"\x90",
            "é".encode(),
            b"3m",
        ]
    ),
    max_size=60,
).map(b"".join)


@given(PIECES, st.integers(0, 50), st.integers(1, 50))
def test_a_capture_keeps_the_true_head_and_tail(pieces: list[bytes], head_bytes: int, tail_bytes: int):
    capture = Capture(head_bytes, tail_bytes)
    for piece in pieces:
        capture.append(piece)
    whole = b"".join(pieces)
    assert capture.n_bytes == len(whole) and capture.n_lines == whole.count(b"\n")
    assert whole.startswith(capture.head()) and whole.endswith(capture.tail())
    if capture.complete:
        assert capture.head() + capture.tail() == whole
    else:
        assert len(capture.head()) == head_bytes and len(capture.tail()) == tail_bytes


@given(st.one_of(TERMINAL, st.binary(max_size=200)))
def test_rendered_text_holds_no_control_character(raw: bytes):
    for text in (render(raw), render_tail(raw)):
        assert not any(
            (ord(c) < 32 and c not in "\t\n") or c == "\x7f" or 0xD800 <= ord(c) < 0xE000 for c in text
        )


@given(st.text(st.characters(min_codepoint=32, exclude_characters="\x7f", exclude_categories=("Cs", "Cc"))))
def test_plain_text_is_rendered_as_it_is(text: str):
    assert render(text.encode()) == text


@pytest.mark.parametrize(
    "unit",
    [b"\x1b", b"\x1b[", b"\x1b]", b"\x1bP", b"\x90\n", b"\x9d", b"a\r", b"a\b", b"\b", b"\x1b[;", b"\xe2"],
)
def test_rendering_takes_linear_time(unit: bytes):
    assert least_cpu_s(lambda: render(unit * (192_000 // len(unit))), 0.5) < 0.5


@given(st.binary(max_size=300), st.integers(1, 40))
def test_what_is_shown_has_the_asked_length(raw: bytes, max_chars: int):
    capture = Capture(60, 60)
    capture.append(raw)
    text, truncated = shown_output(capture, max_chars, "headTail")
    assert len(text) <= max_chars + 90
    if not truncated:
        assert text == render(raw).removesuffix("\n")


@given(
    st.binary(max_size=60),
    st.binary(max_size=60),
    st.binary(max_size=60),
    st.lists(st.integers(0, 300), max_size=12),
    st.booleans(),
)
def test_bytes_are_sorted_by_the_marks_wherever_reads_are_cut(
    before: bytes, output: bytes, after: bytes, cuts: list[int], traced: bool
):
    async def main() -> None:
        token = Token()
        stream = (
            before
            + token.marks[0]
            + b"+ trace\n"
            + token.marks[1]
            + output
            + token.marks[2]
            + b"D\n"
            + token.marks[3]
        )
        stream += after
        exchange = Exchange(token, asyncio.get_running_loop(), traced=traced)
        background = background_capture()
        edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
        for start, end in pairwise(edges):
            background = exchange.take(stream[start:end], background)
        exchange.finish(Ending.FINISHED, background)
        earlier = exchange.earlier
        trace = (b"", b"") if traced else (b"+ trace\n", b"D\n")
        assert (earlier.head() + earlier.tail() if earlier else b"") == before + trace[0]
        assert exchange.capture.head() + exchange.capture.tail() == output
        assert background.head() + background.tail() == trace[1] + after
        assert exchange.begun and exchange.n_marks == 1

    asyncio.run(main())

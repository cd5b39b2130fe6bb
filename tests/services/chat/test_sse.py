"""The event parser: the grammar of server-sent events, in any pieces."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordisd.services.chat.sse import EventParser, ServerEvent
from measure import least_cpu_s


def parse(*pieces: bytes) -> list[ServerEvent]:
    parser = EventParser(1 << 20)
    return [event for piece in pieces for event in parser.feed(piece)] + parser.finish()


def reference(stream: bytes) -> list[ServerEvent]:
    """The grammar, written down naively over the whole stream."""
    text = stream.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    events: list[ServerEvent] = []
    for block in text.split(b"\n\n"):
        name, data = "", []
        for line in block.split(b"\n"):
            field, _, value = line.partition(b":")
            value = value[1:] if value[:1] == b" " else value
            if field == b"data":
                data.append(value)
            elif field == b"event":
                name = value.decode("utf-8", "replace")
        if joined := b"\n".join(data):
            events.append((name, joined))
    return events


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b": ping\n\ndata: a\n\n", [("", b"a")]),
        (b"data:a\n\n", [("", b"a")]),
        (b"data:  a\n\n", [("", b" a")]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [("", b"a"), ("", b"b")]),
        (b"data: a\r\rdata: b\r\r", [("", b"a"), ("", b"b")]),
        (b"data: a\ndata: b\n\n", [("", b"a\nb")]),
        (b"data\ndata: b\n\n", [("", b"\nb")]),
        (b"event: ping\nid: 3\nretry: 5\ndata: {}\n\ndata: x\n\n", [("ping", b"{}"), ("", b"x")]),
        (b"event: ping\n\ndata: x\n\n", [("", b"x")]),
        (b"\xef\xbb\xbfdata: a\n\n", [("", b"a")]),
        (b"data:\n\ndata\n\n\n\n", []),
        (b"datas: a\nnonsense\n\n", []),
        (b"data: a", [("", b"a")]),
        (b"data: a\x00\xff\n\n", [("", b"a\x00\xff")]),
        (b"data: a\xe2\x80\xa8b\x0c\x0bc\n\n", [("", b"a\xe2\x80\xa8b\x0c\x0bc")]),
    ],
)
def test_the_grammar_in_one_piece_and_byte_by_byte(stream: bytes, events: list[ServerEvent]) -> None:
    assert parse(stream) == events
    assert parse(*(stream[i : i + 1] for i in range(len(stream)))) == events


LINES = st.lists(
    st.sampled_from(
        [b"data: {}", b"data:x", b"data", b": c", b"event: e", b"", b"", b"id: 1", "data: é€😀".encode()]
    ),
    max_size=12,
)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


@given(lines=LINES, end=ENDS, bom=st.booleans(), cuts=st.lists(st.integers(0, 200), max_size=8))
def test_any_split_gives_the_same_events(lines: list[bytes], end: bytes, bom: bool, cuts: list[int]) -> None:
    stream = (b"\xef\xbb\xbf" if bom else b"") + b"".join(line + end for line in lines)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    pieces = [stream[a:b] for a, b in itertools.pairwise(edges)]
    assert parse(*pieces) == parse(stream) == reference(stream)


@given(stream=st.binary(max_size=60), cut=st.integers(0, 60))
def test_arbitrary_bytes_never_raise_and_split_alike(stream: bytes, cut: int) -> None:
    assert parse(stream[:cut], stream[cut:]) == parse(stream)


def test_an_event_is_given_out_as_soon_as_its_blank_line_is_there() -> None:
    parser = EventParser(100)
    assert parser.feed(b"data: a\r") == []
    assert parser.feed(b"\n\r") == [("", b"a")]
    assert parser.feed(b"\ndata: b\n") == []
    assert parser.feed(b"\n") == [("", b"b")]


def test_an_event_over_the_limit_is_refused_whether_in_one_line_or_many() -> None:
    with pytest.raises(ValueError, match="larger than 100 bytes"):
        EventParser(100).feed(b"data: " + b"x" * 200)
    parser = EventParser(100)
    with pytest.raises(ValueError, match="larger than 100 bytes"):
        for _ in range(100):
            parser.feed(b"data: xx\n")


def test_many_small_events_do_not_add_up_to_the_limit() -> None:
    parser = EventParser(100)
    assert sum(len(parser.feed(b"data: xxxx\n\n")) for _ in range(1000)) == 1000


def test_one_line_in_many_pieces_costs_linear_time() -> None:
    def parse() -> None:
        parser = EventParser(1 << 30)
        for _ in range(20_000):
            parser.feed(b"x" * 1000)
        parser.finish()

    assert least_cpu_s(parse, 0.5) < 0.5  # quadratic copying of these 20 MB takes 20 s and more

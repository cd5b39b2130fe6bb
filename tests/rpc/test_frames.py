"""Frames are lines of bytes, however they arrive."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from cordisd.rpc.frames import OVERSIZE, BatchAnswer, FrameSplitter

lines = st.lists(st.binary(max_size=30).filter(lambda line: b"\n" not in line), max_size=8)


@given(lines, st.binary(max_size=5).filter(lambda tail: b"\n" not in tail), st.data())
def test_any_split_of_a_stream_gives_the_same_lines(
    wanted: list[bytes], tail: bytes, data: st.DataObject
) -> None:
    stream = b"".join(line + b"\n" for line in wanted) + tail
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    splitter, got = FrameSplitter(), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        got += splitter.feed(stream[start:end])
    assert got == wanted


def test_an_oversize_line_is_skipped_once_and_the_next_one_is_read() -> None:
    splitter = FrameSplitter(max_bytes=8)
    got = [*splitter.feed(b"12345678\n1234"), *splitter.feed(b"56789"), *splitter.feed(b"0\nok\n")]
    assert got == [b"12345678", OVERSIZE, b"ok"]
    assert got[1] is OVERSIZE


def test_line_separators_of_unicode_do_not_split() -> None:
    assert list(FrameSplitter().feed("a\u2028b\x0b\r\n".encode())) == ["a\u2028b\x0b\r".encode()]


def test_answers_to_a_batch_come_in_the_order_of_its_requests_as_far_as_they_fit() -> None:
    told = BatchAnswer(max_bytes=1000)
    told.add(2, {"jsonrpc": "2.0", "id": "c", "result": {"text": "x" * 500}})
    told.add(0, {"jsonrpc": "2.0", "id": "a", "result": {"text": "x" * 500}})
    told.add(5, {"jsonrpc": "2.0", "id": "b", "result": {}})
    frame = told.frame()
    assert frame is not None and frame.endswith(b"\n")
    assert len(frame) <= 1001
    first, second, third = json.loads(frame)
    assert (first["id"], first["error"]["code"]) == ("a", -32600)
    assert (second["id"], second["result"]["text"]) == ("c", "x" * 500)
    assert third == {"jsonrpc": "2.0", "id": "b", "result": {}}
    assert BatchAnswer().frame() is None

"""What of a log is counted without being read, by those who need only a part of it."""

from __future__ import annotations

import re
from typing import Final

from cordisd.events import decode_json
from cordisd.session.reading import Skip, Span

_EVENT_HEAD: Final = re.compile(rb'\{"type":"[^"\\]+","seq":(\d+),')
_ROW_HEAD: Final = re.compile(
    rb'\{"type":"[a-z-]+-chunks","seq0":(\d+),"time0":\d+,'
    rb'"data":\{"turn":\d+,"step":\d+,"index":\d+,"dt":\[([-\d,]*)\]'
)
"""How the writers of the format begin a line; one that begins otherwise is as good, but has to be decoded."""


def before(seq: int) -> Skip:
    """Skips the lines that hold no event from `seq` on; they are not looked into."""

    def skip(line: bytes) -> Span | None:
        span = _span(line)
        return span if span is not None and span.next_seq <= seq else None

    return skip


def rows(line: bytes) -> Span | None:
    """Skips packed rows, that is most of a log and nothing but text that comes again in a message.

    They must be JSON, so that damage in them is still found.
    """
    if _ROW_HEAD.match(line) is None:
        return None
    try:
        decode_json(line)
    except (ValueError, RecursionError):
        return None
    return _span(line)


def event_on(line: bytes) -> int | None:
    """The seq of the event that is the whole line, byte for byte as on the wire; None: decode it to know."""
    found = _EVENT_HEAD.match(line)
    return int(found[1]) if found and line.isascii() and line.endswith(b"}") else None


def _span(line: bytes) -> Span | None:
    if found := _EVENT_HEAD.match(line):
        seq = int(found[1])
        return Span(seq, seq + 1)
    if found := _ROW_HEAD.match(line):
        seq, gaps = int(found[1]), found[2]
        return Span(seq, seq + (gaps.count(b",") + 2 if gaps else 1))
    return None

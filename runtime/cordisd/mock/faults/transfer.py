"""Faults of the transfer: when bytes come, in which pieces, and whether all of them do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import pairwise

from cordisd.mock.faults.draw import Draw
from cordisd.mock.parts import Cut, Hang, Part, Pause, Verbatim

Parts = list[Part]

_JSON = re.compile(rb"(data: ?)?\{")


def broken_json(parts: Parts, draw: Draw) -> Parts:
    """The JSON of one event, or of the body, is cut in the middle."""
    spoilt: Parts = [*parts]
    places = [n for n, part in enumerate(parts) if isinstance(part, bytes) and _JSON.match(part)]
    if places:
        place = places[draw.place(places)]
        whole = spoilt[place]
        assert isinstance(whole, bytes)
        data = whole.rstrip(b"\r\n")
        spoilt[place] = data[: len(data) // 2] + whole[len(data) :]
    return spoilt


def split_bytes(parts: Parts, draw: Draw) -> Parts:
    """Every byte is written, and framed, alone."""
    return _split(parts, lambda data: range(1, len(data)))


def split_random(parts: Parts, draw: Draw) -> Parts:
    """The body is cut at random places, about one in so many bytes, whatever is there."""
    share = 1 / max(1.0, draw.amount)
    return _split(parts, lambda data: [n for n in range(1, len(data)) if draw.random.random() < share])


def split_characters(parts: Parts, draw: Draw) -> Parts:
    """The body is cut inside each character of several bytes."""
    return _split(parts, lambda data: [n for n in range(1, len(data)) if data[n] & 0xC0 == 0x80])


def split_lines(parts: Parts, draw: Draw) -> Parts:
    """The body is cut before and inside every line end, so between CR and LF."""
    return _split(parts, lambda data: [hit.start() for hit in re.finditer(rb"[\r\n]", data) if hit.start()])


def pace(parts: Parts, draw: Draw) -> Parts:
    """So many seconds pass after each piece."""
    return [piece for part in parts for piece in ((part, Pause(draw.amount)) if part else ())]


def latency(parts: Parts, draw: Draw) -> Parts:
    """So many seconds pass before the first byte of the answer."""
    return [Pause(draw.amount), *parts]


def cut_fin(parts: Parts, draw: Draw) -> Parts:
    """The connection is closed after that share of the body."""
    return [*_share(parts, draw.amount), Cut("fin")]


def cut_rst(parts: Parts, draw: Draw) -> Parts:
    """The connection is reset after that share of the body."""
    return [*_share(parts, draw.amount), Pause(0.02), Cut("rst")]


def silence(parts: Parts, draw: Draw) -> Parts:
    """Nothing comes after that share of the body, and the connection stays open."""
    return [*_share(parts, draw.amount), Hang()]


def bad_chunk(parts: Parts, draw: Draw) -> Parts:
    """After that share of the body comes a chunk whose size is no number."""
    return [*_share(parts, draw.amount), Verbatim(b"zz\r\n"), Cut("fin")]


def _split(parts: Parts, cuts_of: Callable[[bytes], Iterable[int]]) -> Parts:
    pieces: Parts = []
    for part in parts:
        if not isinstance(part, bytes):
            pieces.append(part)
            continue
        cuts = [0, *cuts_of(part), len(part)]
        pieces += [part[start:end] for start, end in pairwise(cuts)]
    return pieces


def _share(parts: Parts, share: float) -> Parts:
    """The parts up to that share of the bytes, the last one cut."""
    left = int(share * sum(len(part) for part in parts if isinstance(part, bytes)))
    kept: Parts = []
    for part in parts:
        if not isinstance(part, bytes):
            kept.append(part)
        elif left > 0:
            kept.append(part[:left])
            left -= len(part)
    return kept

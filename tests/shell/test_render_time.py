"""Rendering all that a capture can hold is quick, whatever it is: it happens in the event loop."""

from __future__ import annotations

from functools import partial

import pytest

from cordisd.shell.exchange import background_capture
from cordisd.shell.output import HEAD_BYTES, TAIL_BYTES, Capture
from cordisd.shell.report import background_section, shown_output
from measure import least_cpu_s

PIECES = [
    b"\r", b"\b", b"\x1b", b"\xff", b"\x01", b"\n", b"\r\n", b"\r\r\n", b"a\rb\n", b"a\b", b"\r50%",
    b"\x1b[0;", b"\x1b]0;", b"\x1bP", b"\x1bP\n", b"\x1bPab", b"\x9d", b"\x90", b"\x9b1", b"\x1b ",
    b"\x1e0123456789abcdef", b"\\builtin ", b"\\builtin >&251 ", "😀".encode(),
]  # fmt: skip
LIMIT_S = 0.5
"""Of CPU time; the worst of what is linear takes 0.03 s."""


@pytest.mark.parametrize("piece", PIECES)
def test_no_output_makes_rendering_slow(piece: bytes) -> None:
    for n_bytes in (HEAD_BYTES + TAIL_BYTES, 2 * (HEAD_BYTES + TAIL_BYTES)):
        capture = Capture()
        capture.append(piece * (HEAD_BYTES // len(piece)))
        for _ in range((n_bytes - HEAD_BYTES) // 4095):
            capture.append((piece * (4095 // len(piece) + 1))[:4095])
        assert least_cpu_s(partial(shown_output, capture, 16_000, "headTail"), LIMIT_S) < LIMIT_S


@pytest.mark.parametrize("piece", PIECES)
def test_no_background_output_makes_its_section_slow(piece: bytes) -> None:
    capture = background_capture()
    for _ in range(20):
        capture.append((piece * (4095 // len(piece) + 1))[:4095])
    assert least_cpu_s(partial(background_section, capture), LIMIT_S) < LIMIT_S

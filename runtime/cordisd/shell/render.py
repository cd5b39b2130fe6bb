"""Terminal bytes as the plain text that a person would be left with."""

from __future__ import annotations

import re
from codecs import getincrementaldecoder

_PLAIN = re.compile(rb"[\t\n\x20-\x7e]*\Z")

# A string sequence (OSC, DCS, SOS, PM, APC) that is never ended costs its own line, not what follows.
# 8-bit introducers are recognised only as bytes outside UTF-8, which `surrogateescape` marks.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\udc9b)[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b\]|\udc9d)[^\x07\x18\x1a\x1b\n\udc9c]*(?:\x07|\x1b\\|\udc9c)?"
    r"|\x1b[PX^_](?:[^\x1b]*\x1b\\|[^\x1b\n]*)"
    r"|[\udc90\udc98\udc9e\udc9f][^\x1b\n\udc9c]*\udc9c?"
    r"|\x1b[ -/]*[0-~]?"
)
_LINE_END = re.compile(r"(?<!\r)\r+\n")  # the look-behind makes it linear where no newline follows
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]+")
_INVALID = re.compile(r"[\udc80-\udcff]")


def render(raw: bytes) -> str:
    """The text of terminal output: no escape sequences, and of a line drawn repeatedly the last state.

    Time is linear in the input. Bytes that are not UTF-8 become U+FFFD, one each.
    """
    if _PLAIN.match(raw):
        return raw.decode("ascii")
    text = without_escapes(raw.decode("utf-8", "surrogateescape"))
    if "\r" in text:
        text = _LINE_END.sub("\n", text)
        text = "\n".join(_last_frame(line) if "\r" in line else line for line in text.split("\n"))
    if "\b" in text:
        text = "\n".join(_erase(line) if "\b" in line else line for line in text.split("\n"))
    return _INVALID.sub("\ufffd", _CONTROLS.sub("", text))


def without_escapes(text: str) -> str:
    """Terminal text without its escape sequences; `surrogateescape` marks bytes outside UTF-8, in both."""
    return _ESCAPES.sub("", text)


def render_head(raw: bytes) -> str:
    """Like `render`, for bytes whose end was cut off: stops at a character."""
    decoder = getincrementaldecoder("utf-8")("replace")
    decoder.decode(raw[-4:])
    unfinished, _ = decoder.getstate()
    return render(raw[: len(raw) - len(unfinished)])


def render_tail(raw: bytes) -> str:
    """Like `render`, for bytes whose beginning was cut off: starts at a line, or at least at a character."""
    newline = raw.find(b"\n", 0, 4096)
    if newline >= 0:
        return render(raw[newline + 1 :])
    start = 0
    while start < min(4, len(raw)) and raw[start] & 0xC0 == 0x80:
        start += 1
    return render(raw[start:])


def _last_frame(line: str) -> str:
    """What a line shows that was begun again at each carriage return."""
    frames = line.rstrip("\r").rsplit("\r", 1)
    return frames[-1]


def _erase(line: str) -> str:
    """A line after its backspaces."""
    kept: list[str] = []
    for character in line:
        if character != "\b":
            kept.append(character)
        elif kept:
            kept.pop()
    return "".join(kept)

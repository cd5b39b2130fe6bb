"""Finding the one place that an edit means, or saying why there is none."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from cordisd.editor.failures import shown
from cordisd.errors import ToolError

_MAX_LINES_LISTED = 10
_MAX_BYTES_COMPARED = 20_000_000
"""A long text that overlaps itself, 20,000 dashes among a million, would take minutes to count."""
_MAX_CHARACTERS_ECHOED = 200
_MAX_BYTES_ECHOED = 600
"""An escape takes up to 12 bytes for a character; a whole error stays below 2 KB, whatever its path is."""


def find_once(body: bytes, old: bytes, path: str) -> int:
    """The offset of the only occurrence of `old` in `body`; overlapping occurrences count.

    Raises:
        ToolError: none or several; names lines and gives one hint.
    """
    first = body.find(old)
    if first < 0:
        raise ToolError(
            f"No match: `old_str` does not occur in {shown(path)}, so nothing was changed. "
            f"It was: {_echo(old)}\n{_hint(body, old)}"
        )
    if body.find(old, first + 1) >= 0:
        raise _ambiguous(body, old, first, path)
    return first


def _ambiguous(body: bytes, old: bytes, first: int, path: str) -> ToolError:
    lines: list[int] = []
    n_found, line, counted_to, at = 0, 1, 0, first
    while at >= 0 and n_found * len(old) < _MAX_BYTES_COMPARED:
        n_found += 1
        if len(lines) <= _MAX_LINES_LISTED:
            line += body.count(b"\n", counted_to, at)
            counted_to = at
            if line not in lines:
                lines.append(line)
        at = body.find(old, at + 1)
    more = ", …" if at >= 0 or len(lines) > _MAX_LINES_LISTED else ""
    listed = ", ".join(map(str, lines[:_MAX_LINES_LISTED])) + more
    total = f"{n_found}" if at < 0 else f"more than {n_found}"
    return ToolError(
        f"Not unique: `old_str` occurs {total} times in {shown(path)}, so nothing was changed. "
        f"It starts on {'lines' if len(lines) > 1 else 'line'} {listed}. It was: {_echo(old)}\n"
        f"Add lines around it to `old_str` until it is unique."
    )


def _echo(old: bytes) -> str:
    text = old.decode()
    start = text[:_MAX_CHARACTERS_ECHOED]
    while len(shown_text := json.dumps(start, ensure_ascii=False).encode()) > _MAX_BYTES_ECHOED:
        start = start[:-10]
    rest = "" if start == text else f" … ({len(text)} characters in all)"
    return shown_text.decode() + rest


def _without_trailing_blanks(text: bytes) -> bytes:
    # A regular expression would take quadratic time for a long run of blanks inside a line.
    return b"\n".join(line.rstrip(b" \t\r") for line in text.split(b"\n"))


def _without_blanks(text: bytes) -> bytes:
    return re.sub(rb"[ \t\r]+", b"", text)


def _without_line_numbers(text: bytes) -> bytes:
    lines = text.split(b"\n")
    numbered = [re.sub(rb"^ *\d+(?:\t|  |$)", b"", line) for line in lines]
    if any(line and line == rest for line, rest in zip(lines, numbered, strict=True)):
        return text
    return b"\n".join(numbered)


def _unescaped(text: bytes) -> bytes:
    for escape, char in ((b"\\n", b"\n"), (b"\\t", b"\t"), (b'\\"', b'"')):
        text = text.replace(escape, char)
    return text


def _same(text: bytes) -> bytes:
    return text


# One row: how the file is changed, how `old_str` is, and what it means if they match then.
# None of the changes adds or removes a line of the file, so that line numbers stay true.
_EXPLANATIONS: tuple[tuple[Callable[[bytes], bytes], Callable[[bytes], bytes], str], ...] = (
    (
        _same,
        _without_line_numbers,
        "Without the line numbers of the view it matches at line {}; leave them out.",
    ),
    (
        _same,
        lambda old: old.replace(b"\r\n", b"\n"),
        "With LF instead of CRLF line ends it matches at line {}.",
    ),
    (
        _without_trailing_blanks,
        _without_trailing_blanks,
        "At line {} the file differs only in blanks at the end of a line; copy them exactly.",
    ),
    (
        _without_blanks,
        _without_blanks,
        "At line {} the file differs only in blanks (tabs, spaces, indentation); copy them exactly.",
    ),
    (_same, bytes.strip, "Without the blanks and empty lines around it, it matches at line {}."),
    (
        _same,
        _unescaped,
        'With its backslash escapes (\\n, \\t, \\") as real characters it matches at line {}.',
    ),
    (bytes.lower, bytes.lower, "At line {} the file differs only in upper and lower case."),
)


def _hint(body: bytes, old: bytes) -> str:
    """The cheapest provable reason why `old` was not found."""
    for change_body, change_old, explanation in _EXPLANATIONS:
        wanted = change_old(old)
        if not wanted.strip():
            continue
        changed = change_body(body)
        at = changed.find(wanted)
        if at >= 0:
            return explanation.format(changed.count(b"\n", 0, at) + 1)
    return _first_difference(body, old)


def _first_difference(body: bytes, old: bytes) -> str:
    first, *others = old.strip(b"\n").split(b"\n")
    at = body.find(first + b"\n") if others and first.strip() else -1
    if at < 0:
        return "View the file and copy the text from there."
    line = body.count(b"\n", 0, at) + 1
    theirs = body[at : at + len(old) + len(first)].split(b"\n")[1:]
    n_equal = next(
        (n for n, (ours, own) in enumerate(zip(others, theirs, strict=False)) if ours != own), len(theirs)
    )
    differs = line + 1 + n_equal
    return f"It starts like line {line} of the file, but line {differs} is different; view that place."

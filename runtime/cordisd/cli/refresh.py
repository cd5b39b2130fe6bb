"""Puts a new recording in the place of an old one, and tells what is another in it."""

from __future__ import annotations

import difflib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final

from cordisd.events import decode_json
from cordisd.replay.recording import read_recording

CONTEXT_LINES: Final = 2
MAX_CHARS: Final = 160
LEAD_CHARS: Final = 40
"""Of what two long lines have in common before they differ."""


def refresh(old: Path, new: Path) -> list[str]:
    """Replace the file `old` by `new` if it is another, at once; returns a diff, empty if they are the same.

    Raises:
        CompositionError: `new` is no whole recording.
        OSError: `old` cannot be replaced.
    """
    read_recording(new)
    before, after = old.read_bytes(), new.read_bytes()
    if before == after:
        return []
    target = old.resolve()
    with NamedTemporaryFile(dir=target.parent, prefix=".cordisd-", delete=False) as file:
        try:
            file.write(after)
            file.flush()
            os.fsync(file.fileno())
            shutil.copymode(target, file.name)
            os.replace(file.name, target)
        except BaseException:
            os.unlink(file.name)
            raise
    return changes(before, after)


def changes(before: bytes, after: bytes) -> list[str]:
    """A unified diff of two recordings, a line for each value; long ones are cut around what differs."""
    a, b = list(_readable(before)), list(_readable(after))
    rows: list[str] = []
    for group in difflib.SequenceMatcher(None, a, b, autojunk=False).get_grouped_opcodes(CONTEXT_LINES):
        first, last = group[0], group[-1]
        rows.append(f"@@ -{first[1] + 1},{last[2] - first[1]} +{first[3] + 1},{last[4] - first[3]} @@")
        for tag, a_start, a_end, b_start, b_end in group:
            if tag == "equal":
                rows += [f" {_cut(line)}" for line in a[a_start:a_end]]
            else:
                rows += _changed(a[a_start:a_end], b[b_start:b_end])
    return rows


def _readable(recording: bytes) -> Iterator[str]:
    """The lines of a recording unfolded; hashes, which change with what they are of, are left out."""
    for line in recording.splitlines():
        row = decode_json(line)
        row.pop("sha256", None)
        yield f"{row.pop('type')}:"
        yield from _unfolded(row, "  ")


def _unfolded(value: Any, indent: str) -> Iterator[str]:
    items = value.items() if isinstance(value, dict) else ((f"[{n}]", one) for n, one in enumerate(value))
    for name, inner in items:
        if isinstance(inner, dict | list) and inner:
            yield f"{indent}{name}:"
            yield from _unfolded(inner, indent + "  ")
        elif isinstance(inner, str) and "\n" in inner:
            yield f"{indent}{name}: |"
            yield from (f"{indent}  {line}" for line in inner.split("\n"))
        else:
            yield f"{indent}{name}: {inner}"


def _changed(old: Sequence[str], new: Sequence[str]) -> list[str]:
    """Lines that were replaced; where each has its counterpart, both are cut around what differs."""
    starts = [0] * max(len(old), len(new))
    if len(old) == len(new):
        starts = [max(0, _n_common(*pair) - LEAD_CHARS) for pair in zip(old, new, strict=True)]
    removed = [f"-{_cut(line, start)}" for line, start in zip(old, starts, strict=False)]
    return removed + [f"+{_cut(line, start)}" for line, start in zip(new, starts, strict=False)]


def _n_common(a: str, b: str) -> int:
    """How many characters both begin with."""
    differing = (at for at, (one, other) in enumerate(zip(a, b, strict=False)) if one != other)
    return next(differing, min(len(a), len(b)))


def _cut(line: str, start: int = 0) -> str:
    if len(line) <= MAX_CHARS:
        return line
    start = min(start, len(line) - MAX_CHARS)
    end = start + MAX_CHARS
    return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''}"

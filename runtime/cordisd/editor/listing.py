"""Directory listings: found on disk within fixed bounds, and rendered for the model."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from cordisd.editor.failures import escape_controls, reason_of, special_kind
from cordisd.editor.files import Listing, Row

MAX_ROWS = 2_000
_MAX_SCANNED = 100_000
_LEFT_OUT = ("node_modules", "__pycache__")


class _Scan:
    """Walks directories with one bound on everything it looks at."""

    def __init__(self) -> None:
        self.n_seen = 0
        self.complete = True

    def children(self, path: str, max_rows: int) -> list[os.DirEntry[str]]:
        """The first `max_rows` visible entries by name.

        Raises:
            OSError: the directory cannot be read.
        """
        with os.scandir(path) as entries:
            return sorted(self._visible(entries), key=lambda entry: entry.name)[:max_rows]

    def _visible(self, entries: Iterator[os.DirEntry[str]]) -> Iterator[os.DirEntry[str]]:
        for entry in entries:
            if self.n_seen >= _MAX_SCANNED:
                self.complete = False
                return
            if not entry.name.startswith(".") and entry.name not in _LEFT_OUT:
                self.n_seen += 1
                yield entry


def scan_directory(path: str) -> Listing:
    """The visible entries of `path` and of its directories; linked directories are not entered.

    Raises:
        OSError: `path` itself cannot be read.
    """
    base = path.rstrip("/") or "/"
    scan = _Scan()
    rows = [Row("d", base)]
    directories: list[int] = []
    for entry in scan.children(base, MAX_ROWS):
        if entry.is_dir(follow_symlinks=False):
            directories.append(len(rows))
        rows.append(_row(entry))
    for index in directories:
        try:
            found = [_row(entry) for entry in scan.children(rows[index].path, MAX_ROWS + 1 - len(rows))]
        except OSError as failure:
            rows[index] = Row("?", rows[index].path, f"directory cannot be read: {reason_of(failure)}")
        else:
            rows += found
    return Listing(tuple(rows), scan.n_seen + 1 - len(rows), scan.complete)


def _row(entry: os.DirEntry[str]) -> Row:
    try:
        if entry.is_dir(follow_symlinks=False):
            return Row("d", entry.path)
        if entry.is_file(follow_symlinks=False):
            return Row("f", entry.path)
        mode = entry.stat().st_mode
    except FileNotFoundError:
        return Row("?", entry.path, "link target does not exist")
    except OSError as failure:
        return Row("?", entry.path, reason_of(failure))
    if stat.S_ISDIR(mode):
        return Row("d", entry.path)
    if stat.S_ISREG(mode):
        return Row("f", entry.path)
    return Row("?", entry.path, special_kind(mode))


def render_directory(path: str, listing: Listing, max_characters: int) -> str:
    """Header, one row per entry sorted by path, and how many did not fit in `max_characters`.

    Where not all fit, the entries of the first level come before those of the second.
    """
    kept: list[tuple[str, str]] = []
    room = max_characters
    for row in listing.rows:
        text = f"{row.kind}\t{escape_controls(row.path)}" + (f"\t({row.reason})" if row.reason else "") + "\n"
        room -= len(text)
        if room < 0 and kept:
            break
        kept.append((row.path, text))
    n_omitted = listing.n_omitted + len(listing.rows) - len(kept)
    note = ""
    if n_omitted or not listing.complete:
        count = n_omitted if listing.complete else "More"
        note = f"[{count} entries are not shown; view a directory below, or use bash.]\n"
    return (
        f"Files and directories in {path}, up to two levels deep "
        f"(hidden items, node_modules and __pycache__ are left out):\n"
        f"{''.join(text for _, text in sorted(kept))}{note}"
    )

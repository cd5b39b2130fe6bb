"""Copies what is sound of a damaged log into a new file. The log itself stays as it is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from cordisd.errors import LogError
from cordisd.session.disk import cause_of, open_file
from cordisd.session.reading import LogReading


class Salvaged(NamedTuple):
    """What a copy holds. `end` says why it ends where it does; None: nothing is missing."""

    n_events: int
    n_repeats: int
    """Lines left out because they repeat earlier ones to the byte."""
    end: str | None


def salvage(path: Path, out: Path) -> Salvaged:
    """Write the header and every event of the log at `path` up to its first damage to the new file `out`.

    Raises:
        LogError: the log has no header, or is of another format; or `out` exists, or cannot be written.
    """
    try:
        with open(path, "rb", opener=open_file) as stream, open(out, "xb", opener=_private) as copy:
            try:
                reading = LogReading(stream, path, skip_repeats=True)
                copy.write(reading.header_line)
                for line, _ in reading.lines():
                    copy.write(line)
                copy.flush()
                os.fsync(copy.fileno())
            except BaseException:
                os.unlink(out)
                raise
    except OSError as problem:
        raise LogError(f"cannot copy {path} to {out}: {cause_of(problem)}") from problem
    end = None if reading.damage is None else reading.damage.what
    return Salvaged(reading.n_events, reading.n_repeats, end)


def _private(name: str, flags: int) -> int:
    return os.open(name, flags, 0o600)

"""What is stored under a session root, at a glance: only headers and the marks of turns are decoded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, NamedTuple

from cordisd.errors import LogError, SessionNotFoundError
from cordisd.events import decode_json
from cordisd.session.disk import cause_of, open_file
from cordisd.session.header import SessionHeader
from cordisd.session.layout import check_place, is_locked
from cordisd.session.reading import read_header
from cordisd.session.survey import Found

_turn_mark = b'{"type":"turn/'
_turn_start = b'{"type":"turn/start"'


class Listed(NamedTuple):
    """One stored session. `interrupted`: no process has it open, and its last turn has no end."""

    path: Path
    header: SessionHeader
    status: Literal["open", "closed", "interrupted"]
    n_turns: int
    size_bytes: int
    """Of its folder."""
    written_ns: int
    """When something was last added to its log, since the epoch."""


def look_at(found: Found) -> Listed:
    """What is known of a session that lies in a session root.

    Raises:
        SessionNotFoundError: it is gone.
        LogError: nothing can be known of it.
    """
    if found.problem is not None:
        raise found.problem
    path = found.path
    try:
        is_open = is_locked(path)
        with open(path, "rb", opener=open_file) as stream:
            header = read_header(stream.readline(), path)
            check_place(header, path)
            last_mark, line = b"", b"\n"
            for line in stream:
                if line.startswith(_turn_mark):
                    last_mark = line
            written_ns = os.fstat(stream.fileno()).st_mtime_ns
        size_bytes = sum(one.stat(follow_symlinks=False).st_size for one in os.scandir(path.parent))
    except FileNotFoundError as problem:
        raise SessionNotFoundError(f"somebody has removed it: {path}") from problem
    except OSError as problem:
        raise LogError(f"cannot read {path}: {cause_of(problem)}") from problem
    is_cut = last_mark.startswith(_turn_start) or not line.endswith(b"\n")
    status: Literal["open", "closed", "interrupted"] = (
        "open" if is_open else "interrupted" if is_cut else "closed"
    )
    return Listed(path, header, status, _turn_of(last_mark), size_bytes, written_ns)


def _turn_of(mark: bytes) -> int:
    """The number in a `turn/start` or `turn/end`; 0 for none, or one that cannot be read."""
    try:
        turn = decode_json(mark)["data"]["turn"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return 0
    return turn if type(turn) is int else 0

"""Session logs on disk, whole and damaged in every way that a crash, a disk or a person can bring about."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cordisd.events import Event
from cordisd.session.store import SessionStore
from log_samples import Writer, call_block, finished_session, header, open_turn, tool_turn

Lines = list[bytes]


def store(
    root: Path, events: list[Event] | None = None, session_id: str = "s1", cwd: str | None = "/srv/w"
) -> Path:
    """The path of a log that was written and closed."""
    file = SessionStore(root, pack_chunks=False).create(header(session_id, cwd))
    file.append(finished_session() if events is None else events)
    file.close()
    return file.path


def stored(store: SessionStore, session_id: str = "s1", cwd: str | None = "/srv/w") -> Path:
    """The path of a finished session, written and closed."""
    file = store.create(header(session_id, cwd))
    file.append(finished_session())
    file.close()
    return file.path


def everything_below(root: Path) -> list[str]:
    """Files and folders, relative to `root`."""
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def two_turns() -> list[Event]:
    """A session with two finished turns."""
    writer = Writer()
    tool_turn(writer, 1)
    tool_turn(writer, 2)
    return writer.events


def stopped_in_a_call() -> list[Event]:
    """A finished turn, and one whose writer was stopped while it ran the first of two calls."""
    writer = Writer()
    tool_turn(writer, 1)
    open_turn(writer, 2, "again")
    writer.answer(2, 1, call_block("a", "{}"), call_block("b", "{}"), sources=[])
    writer.add("tool/call", {"turn": 2, "step": 1, "callId": "a", "name": "bash", "arguments": "{}"})
    return writer.events


def damage(path: Path, change: Callable[[Lines], Lines]) -> bytes:
    """Replace the lines of a log by what `change` makes of them; returns the new content."""
    content = b"".join(change(path.read_bytes().splitlines(keepends=True)))
    path.write_bytes(content)
    return content


def everything(root: Path) -> dict[str, bytes]:
    """Every file below `root` with its content."""
    return {str(one.relative_to(root)): one.read_bytes() for one in root.rglob("*") if one.is_file()}

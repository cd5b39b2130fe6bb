"""How the editor reaches files, whatever machine or container they are in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

Kind = Literal["file", "directory", "special"]

MAX_EDIT_BYTES = 10_000_000
"""Larger files are viewed, but not edited: an edit holds the whole file in memory."""


class Row(NamedTuple):
    """One entry of a directory listing. `reason` says what is wrong with one that is neither `d` nor `f`."""

    kind: Literal["d", "f", "?"]
    path: str
    reason: str = ""


class Listing(NamedTuple):
    """Visible entries of a directory, two levels deep, first level first. `n_omitted` more were seen.

    `complete` is False where the scan gave up, so that there are more than `n_omitted`.
    """

    rows: tuple[Row, ...]
    n_omitted: int = 0
    complete: bool = True


class Rewritten(NamedTuple):
    """A change that is on disk, and what the changing function told of it.

    `read_only`: by its mode nobody may write the file; it was written all the same.
    """

    report: str
    read_only: bool


class FileAccess(Protocol):
    """Byte-level access to files by absolute path. Failures are `ToolError`s with words for the model."""

    async def kind(self, path: str) -> Kind:
        """What `path` is, links followed, without opening it."""
        ...

    async def feed(self, path: str, sink: Callable[[bytes], None]) -> None:
        """Give the content of a regular file to `sink`, block by block."""
        ...

    async def listing(self, path: str) -> Listing:
        """The entries of a directory; one that cannot be read is a row, not a failure."""
        ...

    async def create(self, path: str, content: bytes) -> None:
        """Make a new file, complete or not at all, with the parents it needs."""
        ...

    async def resolve(self, path: str) -> str:
        """`path` with links followed: the same for every path of a file, but for hard links."""
        ...

    async def remove(self, path: str, check: Callable[[bytes], None]) -> None:
        """Remove a regular file; what `check` raises at the sight of its content leaves it there."""
        ...

    async def rewrite(self, path: str, change: Callable[[bytes], tuple[bytes, str]]) -> Rewritten:
        """Read a regular file and write what `change` makes of it: one step for all sessions of the daemon.

        `change` returns the new content and a report. It may run in a thread, away from the event loop. The
        file ends up old or new, also when the call is cancelled or the daemon is killed; what `change` raises
        leaves it old.
        """
        ...

"""The edits of one session that can be taken back, in bounded memory."""

from __future__ import annotations

from hashlib import sha256
from typing import NamedTuple

from cordisd.editor.failures import shown
from cordisd.editor.text import Change
from cordisd.errors import ToolError

_MAX_EDITS_OF_FILE = 10
_MAX_BYTES = 32_000_000


class Edit(NamedTuple):
    """What an edit did to a file, enough to take it back: its span (byte offsets) and what was there before.

    `digest` is that of the whole file after the edit. `removed` None: the edit made the file.
    """

    digest: bytes
    start: int
    end: int
    removed: bytes | None


def edit_of(before: bytes, change: Change) -> Edit:
    """The record of `change`, made to the content `before`."""
    n_behind = len(change.content) - change.end
    removed = before[change.start : len(before) - n_behind]
    return Edit(_digest(change.content), change.start, change.end, removed)


def creation_of(content: bytes) -> Edit:
    """The record of a new file with `content`."""
    return Edit(_digest(content), 0, len(content), None)


def check_undoable(edit: Edit, content: bytes, path: str) -> None:
    """Raise `ToolError` unless `content` is what `edit` left."""
    if _digest(content) != edit.digest:
        raise ToolError(
            f"{shown(path)} was changed by something else since your last edit of it, so `undo_edit` would "
            f"lose that change; nothing was undone. View the file and use `str_replace`."
        )


def undone(edit: Edit, content: bytes, path: str) -> Change:
    """`content` as it was before `edit`.

    Raises:
        ToolError: `content` is not what `edit` left.
    """
    check_undoable(edit, content, path)
    removed = edit.removed or b""
    restored = content[: edit.start] + removed + content[edit.end :]
    return Change(restored, edit.start, edit.start + len(removed))


class UndoHistory:
    """The last edits of a session: up to 10 of a file, and as many as fit in memory; the oldest go first."""

    def __init__(self) -> None:
        self._edits: list[tuple[str, Edit]] = []
        self._n_bytes = 0

    def remember(self, target: str, edit: Edit) -> None:
        """`edit` is now the last one of the file `target`."""
        places = self._places(target)
        if len(places) >= _MAX_EDITS_OF_FILE:
            self._drop(places[0])
        self._edits.append((target, edit))
        self._n_bytes += _size(edit)
        while self._n_bytes > _MAX_BYTES:
            self._drop(0)

    def last(self, target: str) -> Edit | None:
        """The last edit of the file `target` that was not taken back."""
        places = self._places(target)
        return self._edits[places[-1]][1] if places else None

    def forget_last(self, target: str) -> None:
        """The last edit of the file `target` was taken back."""
        self._drop(self._places(target)[-1])

    def _places(self, target: str) -> list[int]:
        return [place for place, (name, _) in enumerate(self._edits) if name == target]

    def _drop(self, place: int) -> None:
        _, edit = self._edits.pop(place)
        self._n_bytes -= _size(edit)


def _size(edit: Edit) -> int:
    return len(edit.removed or b"") + 1_000  # the record and its path


def _digest(content: bytes) -> bytes:
    return sha256(content).digest()

"""The commands of the editor: from arguments to the text for the model."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from cordisd.editor.failures import shown
from cordisd.editor.files import FileAccess
from cordisd.editor.listing import render_directory
from cordisd.editor.text import Change, encode, insert_lines, replace_once
from cordisd.editor.undo import Edit, UndoHistory, check_undoable, creation_of, edit_of, undone
from cordisd.editor.view import LineWindow, render_file, render_snippet
from cordisd.errors import ToolError

COMMANDS = ("view", "create", "str_replace", "insert")

_MAX_INTEGER = 2**53
"""Beyond every file; an integer of thousands of digits would fill the answer."""


class Editor:
    """Runs commands on `files`. `cwd` serves suggestions only: every path must be absolute.

    `number_gap` follows the numbers of lines. `history` None: there is no `undo_edit`.
    """

    def __init__(
        self,
        files: FileAccess,
        cwd: Callable[[], str],
        *,
        max_output_characters: int,
        n_snippet_lines: int,
        number_gap: str = "  ",
        history: UndoHistory | None = None,
    ) -> None:
        self._files = files
        self._cwd = cwd
        self._max_output_characters = max_output_characters
        self._n_snippet_lines = n_snippet_lines
        self._gap = number_gap
        self._history = history

    async def run(self, arguments: Mapping[str, Any]) -> str:
        """The text for the model. `arguments` fit the schema of the tool; what it does not know is ignored.

        Raises:
            ToolError: the command failed; no file was changed.
        """
        path = await self._absolute(arguments["path"])
        match arguments["command"]:
            case "view":
                return await self._view(path, _view_range(arguments.get("view_range")))
            case "create":
                return await self._create(path, _text(arguments, "file_text"))
            case "str_replace":
                old = _text(arguments, "old_str")
                if not old:
                    raise ToolError(
                        "`old_str` must not be empty. Use `insert` to add text, or `create` for a new file."
                    )
                new = _text(arguments, "new_str") if arguments.get("new_str") is not None else b""
                return await self._edit(path, lambda content: replace_once(content, old, new, path))
            case "insert":
                field = "new_str" if arguments.get("new_str") is not None else "insert_text"
                if arguments.get(field) is None:
                    raise _missing_argument("new_str", "insert")
                text = _text(arguments, field)
                if arguments.get("insert_line") is None:
                    raise _missing_argument("insert_line", "insert")
                line = _bounded(arguments["insert_line"])
                return await self._edit(path, lambda content: insert_lines(content, line, text, path))
            case "undo_edit" if self._history is not None:
                return await self._undo(path, self._history)
            case command:
                raise ToolError(f"Unknown command {shown(command)}; the commands are {', '.join(COMMANDS)}.")

    async def _absolute(self, path: str) -> str:
        if not path.strip():
            raise ToolError("`path` must not be blank; give the absolute path of a file or directory.")
        if "\0" in path:
            raise ToolError("`path` contains a NUL character; no file name can.")
        try:
            os.fsencode(path)
        except UnicodeEncodeError as failure:
            raise ToolError("`path` contains a lone surrogate; no file name can.") from failure
        if path.startswith("/"):
            return path
        suggestion = os.path.normpath(os.path.join(self._cwd(), path))
        try:
            await self._files.kind(suggestion)
        except ToolError:
            suggestion = f"/{path}"
        note = " (~ is not expanded)" if path.startswith("~") else ""
        raise ToolError(
            f'The path "{shown(path)}" is not absolute; it must start with /{note}. '
            f'Did you mean "{shown(suggestion)}"?'
        )

    async def _view(self, path: str, view_range: tuple[int, int] | None) -> str:
        max_characters = self._max_output_characters
        match await self._files.kind(path):
            case "directory":
                if view_range:
                    raise ToolError(f"{shown(path)} is a directory; `view_range` is for files only.")
                return render_directory(path, await self._files.listing(path), max_characters)
            case "file" | "special":  # `feed` refuses what is special, with its kind
                window = LineWindow(path, view_range[0] if view_range else 1, max_characters)
                await self._files.feed(path, window.feed)
                return render_file(path, window, view_range, max_characters, self._gap)

    async def _create(self, path: str, content: bytes) -> str:
        if path.endswith("/"):
            raise ToolError(
                f"{shown(path)} ends with a slash, so it names a directory; `create` makes files."
            )
        await self._files.create(path, content)
        if self._history is not None:
            self._history.remember(await self._files.resolve(path), creation_of(content))
        return f"New file created successfully at: {path}"

    async def _edit(self, path: str, edit: Callable[[bytes], Change]) -> str:
        made: list[Edit] = []

        def change(content: bytes) -> tuple[bytes, str]:
            changed = edit(content)
            if changed.content == content:
                return content, "[Nothing changed: the new text is the same as the old text.]\n"
            if self._history is not None:
                made.append(edit_of(content, changed))
            return changed.content, self._snippet(changed)

        done = await self._files.rewrite(path, change)
        if self._history is not None and made:
            self._history.remember(await self._files.resolve(path), made[0])
        text = f"The file {path} has been edited successfully.\n{done.report}"
        if done.read_only:
            text += "[The file is marked read-only; it was changed all the same and keeps its mode.]\n"
        return text.removesuffix("\n")

    async def _undo(self, path: str, history: UndoHistory) -> str:
        target = await self._files.resolve(path)
        edit = history.last(target)
        if edit is None:
            raise ToolError(f"There is no edit of {shown(path)} by this tool left that could be undone.")

        def change(content: bytes) -> tuple[bytes, str]:
            restored = undone(edit, content, path)
            return restored.content, self._snippet(restored)

        if edit.removed is None:
            await self._files.remove(path, lambda content: check_undoable(edit, content, path))
            text = f"The file {path} has been removed: that undoes its creation."
        else:
            done = await self._files.rewrite(path, change)
            text = f"The last edit of {path} has been undone.\n{done.report}".removesuffix("\n")
        history.forget_last(target)
        return text

    def _snippet(self, change: Change) -> str:
        return render_snippet(change, self._n_snippet_lines, self._gap) if self._n_snippet_lines else ""


def _missing_argument(field: str, command: str) -> ToolError:
    return ToolError(f"`{field}` is required for the command `{command}`.")


def _text(arguments: Mapping[str, Any], field: str) -> bytes:
    text = arguments.get(field)
    if text is None:
        raise _missing_argument(field, arguments["command"])
    if not isinstance(text, str):  # `insert_text` is an alias that the schema does not know
        raise ToolError(f"`{field}` must be a string.")
    return encode(text, field)


def _bounded(number: int) -> int:
    return max(-_MAX_INTEGER, min(number, _MAX_INTEGER))


def _view_range(numbers: list[int] | None) -> tuple[int, int] | None:
    if numbers is None:
        return None
    if len(numbers) != 2:
        raise ToolError(
            "`view_range` must be two integers, [first, last]; -1 as last means the end of the file."
        )
    first, last = map(_bounded, numbers)
    if first < 1:
        raise ToolError(f"Invalid `view_range` [{first}, {last}]: lines are counted from 1.")
    if last != -1 and last < first:
        raise ToolError(f"Invalid `view_range` [{first}, {last}]: last must be -1 or at least {first}.")
    return first, last

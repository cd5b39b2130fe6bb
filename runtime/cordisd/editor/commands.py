"""The four commands of the editor: from arguments to the text for the model."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from cordisd.editor.failures import shown
from cordisd.editor.files import FileAccess
from cordisd.editor.listing import render_directory
from cordisd.editor.text import Change, encode, insert_lines, replace_once
from cordisd.editor.view import LineWindow, render_file, render_snippet
from cordisd.errors import ToolError

_MAX_INTEGER = 2**53
COMMANDS = ("view", "create", "str_replace", "insert")


class Editor:
    """Runs commands on `files`. `cwd` serves suggestions only: every path must be absolute."""

    def __init__(
        self, files: FileAccess, cwd: Callable[[], str], *, max_output_characters: int, n_snippet_lines: int
    ) -> None:
        self._files = files
        self._cwd = cwd
        self._max_output_characters = max_output_characters
        self._n_snippet_lines = n_snippet_lines

    async def run(self, arguments: Mapping[str, Any]) -> str:
        """The text for the model. A null argument counts as absent; unknown ones are ignored.

        Raises:
            ToolError: the command failed; no file was changed.
        """
        path = await self._absolute(arguments.get("path"))
        match arguments.get("command"):
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
                line, text = _insert_line(arguments.get("insert_line")), _text(arguments, field)
                return await self._edit(path, lambda content: insert_lines(content, line, text, path))
            case command:
                raise ToolError(
                    f"Unknown command {shown(str(command))}; the commands are {', '.join(COMMANDS)}."
                )

    async def _absolute(self, path: object) -> str:
        if not isinstance(path, str) or not path.strip():
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
        match await self._files.kind(path):
            case "directory":
                if view_range:
                    raise ToolError(f"{shown(path)} is a directory; `view_range` is for files only.")
                return render_directory(path, await self._files.listing(path), self._max_output_characters)
            case "file" | "special":  # `feed` refuses what is special, with its kind
                window = LineWindow(path, view_range[0] if view_range else 1, self._max_output_characters)
                await self._files.feed(path, window.feed)
                return render_file(path, window, view_range, self._max_output_characters)

    async def _create(self, path: str, content: bytes) -> str:
        if path.endswith("/"):
            raise ToolError(
                f"{shown(path)} ends with a slash, so it names a directory; `create` makes files."
            )
        await self._files.create(path, content)
        return f"New file created successfully at: {path}"

    async def _edit(self, path: str, edit: Callable[[bytes], Change]) -> str:
        def change(content: bytes) -> tuple[bytes, str]:
            changed = edit(content)
            if changed.content == content:
                return content, "[Nothing changed: the new text is the same as the old text.]\n"
            snippet = render_snippet(changed, self._n_snippet_lines) if self._n_snippet_lines else ""
            return changed.content, snippet

        done = await self._files.rewrite(path, change)
        text = f"The file {path} has been edited successfully.\n{done.report}"
        if done.read_only:
            text += "[The file is marked read-only; it was changed all the same and keeps its mode.]\n"
        return text.removesuffix("\n")


def _missing_argument(field: str, command: str) -> ToolError:
    return ToolError(f"`{field}` is required for the command `{command}`.")


def _text(arguments: Mapping[str, Any], field: str) -> bytes:
    text = arguments.get(field)
    if text is None:
        raise _missing_argument(field, arguments["command"])
    if not isinstance(text, str):
        raise ToolError(f"`{field}` must be a string.")
    return encode(text, field)


def _integer(number: object) -> int | None:
    """`number` if it is integral; JSON writes some integers as 1.0."""
    if isinstance(number, bool) or not isinstance(number, int | float):
        return None
    if abs(number) > _MAX_INTEGER or number != number // 1:
        return None
    return int(number)


def _insert_line(number: object) -> int:
    if number is None:
        raise _missing_argument("insert_line", "insert")
    line = _integer(number)
    if line is None:
        raise ToolError(
            "`insert_line` must be an integer: the line after which to insert, 0 for the beginning."
        )
    return line


def _view_range(numbers: object) -> tuple[int, int] | None:
    if numbers is None:
        return None
    pair = [_integer(number) for number in numbers] if isinstance(numbers, list) else []
    if len(pair) != 2 or pair[0] is None or pair[1] is None:
        raise ToolError(
            "`view_range` must be two integers, [first, last]; -1 as last means the end of the file."
        )
    first, last = pair[0], pair[1]
    if first < 1:
        raise ToolError(f"Invalid `view_range` [{first}, {last}]: lines are counted from 1.")
    if last != -1 and last < first:
        raise ToolError(f"Invalid `view_range` [{first}, {last}]: last must be -1 or at least {first}.")
    return first, last

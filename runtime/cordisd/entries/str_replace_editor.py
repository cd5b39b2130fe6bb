"""Entry `str-replace-editor`: the tool that views, creates and edits files by absolute path."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import StringConstraints

from cordisd.errors import ShellError, ToolError
from cordisd.events import JsonObject
from cordisd.kernel.entry import Entry
from cordisd.kernel.scope import Scope
from cordisd.services.tools import ToolCall, ToolRegistry, ToolResult, ToolSchema
from cordisd.session.realm import Realm
from cordisd.settings import EntryConfig, NonNegativeInt, PositiveInt

if TYPE_CHECKING:
    from cordisd.editor.commands import Editor
    from cordisd.editor.files import FileAccess

_NAME = "str_replace_editor"
_DESCRIPTION = """\
View, create and edit text files.
* What you change stays changed: later calls, of bash too, see it.
* `view` on a file shows its lines with numbers, as `cat -n` does; `view` on a directory lists what is in \
it, two levels deep, without hidden items.
* `create` makes a new file with the parent directories it needs; it refuses a path that already exists.
* Long output is cut, and a note says what was left out; use `view_range` to go on.
Notes on `str_replace`:
* `old_str` must be exactly the text of one or more consecutive lines or a part of a line, with all blanks.
* `old_str` must occur exactly once in the file; include enough lines around the place to make it unique.
* `new_str` takes the place of `old_str`; without `new_str` the text is removed."""

_UNDO_DESCRIPTION = """
* `undo_edit` takes back the last edit of a file that this tool made, also a `create`; it can be repeated."""

_PARAMETERS: JsonObject = {
    "type": "object",
    "properties": {
        "command": {
            "type": "string",
            "enum": ["view", "create", "str_replace", "insert"],
            "description": "What to do.",
        },
        "path": {
            "type": "string",
            "description": "Absolute path of the file or directory, for example /repo/file.py or /repo.",
        },
        "file_text": {
            "type": "string",
            "description": "For `create`, required: the content of the new file.",
        },
        "old_str": {
            "type": "string",
            "description": "For `str_replace`, required: the text in the file to replace.",
        },
        "new_str": {
            "type": "string",
            "description": "For `str_replace`: the new text, nothing if left out. "
            "For `insert`, required: the lines to insert.",
        },
        "insert_line": {
            "type": "integer",
            "description": "For `insert`, required: the line after which to insert; 0 for the beginning.",
        },
        "view_range": {
            "type": "array",
            "items": {"type": "integer"},
            "description": "For `view` of a file: first and last line to show, for example [11, 12]; "
            "[11, -1] shows line 11 to the end.",
        },
    },
    "required": ["command", "path"],
}


class StrReplaceEditorConfig(EntryConfig):
    """What the editor shows, and how it is described to the model."""

    max_output_chars: PositiveInt = 16_000
    """Characters of a file or directory that one call shows; notes come on top."""

    snippet_lines: NonNegativeInt = 4
    """Lines shown before and after the change of an edit; 0 answers an edit with one line of text."""

    line_numbers: Literal["spaces", "tab"] = "spaces"
    """What follows the number of a line: two `spaces`, or one `tab`."""

    undo_edit: bool = False
    """Whether there is a fifth command `undo_edit`, in the tool's parameters and at the end of its
    description: it takes back the last 10 edits of a file, newest first, while nothing else changes it."""

    description: Annotated[str, StringConstraints(strip_whitespace=False, pattern=r"\S")] = _DESCRIPTION
    """The description of the tool for the model."""


def tool_schema(config: StrReplaceEditorConfig) -> ToolSchema:
    """What the model is shown of the tool."""
    if not config.undo_edit:
        return ToolSchema(_NAME, config.description, _PARAMETERS)
    parameters = copy.deepcopy(_PARAMETERS)
    parameters["properties"]["command"]["enum"].append("undo_edit")
    return ToolSchema(_NAME, config.description + _UNDO_DESCRIPTION, parameters)


class EditorTool:
    """The `Tool` over an `Editor`."""

    parallel_safe = False
    contract = 1

    def __init__(self, make: Callable[[], Editor], schema: ToolSchema) -> None:
        self.schema = schema
        self._make = make
        self._editor: Editor | None = None

    async def run(self, arguments: JsonObject, call: ToolCall) -> ToolResult:
        """Run a command of the editor, which is made at the first call, when all entries are mounted.

        Raises:
            ToolError: it failed, and has changed nothing.
        """
        if self._editor is None:
            self._editor = self._make()
        try:
            return ToolResult(await self._editor.run(arguments))
        except ShellError as failure:  # the files are where no shell can be started
            raise ToolError(str(failure)) from failure


class StrReplaceEditorEntry(Entry):
    """Offers the tool `str_replace_editor` in a session."""

    Config = StrReplaceEditorConfig
    lifetime = "session"
    needs = (Realm, ToolRegistry)

    @asynccontextmanager
    async def mount(self, scope: Scope) -> AsyncIterator[None]:
        from cordisd.editor.commands import Editor  # not needed before the first session
        from cordisd.editor.undo import UndoHistory

        config: StrReplaceEditorConfig = self.config
        realm = scope.get(Realm)
        async with AsyncExitStack() as cleanup:

            def make() -> Editor:
                return Editor(
                    _files_of(realm, cleanup),
                    lambda: realm.cwd,
                    max_output_characters=config.max_output_chars,
                    n_snippet_lines=config.snippet_lines,
                    number_gap="  " if config.line_numbers == "spaces" else "\t",
                    history=UndoHistory() if config.undo_edit else None,
                )

            cleanup.callback(scope.get(ToolRegistry).add(EditorTool(make, tool_schema(config))))
            yield


def _files_of(realm: Realm, cleanup: AsyncExitStack) -> FileAccess:
    """Access to the files that the session's other tools see, with the same rights."""
    if realm.place is None or realm.guardian is None:
        from cordisd.editor.local import LocalFiles

        return LocalFiles()
    from cordisd.editor.remote import RemoteFiles

    files = RemoteFiles(
        realm.place, partial(realm.guardian.enter, realm.home.session_id, main="cordisd.editor.remote:serve")
    )
    cleanup.callback(files.close)
    return files

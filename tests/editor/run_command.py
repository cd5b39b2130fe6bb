"""One editor command in a process of its own: `python run_command.py '{"command": …}'`; prints the text."""

from __future__ import annotations

import asyncio
import json
import resource
import sys

from cordisd.editor.commands import Editor
from cordisd.editor.local import LocalFiles
from cordisd.errors import ToolError


def main() -> None:
    arguments = json.loads(sys.argv[1])
    if limit := arguments.pop("file_size_limit", None):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    editor = Editor(LocalFiles(), lambda: "/", max_output_characters=16_000, n_snippet_lines=0)
    try:
        print(asyncio.run(editor.run(arguments)))
    except ToolError as failure:
        print(f"Error: {failure}")


if __name__ == "__main__":
    main()

"""Files of any bytes: every command answers or refuses in a few words, and a refusal changes nothing."""

from __future__ import annotations

import asyncio
import os
import tempfile

from hypothesis import example, given, settings
from hypothesis import strategies as st

from cordisd.editor.commands import Editor
from cordisd.editor.local import LocalFiles
from cordisd.errors import ToolError

pieces = st.sampled_from(
    [
        b"a",
        b"\n",
        b"\r\n",
        b"\r",
        b"\t",
        b" ",
        b"\0",
        b"\xef\xbb\xbf",
        b"\xc3\xa9",
        b"\xe9",
        b"\xff\xfe",
        b"\xf0\x9f",
    ]
)
contents = st.one_of(st.binary(max_size=40), st.lists(pieces, max_size=20).map(b"".join))
texts = st.one_of(st.text(max_size=8), st.text("a\n\r\t \0\ud83d", max_size=8))
commands = st.one_of(
    st.fixed_dictionaries(
        {
            "command": st.just("view"),
            "view_range": st.none() | st.lists(st.integers(-3, 9), min_size=1, max_size=3),
        }
    ),
    st.fixed_dictionaries({"command": st.just("str_replace"), "old_str": texts, "new_str": texts}),
    st.fixed_dictionaries(
        {"command": st.just("insert"), "insert_line": st.integers(-(2**70), 2**70), "new_str": texts}
    ),
    st.fixed_dictionaries(
        {"command": st.just("insert"), "insert_line": st.integers(0, 5), "insert_text": texts}
    ),
)


@settings(max_examples=400, deadline=None)
@example(b"", [{"command": "view", "view_range": [1, 1]}])
@example(b"\xef\xbb\xbf\r\n", [{"command": "str_replace", "old_str": "\n", "new_str": ""}])
@given(contents, st.lists(commands, min_size=1, max_size=4))
def test_any_file_is_answered_or_refused(content: bytes, script: list[dict[str, object]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(check(os.path.join(folder, "a"), content, script))
        assert os.listdir(folder) == ["a"]


async def check(path: str, content: bytes, script: list[dict[str, object]]) -> None:
    editor = Editor(LocalFiles(), lambda: "/", max_output_characters=16_000, n_snippet_lines=4)
    with open(path, "wb") as file:
        file.write(content)
    for arguments in script:
        try:
            told = await editor.run({"path": path, **arguments})
        except ToolError as failure:
            assert len(str(failure).encode()) <= 2_000
            changed = False
        else:
            told.encode()
            changed = arguments["command"] != "view"
        with open(path, "rb") as file:
            now = file.read()
        if not changed:
            assert now == content
        content = now

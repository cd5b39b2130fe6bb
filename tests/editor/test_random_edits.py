"""Random edit scripts on real files against a model that knows a file as a list of (shown, stored) atoms."""

from __future__ import annotations

import asyncio
import os
import tempfile
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from cordisd.editor.commands import Editor
from cordisd.editor.local import LocalFiles
from cordisd.editor.undo import UndoHistory
from cordisd.errors import ToolError

BOM = b"\xef\xbb\xbf"

pieces = st.lists(
    st.sampled_from(["a", "b", "é", "\t", "\n", "\n", "\r\n", "\r\n", "\r", "\u2028"]), max_size=14
)
texts = pieces.map("".join)
replacements = st.tuples(st.just("str_replace"), st.integers(0, 20), st.integers(1, 6), texts)
inner_replacements = st.tuples(st.just("inner"), st.integers(0, 20), st.integers(3, 8), texts)
free_replacements = st.tuples(st.just("free"), st.just(0), st.just(0), texts.filter(bool))
insertions = st.tuples(st.just("insert"), st.integers(-1, 20), st.just(0), texts)
undos = st.tuples(st.just("undo"), st.just(0), st.just(0), st.just(""))


@dataclass(frozen=True)
class Atom:
    shown: str
    stored: bytes


def atoms_of(body: bytes) -> list[Atom]:
    """CRLF pairs as one atom that is shown as a newline, all else as it is."""
    text, atoms, at = body.decode(), [], 0
    while at < len(text):
        if text[at : at + 2] == "\r\n":
            atoms.append(Atom("\n", b"\r\n"))
            at += 2
        else:
            atoms.append(Atom(text[at], text[at].encode()))
            at += 1
    return atoms


def stored(atoms: list[Atom]) -> bytes:
    return b"".join(atom.stored for atom in atoms)


def written(body: list[Atom], text: str) -> bytes:
    """`text` in the line ends that prevail in `body`, or verbatim where there is no CRLF."""
    ends = [atom.stored for atom in body if atom.shown == "\n"]
    n_crlf = ends.count(b"\r\n")
    if n_crlf == 0:
        return text.encode()
    end = b"\r\n" if n_crlf > len(ends) - n_crlf else b"\n"
    return b"".join(end if atom.shown == "\n" else atom.stored for atom in atoms_of(text.encode()))


def model_view(body: bytes) -> list[str]:
    """The rows of a view, the line end of the last one included."""
    rows, row = [], ""
    for atom in atoms_of(body):
        if atom.shown == "\n":
            rows, row = [*rows, row], ""
        else:
            row += atom.shown
    return [f"{n:6}  {line}\n" for n, line in enumerate([*rows, row] if row else rows, 1)]


def model_replace(body: bytes, old: str, new: str) -> bytes | str:
    """The body after the replacement; where `old` is not unique, what the error says of that."""
    atoms = atoms_of(body)
    if any(atom.stored == b"\r\n" for atom in atoms):
        wanted, put = ([atom.shown for atom in atoms_of(text.encode())] for text in (old, new))
    else:
        wanted, put = list(old), list(new)
        atoms = [Atom(char, char.encode()) for char in body.decode()]
    found = [
        at for at in range(len(atoms)) if [atom.shown for atom in atoms[at : at + len(wanted)]] == wanted
    ]
    if not found:
        return "No match"
    if len(found) > 1:
        lines = list(dict.fromkeys(1 + sum(atom.shown == "\n" for atom in atoms[:at]) for at in found))
        shown = ", ".join(map(str, lines))
        return f"occurs {len(found)} times" if len(found) > 10 else f"{len(found)} times … {shown}."
    start, stop = found[0], found[0] + len(wanted)
    while wanted and put and wanted[0] == put[0]:
        wanted, put, start = wanted[1:], put[1:], start + 1
    while wanted and put and wanted[-1] == put[-1]:
        wanted, put, stop = wanted[:-1], put[:-1], stop - 1
    return stored(atoms[:start]) + written(atoms, "".join(put)) + stored(atoms[stop:])


def model_insert(body: bytes, after_line: int, text: str) -> bytes | str:
    """The body after the insertion; where there is no such line, what the error says of that."""
    atoms = atoms_of(body)
    line_ends = [at + 1 for at, atom in enumerate(atoms) if atom.shown == "\n"]
    n_lines = len(line_ends) + (bool(atoms) and atoms[-1].shown != "\n")
    if not 0 <= after_line <= n_lines:
        return f"must be in [0, {n_lines}]"
    block = written(atoms, text if text.endswith("\n") else text + "\n")
    if after_line == 0:
        return block + body
    if after_line > len(line_ends):
        return body + written(atoms, "\n") + block
    cut = line_ends[after_line - 1]
    return stored(atoms[:cut]) + block + stored(atoms[cut:])


@settings(max_examples=250, deadline=None)
@given(
    mark=st.sampled_from([b"", BOM]),
    start=st.lists(pieces, max_size=3).map(lambda lists: "".join("".join(part) for part in lists).encode()),
    script=st.lists(
        st.one_of(replacements, inner_replacements, free_replacements, insertions, undos),
        min_size=1,
        max_size=8,
    ),
    n_names=st.sampled_from([1, 1, 1, 1, 1, 1, 1, 2]),
)
def test_random_edit_scripts_change_what_the_model_changes(
    mark: bytes, start: bytes, script: list, n_names: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "a")
        with open(path, "wb") as file:
            file.write(mark + start)
        if n_names == 2:
            os.link(path, os.path.join(folder, "b"))
        asyncio.run(check(path, mark, start, script))
        assert len(os.listdir(folder)) == n_names


async def check(path: str, mark: bytes, body: bytes, script: list) -> None:
    editor = Editor(
        LocalFiles(),
        lambda: "/",
        max_output_characters=16_000,
        n_snippet_lines=2,
        history=UndoHistory(),
    )
    earlier: list[bytes] = []
    for kind, at, length, text in script:
        arguments: dict[str, object] = {"command": "str_replace", "path": path}
        if kind == "undo":
            arguments["command"] = "undo_edit"
            expected = earlier.pop() if earlier else "no edit"
        elif kind == "insert":
            arguments |= {"command": "insert", "insert_line": at, "new_str": text}
            expected = model_insert(body, at, text)
        else:
            shown = "".join(atom.shown for atom in atoms_of(body))
            old = text[:3] if kind == "free" else shown[at : at + length]
            if not old:
                continue
            new = old[:2] + text + old[-2:] if kind == "inner" else text
            arguments |= {"old_str": old, "new_str": new}
            expected = model_replace(body, old, new)
        try:
            await editor.run(arguments)
        except ToolError as failure:
            assert isinstance(expected, str)
            assert all(part in str(failure) for part in expected.split(" … "))
        else:
            assert isinstance(expected, bytes)
            if kind != "undo" and expected != body:
                earlier.append(body)
            body = expected
        with open(path, "rb") as file:
            assert file.read() == mark + body
        _, *rows = (await editor.run({"command": "view", "path": path})).split(":\n", 1)
        assert rows == ["".join(model_view(body)) or "[The file is empty.]\n"]

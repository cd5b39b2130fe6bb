"""The text the model gets for the lines of a file."""

from __future__ import annotations

import codecs

from cordisd.editor.failures import shown
from cordisd.editor.text import BOM, Change, check_binary, not_utf8
from cordisd.errors import ToolError

_MAX_BYTES_OF_CHARACTER = 4
_MAX_SNIPPET_LINES = 20
_MAX_SNIPPET_LINE_CHARACTERS = 500


class LineWindow:
    """The lines from `first` on of a file that is fed block by block, in bounded memory.

    Keeps enough bytes for `max_characters` of text; the rest of the file is only counted.
    """

    def __init__(self, path: str, first: int, max_characters: int) -> None:
        self._path = path
        self._first = first
        self._max_kept_bytes = (max_characters + 1) * _MAX_BYTES_OF_CHARACTER
        self._kept = bytearray()
        self._n_line_ends = 0
        self._started = False
        self._ends_line = True

    def feed(self, block: bytes) -> None:
        """Take the next bytes of the file.

        Raises:
            ToolError: it is a binary file.
        """
        check_binary(block, self._path)
        if not self._started:
            self._started = True
            block = block.removeprefix(BOM)
        if not block:
            return
        room = self._max_kept_bytes - len(self._kept)
        if room > 0:
            n_skipped = max(0, self._first - 1 - self._n_line_ends)
            parts = block.split(b"\n", n_skipped) if n_skipped else [block]
            if len(parts) > n_skipped:
                self._kept += parts[-1][:room]
        self._n_line_ends += block.count(b"\n")
        self._ends_line = block.endswith(b"\n")

    @property
    def n_lines(self) -> int:
        """Lines of the file so far; a final line end does not start another one."""
        return self._n_line_ends + (not self._ends_line)

    def lines(self, n_wanted: int) -> list[str]:
        """The first `n_wanted` lines kept, without line ends. The last one may be cut if memory was full.

        Raises:
            ToolError: they are not UTF-8.
        """
        if n_wanted <= 0:
            return []
        ends = bytes(self._kept).split(b"\n", n_wanted)
        complete = len(ends) > n_wanted
        raw = b"\n".join(ends[:n_wanted])
        full = complete or len(self._kept) < self._max_kept_bytes
        try:
            text = codecs.getincrementaldecoder("utf-8")().decode(raw, final=full)
        except UnicodeDecodeError as failure:
            line = self._first + raw.count(b"\n", 0, failure.start)
            raise not_utf8(self._path, line, raw[failure.start]) from failure
        if complete:
            text += "\n"
        lines = text.replace("\r\n", "\n").split("\n")
        return lines[:-1] if lines[-1] == "" else lines


def render_file(
    path: str, window: LineWindow, view_range: tuple[int, int] | None, max_characters: int, gap: str
) -> str:
    """Header, numbered lines and, where something is left out, a note that says what.

    Raises:
        ToolError: the range does not fit the file, or the lines are not UTF-8.
    """
    n_lines = window.n_lines
    first, last = view_range or (1, -1)
    if first > max(n_lines, 1):
        raise ToolError(
            f"Invalid `view_range` [{first}, {last}]: {shown(path)} has {n_lines} lines, "
            f"so the first number must be in [1, {n_lines}]."
        )
    wanted = n_lines if last == -1 else min(last, n_lines)
    n_wanted = wanted - first + 1
    rows, n_whole = _rows(window.lines(n_wanted), first, max_characters, gap)
    suffix = f" with view_range=[{first}, {last}]" if view_range else ""
    header = (
        f"Here's the content of {path} with line numbers (which has a total of {n_lines} lines){suffix}:\n"
    )
    notes = ""
    if n_lines == 0:
        notes += "[The file is empty.]\n"
    elif last > n_lines:
        notes += f"[view_range ends at {last}, but the last line is {n_lines}.]\n"
    if n_whole < n_wanted:
        notes += _clip_note(first, n_whole, wanted, n_lines, max_characters)
    return header + "".join(rows) + notes


def _rows(lines: list[str], first: int, max_characters: int, gap: str) -> tuple[list[str], int]:
    """Numbered rows up to `max_characters`, and how many of them are whole: if none, a part of the first."""
    rows: list[str] = []
    room = max_characters
    for number, line in enumerate(lines, first):
        row = f"{number:6}{gap}{line}\n"
        room -= len(row)
        if room < 0:
            return rows or [row[: max_characters - 1] + "\n"], len(rows)
        rows.append(row)
    return rows, len(rows)


def _clip_note(first: int, n_whole: int, wanted: int, n_lines: int, max_characters: int) -> str:
    if n_whole == 0:
        return (
            f"[Line {first} is longer than the output limit of {max_characters} characters and was cut. "
            f"Use bash, for example cut -c, to see the rest.]\n"
        )
    last = first + n_whole - 1
    following = min(wanted, last + n_whole)
    return (
        f"[The output limit of {max_characters} characters is reached: lines {first}-{last} of {n_lines} "
        f"are shown. Continue with view_range [{last + 1}, {following}].]\n"
    )


def render_snippet(change: Change, n_context: int, gap: str) -> str:
    """The changed lines and `n_context` lines on both sides, numbered; a long middle is left out."""
    content = change.content
    begin = _line_start(content, change.start, n_context)
    stop = (
        change.end - 1
        if change.end > change.start and content[change.end - 1 : change.end] == b"\n"
        else change.end
    )
    for _ in range(n_context + 1):
        stop = content.find(b"\n", stop) + 1 or len(content)
    number = content.count(b"\n", 0, begin) + 1
    lines = (
        content[begin:stop]
        .removeprefix(BOM if begin == 0 else b"")
        .decode()
        .replace("\r\n", "\n")
        .split("\n")
    )
    if lines[-1] == "":
        del lines[-1]
    if not lines:
        return "[The file is empty now.]\n"
    last = number + len(lines) - 1
    half = _MAX_SNIPPET_LINES // 2 + n_context
    if len(lines) <= 2 * half:
        shown = _numbered(lines, number, gap)
    else:
        middle = f"        [{len(lines) - 2 * half} more changed lines]\n"
        shown = _numbered(lines[:half], number, gap) + middle + _numbered(lines[-half:], last - half + 1, gap)
    return f"Lines {number}-{last} are now:\n{shown}"


def _numbered(lines: list[str], first: int, gap: str) -> str:
    return "".join(f"{number:6}{gap}{_shortened(line)}\n" for number, line in enumerate(lines, first))


def _line_start(content: bytes, offset: int, n_lines_before: int) -> int:
    start = content.rfind(b"\n", 0, offset) + 1
    for _ in range(n_lines_before):
        if start == 0:
            break
        start = content.rfind(b"\n", 0, start - 1) + 1
    return start


def _shortened(line: str) -> str:
    if len(line) <= _MAX_SNIPPET_LINE_CHARACTERS:
        return line
    return (
        f"{line[:_MAX_SNIPPET_LINE_CHARACTERS]} [{len(line) - _MAX_SNIPPET_LINE_CHARACTERS} more characters]"
    )

"""The screen of a terminal as a person would see it, drawn by the library pyte.

pyte is a pure Python emulator of the Linux console (LGPL-3, used unchanged; last release in 2023, the only
one of its kind in use). pexpect has a screen too (`pexpect.ANSI`), but it is deprecated, knows neither
UTF-8 nor scroll regions, and drops what it does not know. Two parts of pyte are not used, because output is
hostile: its parser, which raises on parameters that a command does not take and then forgets the rest, and
its `display`, which fails on half of a wide character. So the sequences are told apart here, and handed to
the methods of its screen by its own table.

Drawing costs about 1 µs a character. What scrolls away unseen is therefore never drawn: a flood of plain
lines costs its last lines only. The rest is drawn in the order it came, a few milliseconds at a time; who
feeds the screen holds the program back meanwhile.
"""

from __future__ import annotations

import codecs
import contextlib
import re
import time
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

import pyte
import pyte.modes
from wcwidth import wcwidth

_MAX_SEQUENCE_CHARS = 4096
_MAX_MARKS = 8
"""Combining marks on one character; more would make a cell grow without end."""
_WORTH_SKIPPING_CHARS = 2048
_APPLICATION_KEYS = 1 << 5  # DECCKM, as pyte keeps private modes
_IGNORED_MODES = frozenset({3, 5})  # 132 columns, reverse video: neither changes what the model sees
_ALTERNATE_SCREENS = frozenset({47, 1047, 1049})

_MOVES = frozenset({"cursor_position", "cursor_to_line", "set_margins"})

_TOKEN = re.compile(
    r"(?P<text>[^\x00-\x1f\x7f-\x9f]{1,512})"  # so much is drawn at once
    r"|\x1b\[(?P<private>\??)(?P<params>[0-9;]{0,256})(?P<final>[@-Z\\-~])"
    r"|(?P<control>[\x00-\x1a\x1c-\x1f\x7f-\x9f])"
    r"|\x1b\[\[."  # the Linux console takes it for a function key
    r"|\x1b\[[0-?]*+[ -/]*+(?:[@-~]|(?=[^@-~]))"  # with parameters that pyte does not know, or broken off
    r"|\x1b\][^\x07\x18\x1a\x1b\n]*(?:\x07|\x1b\\|(?=[\x18\x1a\x1b\n]))"
    r"|\x1b[PX^_][^\x1b\n]*(?:\x1b\\|(?=[\x1b\n]))"
    r"|\x1b[ -/]++(?:[0-~]|(?=[^0-~]))"
    r"|\x1b(?P<escape>[0-OQ-WYZ\\`-~])"
    r"|\x1b(?=[^ -~])",
    re.DOTALL,
)
_LINES = re.compile(r"(?:[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]++|\x1b\[[0-9;]{0,256}[mK])*+")
"""What moves the cursor along its line or to the next one only."""
_LONG_LINE = re.compile(r"[\x20-\x7e]+")


@dataclass(frozen=True, slots=True)
class Picture:
    """What the screen shows. Rows below the last one that holds anything, or the cursor, are left out."""

    rows: list[str]
    row: int
    """Of the cursor, from 1."""
    column: int
    """Of the cursor, from 1."""
    n_rows: int
    n_columns: int


class Screen:
    """Takes bytes at once and draws them when told. `answer` gets the replies to the program's queries."""

    def __init__(self, rows: int, columns: int, answer: Callable[[bytes], None]) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pending = ""
        self.rearranged = False
        """Set when the program moves to a place of its choice: its output is no text, read line by line."""
        self._answer = answer
        self._main = self._shown = _Canvas(rows, columns, answer)

    def take(self, data: bytes) -> None:
        """Note what the program has printed."""
        self._pending += self._decoder.decode(data)

    @property
    def n_pending_chars(self) -> int:
        """How much is not drawn yet."""
        return len(self._pending)

    @property
    def application_keys(self) -> bool:
        """Whether the program has asked for the other form of the arrow keys."""
        return _APPLICATION_KEYS in self._shown.mode

    def advance(self, limit_s: float) -> bool:
        """Draw for about this long; True when nothing is left but the beginning of a sequence."""
        end_s = time.perf_counter() + limit_s
        pending, at, lines_end = self._pending, 0, 0
        while at < len(pending):
            if at >= lines_end:
                lines_end = self._end_of_lines(pending, at)
                at = self._skip_unseen(pending, at, lines_end)
            token = _TOKEN.match(pending, at)
            if token is None:
                if len(pending) - at < _MAX_SEQUENCE_CHARS:
                    break  # its end is still to come
                at += 1
                continue
            self._draw(token)
            at = token.end()
            if time.perf_counter() >= end_s:
                break
        else:
            at = len(pending)
        self._pending = pending[at:]
        return not self._pending or _TOKEN.match(self._pending) is None

    def picture(self) -> Picture:
        """What is drawn by now."""
        canvas = self._shown
        rows = [_row_text(canvas, y) for y in range(canvas.lines)]
        n_used = max((y + 1 for y, text in enumerate(rows) if text), default=0)
        return Picture(
            rows[: max(n_used, canvas.cursor.y + 1)],
            canvas.cursor.y + 1,
            min(canvas.cursor.x + 1, canvas.columns),
            canvas.lines,
            canvas.columns,
        )

    def _draw(self, token: re.Match[str]) -> None:
        canvas = self._shown
        if token["text"]:
            canvas.draw(token["text"])
            return
        arguments: list[int] = []
        private = False
        if token["control"]:
            name = _CONTROLS.get(token["control"])
        elif token["final"]:
            arguments = [min(int(digits[-5:] or 0), 9999) for digits in token["params"].split(";")]
            private = bool(token["private"])
            name = pyte.Stream.csi.get(token["final"])
            if private and name in ("set_mode", "reset_mode"):
                if _ALTERNATE_SCREENS.intersection(arguments):
                    self._switch(alternate=name == "set_mode")
                    return
                arguments = [mode for mode in arguments if mode not in _IGNORED_MODES]
        else:
            name = pyte.Stream.escape.get(token["escape"] or "")
        self.rearranged |= name in _MOVES
        if name and name != "select_graphic_rendition":  # colours are not shown
            # Foreign code fed with hostile input: a sequence that it cannot take is a sequence ignored.
            with contextlib.suppress(Exception):
                getattr(canvas, name)(*arguments, **({"private": True} if private else {}))

    def _switch(self, *, alternate: bool) -> None:
        if alternate == (self._shown is not self._main):
            return
        modes = self._shown.mode
        if alternate:
            self._shown = _Canvas(self._main.lines, self._main.columns, self._answer)
        else:
            self._shown = self._main
        self._shown.mode = set(modes)

    def _end_of_lines(self, pending: str, at: int) -> int:
        lines = _LINES.match(pending, at)
        return max(lines.end() if lines else at, at + 1)

    def _skip_unseen(self, pending: str, at: int, end: int) -> int:
        """Where to go on: past what `pending[at:end]` scrolls out of the screen, if that is sure."""
        canvas = self._shown
        if end - at < _WORTH_SKIPPING_CHARS or canvas.margins or pyte.modes.IRM in canvas.mode:
            return at
        start = end
        for _ in range(canvas.lines + 1):
            start = pending.rfind("\n", at, start)
            if start < 0:
                break
        if start > at and pending[start - 1] == "\r" and pending.count("\n", at, start) >= canvas.lines:
            # The cursor is at the left of the last row, and each line from here scrolls the screen.
            canvas.erase_in_display(2)
            canvas.cursor_position(canvas.lines, 1)
            return start + 1
        line = _LONG_LINE.match(pending, at, end)
        n_chars = line.end() - at if line else 0
        n_surplus = n_chars - 2 * canvas.lines * canvas.columns
        if n_surplus > 0 and pyte.modes.DECAWM in canvas.mode:
            return at + n_surplus // canvas.columns * canvas.columns
        return at


class _Canvas(pyte.Screen):
    """pyte's screen, safe against what it cannot draw."""

    def __init__(self, rows: int, columns: int, answer: Callable[[bytes], None]) -> None:
        super().__init__(columns, rows)
        self._answer = answer
        self._n_marks = 0

    def draw(self, data: str) -> None:
        """Draw text. pyte would give up the rest of it at a character without a width."""
        super().draw(data if data.isascii() else "".join(filter(self._can_draw, data)))

    def save_cursor(self) -> None:
        """Like a real terminal, remember one; pyte would remember them all."""
        self.savepoints.clear()
        super().save_cursor()

    def write_process_input(self, data: str) -> None:
        """What pyte answers to a query of the program."""
        self._answer(data.encode())

    def _can_draw(self, character: str) -> bool:
        if unicodedata.combining(character):
            self._n_marks += 1
            return self._n_marks <= _MAX_MARKS
        self._n_marks = 0
        return wcwidth(character) > 0


_CONTROLS = {
    control: name for control, name in pyte.Stream.basic.items() if name not in ("shift_in", "shift_out")
}
"""In UTF-8 there are no other character sets to shift to."""


def _row_text(canvas: pyte.Screen, y: int) -> str:
    """A row without the blanks at its end. A wide character fills two cells, the second is empty."""
    line = canvas.buffer[y]
    cells: list[str] = []
    for x in range(canvas.columns):
        data = line[x].data
        if not data and not (cells and wcwidth(cells[-1][:1]) == 2):
            data = " "  # the first half was overwritten
        cells.append(data)
    return "".join(cells).rstrip()

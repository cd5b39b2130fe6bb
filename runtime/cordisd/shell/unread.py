"""What a terminal has printed and the model has not seen yet, and the search for a pattern in it.

The search is pexpect's: an `Expecter` with a `searcher_re` over the buffer of a `SpawnBase`. Of pexpect's
own spawn nothing is used (it sleeps before each send), nor its async mode (it cuts large sends short).
Patterns are those of RE2, not of Python's `re`, and not of `regex`: the model writes them, RE2 answers in
linear time and in bounded memory, and the other two can hold the interpreter, or fill the memory, for good.
"""

from __future__ import annotations

import codecs
import re
import time
from io import StringIO
from typing import Any

import re2
from pexpect.expect import Expecter, searcher_re
from pexpect.spawnbase import SpawnBase

from cordisd.errors import ToolError
from cordisd.shell.output import Capture

KEPT_CHARS = 64 * 1024
"""Of the newest unread text, at least this much can be searched."""
_PIECE_CHARS = 4096
_WINDOW_CHARS = 4096
"""What has been searched in vain and may still be the beginning of a match."""
_WITHIN_LINE = "\0"
"""Stands before text that begins within a line, where `^` must not match. The text itself holds none."""
_MAX_HELD_CHARS = 4096
_MAX_PATTERN_CHARS = 1000
_MAX_PROGRAM = 1000
"""Instructions of a compiled pattern: 10 ms for a piece of text at the worst."""

_RETURNS = re.compile(r"\r+")
_ESCAPE = re.compile(r"[\x1b\udc80-\udcff]")
_INVALID = re.compile(r"[\udc80-\udcff]")
_CONTROLS = re.compile(r"[\x00-\x07\x0b\x0c\x0e-\x1f\x7f]+")
_SEQUENCE = re.compile(
    r"(?:\x1b\[|\udc9b)[0-?]*+[ -/]*+[@-~]?"
    r"|(?:\x1b\]|\udc9d)[^\x07\x18\x1a\x1b\n\udc9c]*+(?:\x07|\x1b\\|\udc9c)?"
    r"|\x1b[PX^_][^\x1b\n]*+(?:\x1b\\)?"
    r"|[\udc90\udc98\udc9e\udc9f][^\x1b\n\udc9c]*+\udc9c?"
    r"|\x1b[ -/]*+[0-~]?"
)
"""Like those of `render`, but a string sequence ends with its line, because nobody can wait for its end."""
_FINISHED = re.compile(
    r"(?:[^\x1b\udc90\udc98\udc9b\udc9d-\udc9f]++"
    r"|(?:\x1b\[|\udc9b)[0-?]*+[ -/]*+(?:[@-~]|(?!\Z))"
    r"|(?:\x1b\]|\udc9d)[^\x07\x18\x1a\x1b\n\udc9c]*+(?:\x07|\x1b\\|\udc9c|(?!\x1b?\Z))"
    r"|\x1b[PX^_][^\x1b\n]*+(?:\x1b\\|(?!\x1b?\Z))"
    r"|[\udc90\udc98\udc9e\udc9f][^\x1b\n\udc9c]*+(?:\udc9c|(?!\Z))"
    r"|\x1b(?![\[\]PX^_])[ -/]*+(?:[0-~]|(?!\Z)))*+"
)
"""Text, and sequences that nothing to come can lengthen."""


def compiled(pattern: str) -> Any:
    """The pattern for `Unread.look_for`; `^` and `$` are the ends of a line.

    Raises:
        ToolError: it is no pattern of RE2, or too large.
    """
    if len(pattern) > _MAX_PATTERN_CHARS:
        raise ToolError(f"the pattern is too long: {len(pattern)} characters, at most {_MAX_PATTERN_CHARS}")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = 4 << 20
    try:
        found = re2.compile(f"(?m){pattern}", options)
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error, re2.error) else str(error)
        raise ToolError(
            f"invalid pattern: {reason.replace('(?m)', '', 1)} (the syntax is that of RE2: no look-around, "
            r"no back-references; to mean one of \.[]{}()*+?^$| put a backslash before it)"
        ) from error
    if found.programsize > _MAX_PROGRAM:
        raise ToolError("the pattern is too large: use smaller repetition counts")
    return found


class _Buffer(SpawnBase):  # type: ignore[misc]
    """pexpect's buffer, without a process: the window that is searched."""

    buffer: str
    _before: StringIO

    def __init__(self) -> None:
        super().__init__(encoding="utf-8")

    def shorten(self) -> None:
        """Forget what no match can begin in any more, up to the beginning of a line, where `^` is."""
        window: str = self.buffer
        if len(window) > 2 * _WINDOW_CHARS:
            cut = len(window) - _WINDOW_CHARS
            line = window.rfind("\n", 0, cut) + 1
            self.buffer = window[line:] if line else _WITHIN_LINE + window[cut:]
        if self._before.tell() > len(window) + KEPT_CHARS:  # pexpect keeps all of it, for nobody
            self._before = StringIO()
            self._before.write(self.buffer)


class Unread:
    """Takes bytes, looks for a pattern in their text, and gives out what comes up to its match, or all.

    Memory is bounded: in the middle of very much text, some is dropped and counted.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._held = ""
        """The end of the text, where it may be the beginning of an escape sequence."""
        self._return = ""
        """The carriage return at the end of the text, where it may belong to the end of a line."""
        self._older = Capture()
        """What is too old to be searched."""
        self._last_old = "\n"
        """The last character before the recent ones."""
        self._recent = ""
        self._n_skipped = 0
        self._n_searched = 0
        self._match_end: int | None = None
        self._buffer = _Buffer()
        self._expecter: Expecter | None = None

    def take(self, data: bytes, *, final: bool = False) -> None:
        """Add what the program has printed; `final`: nothing more will come."""
        text = self._held + self._decoder.decode(data, final)
        finished = _FINISHED.match(text)
        cut = finished.end() if finished and not final else len(text)
        if len(text) - cut > _MAX_HELD_CHARS:
            cut = len(text)
        self._held = text[cut:]
        text = _lines(self._return + _plain(text[:cut]))
        self._return = "\r" if text.endswith("\r") and not final else ""
        self._recent += text.removesuffix(self._return)
        n_surplus = len(self._recent) - KEPT_CHARS
        if n_surplus > KEPT_CHARS:
            if self._match_end is not None:
                self._match_end = max(0, self._match_end - n_surplus)
            self._forget(n_surplus, self._older)

    @property
    def has_text(self) -> bool:
        """Whether anything is unread."""
        return bool(self._recent or self._older.n_bytes)

    @property
    def searched(self) -> bool:
        """Whether the pattern, if there is one, was looked for in all that has come."""
        return self._expecter is None or self._n_searched == len(self._recent)

    def skip(self) -> None:
        """What has come until now is not searched any more; it stays unread."""
        self._n_skipped = len(self._recent)

    def look_for(self, pattern: Any) -> None:
        """Search for this `compiled` pattern from now on, or for none, beginning at what is unread."""
        self._match_end = None
        self._n_searched = self._n_skipped
        self._buffer = _Buffer()
        if (self._recent[self._n_skipped - 1] if self._n_skipped else self._last_old) not in "\r\n":
            self._buffer.buffer = _WITHIN_LINE
        self._expecter = None if pattern is None else Expecter(self._buffer, searcher_re([pattern]))

    def search(self, limit_s: float) -> bool:
        """Go on with the search for about this long; True when the pattern was found."""
        if self._expecter is None:
            return False
        end_s = time.perf_counter() + limit_s
        while self._n_searched < len(self._recent):
            piece = self._recent[self._n_searched : self._n_searched + _PIECE_CHARS]
            self._n_searched += len(piece)
            # A line that is drawn again begins again, at a carriage return: there `^` is.
            if self._expecter.new_data(piece.replace("\r", "\n")) is not None:
                # Not `before`, which pexpect gets wrong for an empty match at the end.
                self._match_end = self._n_searched - len(self._buffer.buffer)
                self._expecter = None
                return True
            self._buffer.shorten()
            if time.perf_counter() >= end_s:
                break
        return False

    def consume(self) -> Capture:
        """All that is unread, but only up to the end of the match if there was one; it is read now."""
        end = len(self._recent) if self._match_end is None else self._match_end
        capture, self._older = self._older, Capture()
        self._forget(end, capture)
        self._n_skipped = 0
        self.look_for(None)
        return capture

    def _forget(self, n_chars: int, capture: Capture) -> None:
        """Move the oldest of the recent characters to `capture`."""
        if n_chars:
            capture.append(self._recent[:n_chars].encode())
            self._last_old = self._recent[n_chars - 1]
            self._recent = self._recent[n_chars:]
            self._n_skipped = max(0, self._n_skipped - n_chars)
            self._n_searched = max(0, self._n_searched - n_chars)


def _plain(text: str) -> str:
    """Text without escape sequences and control characters, with U+FFFD for bytes that are not UTF-8."""
    if _ESCAPE.search(text):
        text = _INVALID.sub("\ufffd", _SEQUENCE.sub("", text))
    return _CONTROLS.sub("", text)


def _lines(text: str) -> str:
    """Text with plain line ends, and one carriage return where there are several."""
    if "\r\r" in text:
        text = _RETURNS.sub("\r", text)
    return text.replace("\r\n", "\n")

"""Edits as pure functions on the bytes of a file; every byte outside the edit stays as it is.

UTF-8 is searched as bytes: no character's encoding occurs inside that of another. A byte order mark is hidden
from the model and kept. In a file with CRLF line ends, texts are compared with LF on both sides.
"""

from __future__ import annotations

from typing import NamedTuple

from cordisd.editor.failures import shown
from cordisd.editor.match import find_once
from cordisd.errors import ToolError

BOM = b"\xef\xbb\xbf"
_CRLF = b"\r\n"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


class Change(NamedTuple):
    """The whole new content of a file, and the span of it (byte offsets) that the edit wrote."""

    content: bytes
    start: int
    end: int


def encode(text: str, field: str) -> bytes:
    """`text` as UTF-8.

    Raises:
        ToolError: it has a NUL or a lone surrogate, which no text file can hold.
    """
    if "\0" in text:
        raise ToolError(
            f"`{field}` contains a NUL character; the editor writes text only. Use bash for binary files."
        )
    try:
        return text.encode()
    except UnicodeEncodeError as failure:
        code = ord(text[failure.start])
        raise ToolError(
            f"`{field}` contains a lone surrogate (U+{code:04X} at character {failure.start}), "
            f"which UTF-8 cannot hold. Write the whole character."
        ) from failure


def check_binary(block: bytes, path: str) -> None:
    """Raise `ToolError` if `block`, a part of the file `path`, shows that the file is not text."""
    if b"\0" in block:
        kind = "UTF-16 text" if block.startswith(_UTF16_MARKS) else "a binary file"
        raise ToolError(
            f"{shown(path)} seems to be {kind} (it contains NUL bytes); the editor handles UTF-8 text only. "
            f"Use bash."
        )


def not_utf8(path: str, line: int, byte: int) -> ToolError:
    """The error for a file whose line `line` has the undecodable `byte`."""
    return ToolError(
        f"{shown(path)} is not UTF-8 text (line {line} has the byte 0x{byte:02X}); the editor handles "
        f"UTF-8 text only. Use bash, for example iconv, to convert a copy."
    )


def check_text(content: bytes, path: str) -> None:
    """Raise `ToolError` unless `content` is UTF-8 text without NUL."""
    check_binary(content, path)
    try:
        content.decode()
    except UnicodeDecodeError as failure:
        line = content.count(b"\n", 0, failure.start) + 1
        raise not_utf8(path, line, content[failure.start]) from failure


def count_lines(body: bytes) -> int:
    """Lines of `body`; a final line end does not start another line."""
    return body.count(b"\n") + (not body.endswith(b"\n") and body != b"")


def replace_once(content: bytes, old: bytes, new: bytes, path: str) -> Change:
    """`content` with its only occurrence of `old` replaced by `new`.

    Raises:
        ToolError: not text, or `old` occurs never or more than once; the message has the lines.
    """
    check_text(content, path)
    mark, body = _without_bom(content)
    if _CRLF in body:
        start, end, written = _replacement_in_crlf(body, _lf(old), _lf(new), path)
    else:
        start, written = find_once(body, old, path), new
        end = start + len(old)
    start, end = start + len(mark), end + len(mark)
    return Change(content[:start] + written + content[end:], start, start + len(written))


def insert_lines(content: bytes, after_line: int, new: bytes, path: str) -> Change:
    """`content` with `new` as whole lines after line `after_line`; 0 puts them first.

    Raises:
        ToolError: not text, or there is no such line.
    """
    check_text(content, path)
    _, body = _without_bom(content)
    n_lines = count_lines(body)
    if not 0 <= after_line <= n_lines:
        raise ToolError(
            f"`insert_line` is {after_line}, but {shown(path)} has {n_lines} lines; it must be in "
            f"[0, {n_lines}] (0 inserts before the first line)."
        )
    written = _in_eol_of(body, new if new.endswith(b"\n") else new + b"\n")
    parts = body.split(b"\n", after_line)
    start = len(content) - len(parts[-1])
    if len(parts) <= after_line:  # after a last line without line end
        written = _in_eol_of(body, b"\n") + written
        start = len(content)
    return Change(content[:start] + written + content[start:], start, start + len(written))


def _without_bom(content: bytes) -> tuple[bytes, bytes]:
    return (BOM, content[len(BOM) :]) if content.startswith(BOM) else (b"", content)


def _lf(text: bytes) -> bytes:
    return text.replace(_CRLF, b"\n")


def _in_eol_of(body: bytes, text: bytes) -> bytes:
    """`text` with the line ends that most lines of `body` have; verbatim where `body` has no CRLF at all."""
    n_crlf = body.count(_CRLF)
    if n_crlf == 0:
        return text
    return _lf(text).replace(b"\n", _CRLF) if 2 * n_crlf > body.count(b"\n") else _lf(text)


def _replacement_in_crlf(body: bytes, old: bytes, new: bytes, path: str) -> tuple[int, int, bytes]:
    """Where in `body` to write, and what. `old` and `new` have LF.

    What `old` and `new` share at both ends is left alone, so that in a file of mixed line ends the context
    lines of an edit keep theirs.
    """
    at = find_once(_lf(body), old, path)
    head = _n_common(old, new)
    tail = _n_common(old[head:][::-1], new[head:][::-1])
    start = _offset_with_crlf(body, at + head)
    end = _offset_with_crlf(body, at + len(old) - tail)
    return start, end, _in_eol_of(body, new[head : len(new) - tail])


def _n_common(one: bytes, other: bytes) -> int:
    """How many bytes `one` and `other` share at the beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))


def _offset_with_crlf(body: bytes, offset: int) -> int:
    """The offset in `body` of what stands at `offset` once each CRLF of it is an LF."""
    passed = 0
    for line in body.split(_CRLF):
        if offset <= len(line):
            break
        passed += len(line) + len(_CRLF)
        offset -= len(line) + 1
    return passed + offset

"""Cuts a stream of bytes into lines, with a limit on their length."""

from __future__ import annotations


class FrameTooLongError(ValueError):
    """A line is longer than the limit."""


class LineSplitter:
    """Lines of a stream that arrives in pieces. Linear in the bytes, whatever the pieces."""

    __slots__ = ("_n_held_bytes", "_pieces", "max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._pieces: list[bytes] = []
        self._n_held_bytes = 0

    def feed(self, piece: bytes) -> list[bytes]:
        """The lines that `piece` completes, without their newline.

        Raises:
            FrameTooLongError: a line, complete or not, exceeds `max_bytes`. Do not feed it again.
        """
        lines = piece.split(b"\n")
        rest = lines.pop()
        if lines:
            if self._pieces:
                self._pieces.append(lines[0])
                lines[0] = b"".join(self._pieces)
            self._pieces = [rest] if rest else []
            self._n_held_bytes = len(rest)
        else:
            self._pieces.append(rest)
            self._n_held_bytes += len(rest)
        if max(self._n_held_bytes, max(map(len, lines), default=0)) > self.max_bytes:
            raise FrameTooLongError(f"a line of more than {self.max_bytes} bytes")
        return lines

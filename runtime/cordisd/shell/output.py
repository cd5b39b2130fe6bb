"""A bounded copy of an unbounded stream of bytes: its head, its tail, and exact counts of the rest."""

from __future__ import annotations

from collections import deque

from cordisd.shell.spill import Spill

HEAD_BYTES = 64 * 1024
TAIL_BYTES = 128 * 1024


class Capture:
    """Keeps the first and the last bytes of what is appended; cost per byte does not grow."""

    __slots__ = ("_head", "_head_bytes", "_tail", "_tail_bytes", "_tail_held", "n_bytes", "n_lines", "spill")

    def __init__(
        self, head_bytes: int = HEAD_BYTES, tail_bytes: int = TAIL_BYTES, spill: Spill | None = None
    ) -> None:
        self._head_bytes = head_bytes
        self._tail_bytes = tail_bytes
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_held = 0
        self.n_bytes = 0
        """All bytes appended."""
        self.n_lines = 0
        """All newlines appended."""
        self.spill = spill
        """Gets the whole stream once it is longer than the head."""

    def append(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        self.n_bytes += len(data)
        self.n_lines += data.count(b"\n")
        room = self._head_bytes - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
            if not data:
                return
        if self.spill is not None:
            if not self._tail:
                self.spill.append(self._head)
            self.spill.append(data)
        self._tail.append(data)
        self._tail_held += len(data)
        while self._tail_held - len(self._tail[0]) >= self._tail_bytes:
            self._tail_held -= len(self._tail.popleft())

    @property
    def complete(self) -> bool:
        """True while nothing has been dropped."""
        return len(self._head) + self._tail_held == self.n_bytes

    def head(self) -> bytes:
        """The first bytes; the whole stream, when `complete` and nothing is in the tail."""
        return bytes(self._head)

    def tail(self) -> bytes:
        """The last bytes that are not in the head."""
        held = b"".join(self._tail)
        return held if self.complete else held[-self._tail_bytes :]

    def locate(self) -> str:
        """Where a copy of the whole stream is, in words; nothing without a `spill`."""
        if self.spill is None:
            return ""
        if not self._tail:
            self.spill.append(self._head)
        return self.spill.locate()

    def clear(self) -> None:
        """Begin anew."""
        self._head.clear()
        self._tail.clear()
        self._tail_held = self.n_bytes = self.n_lines = 0

"""Server-sent events from bytes that arrive in any pieces (the WHATWG stream grammar)."""

from __future__ import annotations

_BOM = b"\xef\xbb\xbf"

ServerEvent = tuple[str, bytes]
"""Event name ("" when the server gave none) and data."""


class EventParser:
    """Feed it bytes as they come; it gives back the events that they complete.

    Works in time linear in the stream: an unfinished line is kept as pieces and joined once.
    """

    __slots__ = (
        "_at_start",
        "_data",
        "_event_bytes",
        "_line_bytes",
        "_max_event_bytes",
        "_name",
        "_pieces",
        "_skip_newline",
    )

    def __init__(self, max_event_bytes: int) -> None:
        self._max_event_bytes = max_event_bytes
        self._pieces: list[bytes] = []
        self._data: list[bytes] = []
        self._name = ""
        self._event_bytes = 0
        self._line_bytes = 0
        self._at_start = True
        self._skip_newline = False

    def feed(self, received: bytes) -> list[ServerEvent]:
        """The events completed by `received`.

        Raises:
            ValueError: one event is larger than the limit.
        """
        if not received:
            return []
        if self._skip_newline and received[0] == 0x0A:
            received = received[1:]
        self._skip_newline = received[-1:] == b"\r"
        if b"\r" in received:
            # A CR at the very end counts as a line end now; the LF that may follow is skipped above.
            received = received.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = received.split(b"\n")
        last = lines.pop()
        events: list[ServerEvent] = []
        if lines and self._pieces:
            self._pieces.append(lines[0])
            lines[0] = b"".join(self._pieces)
            self._pieces.clear()
            self._line_bytes = 0
        for line in lines:
            self._take(line, events)
        if last:
            self._pieces.append(last)
            self._line_bytes += len(last)
            self._check_size()
        return events

    def finish(self) -> list[ServerEvent]:
        """The event that the end of the stream cut off, if there is one; it may be incomplete."""
        events: list[ServerEvent] = []
        if self._pieces:
            line = b"".join(self._pieces)
            self._pieces.clear()
            self._take(line, events)
        self._take(b"", events)
        return events

    def _take(self, line: bytes, events: list[ServerEvent]) -> None:
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BOM)
        if line.startswith(b"data:"):
            self._data.append(line[6:] if line[5:6] == b" " else line[5:])
            self._event_bytes += len(line)
            self._check_size()
        elif not line:
            if self._data:
                data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                if data:
                    events.append((self._name, data))
                self._data.clear()
            self._name = ""
            self._event_bytes = 0
        else:
            field, _, value = line.partition(b":")
            if field == b"data":
                self._data.append(b"")
                self._event_bytes += len(line)
            elif field == b"event":
                self._name = value.removeprefix(b" ").decode("utf-8", "replace")

    def _check_size(self) -> None:
        if self._event_bytes + self._line_bytes > self._max_event_bytes:
            raise ValueError(f"a server-sent event is larger than {self._max_event_bytes} bytes")

"""Frames: one compact JSON value per line of bytes, in both directions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from cordisd.errors import InvalidRequestError
from cordisd.events import Event, JsonObject, encode_json
from cordisd.session.log import Notice
from cordisd.wire import MAX_FRAME_BYTES

OVERSIZE: Final = b"\n"
"""What `FrameSplitter` yields in the place of a line that was too long; no real line can be this."""


class FrameSplitter:
    """Cuts a byte stream into lines, whatever the pieces it arrives in.

    A line of more than `max_bytes` is dropped up to its newline and yields one `OVERSIZE`. A last line
    without a newline is never yielded. `max_bytes` may be changed on the way.
    """

    def __init__(self, max_bytes: int = MAX_FRAME_BYTES) -> None:
        self.max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._size = 0
        self._dropping = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The lines that `data` completes, without their newline (a CR before it is white space)."""
        *lines, tail = data.split(b"\n")
        for line in lines:
            self._add(line)
            yield OVERSIZE if self._dropping else b"".join(self._parts)
            self._parts, self._size, self._dropping = [], 0, False
        self._add(tail)

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self.max_bytes:
            self._dropping = True
            self._parts = []
        elif part:
            self._parts.append(part)


class EncodedResult(dict[str, Any]):
    """A result that is JSON already, because to encode it would hold the event loop up."""

    def __init__(self, json: bytes) -> None:
        super().__init__()
        self.json = json


def response_frame(request_id: object, body: JsonObject) -> bytes:
    """The answer to a request; `body` holds either `result` or `error`."""
    return encode_answer({"jsonrpc": "2.0", "id": request_id, **body}) + b"\n"


def encode_answer(answer: JsonObject) -> bytes:
    """The JSON of an answer, or of one in a batch."""
    result = answer.get("result")
    if isinstance(result, EncodedResult):
        return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (encode_json(answer["id"]), result.json)
    return encode_json(answer)


class BatchAnswer:
    """The answers to a batch: as much of them as one frame may hold."""

    def __init__(self, max_bytes: int = MAX_FRAME_BYTES) -> None:
        self._room_bytes = max_bytes - len(b"[]")
        self._parts: dict[int, bytes] = {}

    def add(self, place: int, answer: JsonObject) -> None:
        """Put in the answer to request number `place`, or an error where there is no room for it any more."""
        part = encode_answer(answer)
        if len(part) > self._room_bytes:
            told = InvalidRequestError(
                "too long an answer for the rest of this batch's frame: ask for it alone"
            )
            error = {"code": told.rpc_code, "message": str(told)}
            part = encode_json({"jsonrpc": "2.0", "id": answer["id"], "error": error})
        self._parts[place] = part
        self._room_bytes -= len(part) + len(b",")

    def frame(self) -> bytes | None:
        """The frame, in the order of the requests; None without any answer."""
        parts = [self._parts[place] for place in sorted(self._parts)]
        return b"[%b]\n" % b",".join(parts) if parts else None


def notification_frame(item: Event | Notice, session_json: bytes) -> bytes:
    """The frame of one item of a session's log; `session_json` is the encoded session id."""
    if isinstance(item, Event):
        return event_frame(item.json, session_json)
    return encode_json({"jsonrpc": "2.0", "method": item.method, "params": item.params}) + b"\n"


def event_frame(event_json: bytes, session_json: bytes) -> bytes:
    """The frame of one event of a session; both are encoded already."""
    head = b'{"jsonrpc":"2.0","method":"session.event","params":{"sessionId":'
    return b'%b%b,"event":%b}}\n' % (head, session_json, event_json)

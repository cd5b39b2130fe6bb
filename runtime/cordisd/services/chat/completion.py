"""The bytes of one response to chunks: an event stream, or a JSON body where a stream was asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic_core import from_json

from cordisd.events import Failure, JsonObject, decode_json
from cordisd.services.chat.assemble import Assembler, failed
from cordisd.services.chat.failures import stated_failure
from cordisd.services.chat.sse import EventParser

Chunk = dict[str, Any]

MAX_EVENT_BYTES = 64 * 1024 * 1024
"""Limit of one server-sent event, and of a JSON body."""

_EXCERPT_CHARS = 120
_EXCERPT_BYTES = 4 * _EXCERPT_CHARS


def parse_json(data: bytes) -> Any:
    """The value of a JSON text; lone surrogates survive, NaN and Infinity are refused.

    Raises:
        ValueError: not JSON.
    """
    try:
        return from_json(data, allow_inf_nan=False, cache_strings="keys")
    except ValueError:
        # The fast parser refuses lone surrogates, which models do produce.
        try:
            return decode_json(data)
        except RecursionError as error:
            raise ValueError("nested too deeply") from error


class CompletionStream:
    """Feed it the body of a 200 answer; it gives chunks, and sets `finished` with the `finish` chunk.

    Does no I/O. However the bytes are cut into pieces, the chunks are the same.
    """

    def __init__(
        self,
        is_taken: Callable[[str], bool],
        first_call_number: int,
        max_event_bytes: int = MAX_EVENT_BYTES,
    ) -> None:
        self._assembler = Assembler(is_taken, first_call_number)
        self._events = EventParser(max_event_bytes)
        self._max_body_bytes = max_event_bytes
        self._opening = b""
        """The first bytes: enough to tell a JSON body from a stream, and to show what was neither."""
        self._json_parts: list[bytes] | None = None
        self._n_json_bytes = 0
        self._saw_event = False
        self.finished = False

    @property
    def answered(self) -> bool:
        """The server has named a finish reason: the answer is whole, whatever becomes of the connection."""
        return self._assembler.finish_reason is not None

    def feed(self, received: bytes) -> list[Chunk]:
        """The chunks that `received` adds."""
        if self.finished:
            return []
        if len(self._opening) < _EXCERPT_BYTES:
            started = bool(self._opening.strip())
            self._opening = (self._opening + received)[:_EXCERPT_BYTES]
            if not started and self._opening.strip()[:1] in (b"{", b"["):
                self._json_parts = []
        chunks: list[Chunk] = []
        if self._json_parts is not None:
            self._json_parts.append(received)
            self._n_json_bytes += len(received)
            if self._n_json_bytes > self._max_body_bytes:
                return self.fail(_malformed(f"the response body is larger than {self._max_body_bytes} bytes"))
            return chunks
        try:
            events = self._events.feed(received)
        except ValueError as error:
            return self.fail(_malformed(str(error)))
        for name, data in events:
            self._take(name, data, chunks)
            if self.finished:
                break
        return chunks

    def end(self) -> list[Chunk]:
        """The chunks that the end of the body adds; afterwards the stream is finished."""
        if self.finished:
            return []
        chunks: list[Chunk] = []
        if self._json_parts is not None:
            self._take_body(b"".join(self._json_parts), chunks)
            return chunks
        for name, data in self._events.finish():
            # The last event may lack its blank line; one that was cut in the middle is no JSON: dropped.
            if _is_whole(data):
                self._take(name, data, chunks)
        if self.finished:
            return chunks
        if self.answered:
            self._finish(chunks, done=False)
        elif not self._saw_event and not _opens_stream(self._opening):
            chunks += self.fail(_malformed(f"the response is no event stream: {_excerpt(self._opening)}"))
        else:
            message = "SSE stream ended without [DONE] and without a finish reason"
            chunks += self.fail({"message": message, "code": "STREAM_CLOSED"})
        return chunks

    def fail(self, failure: Failure) -> list[Chunk]:
        """End the attempt with `failure`."""
        self.finished = True
        return [failed(failure)]

    def _take(self, name: str, data: bytes, chunks: list[Chunk]) -> None:
        self._saw_event = True
        if data.strip() == b"[DONE]":
            self._finish(chunks)
            return
        try:
            completion = parse_json(data)
        except ValueError:
            completion = None
        if isinstance(completion, dict):
            if completion.get("error") or name == "error" or completion.get("object") == "error":
                chunks += self.fail(stated_failure(completion))
                return
            try:
                self._assembler.add(completion, chunks)
            except ValueError as error:
                chunks += self.fail(_malformed(f"malformed SSE payload ({error}): {_excerpt(data)}"))
        elif name in ("", "message", "error"):
            # Under any other name it is not addressed to us, as for every reader of event streams.
            chunks += self.fail(_malformed(f"malformed SSE payload: {_excerpt(data)}"))

    def _take_body(self, body: bytes, chunks: list[Chunk]) -> None:
        body = body.strip()
        try:
            answer = parse_json(body)
        except ValueError:
            chunks += self.fail(_malformed(f"malformed JSON response: {_excerpt(body)}"))
            return
        if isinstance(answer, list) and len(answer) == 1:
            answer = answer[0]
        if isinstance(answer, dict) and (answer.get("error") or answer.get("object") == "error"):
            chunks += self.fail(stated_failure(answer))
            return
        try:
            self._assembler.add(_as_delta(answer), chunks)
        except ValueError as error:
            chunks += self.fail(_malformed(f"the JSON response is no completion ({error}): {_excerpt(body)}"))
            return
        self._finish(chunks, streamed=False)

    def _finish(self, chunks: list[Chunk], **facts: bool) -> None:
        self.finished = True
        chunks += self._assembler.finish(facts)


def _as_delta(answer: object) -> JsonObject:
    """A `chat.completion` object in the shape of a stream's: its message is one delta.

    Raises:
        ValueError: it has no choice with a message.
    """
    choices = answer.get("choices") if isinstance(answer, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(answer, dict) or not isinstance(choice, dict) or not isinstance(message, dict):
        raise ValueError("there is no choices[0].message")
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        # Here each element is a call of its own, which a stream says by the index.
        calls = [{**call, "index": n} if isinstance(call, dict) else call for n, call in enumerate(calls)]
        message = {**message, "tool_calls": calls}
    return {**answer, "choices": [{**choice, "delta": message}]}


def _opens_stream(opening: bytes) -> bool:
    """Whether a body that begins so may be an event stream, cut short as it may be."""
    start = opening.lstrip().removeprefix(b"\xef\xbb\xbf")
    fields = (b":", b"data:", b"event:", b"id:", b"retry:")
    return any(start.startswith(field) or field.startswith(start) for field in fields)


def _is_whole(data: bytes) -> bool:
    if data.strip() == b"[DONE]":
        return True
    try:
        parse_json(data)
    except ValueError:
        return False
    return True


def _malformed(message: str) -> Failure:
    return {"message": message, "code": "MALFORMED_RESPONSE"}


def _excerpt(data: bytes) -> str:
    return data[:_EXCERPT_BYTES].decode("utf-8", "replace")[:_EXCERPT_CHARS]

"""A recording: what one session asked of its model, what came back, and what its tools said, in JSON lines.

    {"type": "recording", "version": 1, "session": …, "composition": …, "agent": {…}, "masks": {…},
     "secrets": […], "redact": […]}
    {"type": "prompt", "turn": 1, "content": [blocks]}  and "limits": {…}, if it came with some
    {"type": "request", "kept": 0, "messages": […], "members": {…}, "sha256": …}
    {"type": "response", "status": 200, "headers": {…}, "atMs": 12}
    {"type": "chunk", "atMs": 13, "text": …}            or "base64", where it is not UTF-8
    {"type": "done", "atMs": 14}                        or {"type": "failed", "failure": {…}, "atMs": 14},
                                                        or {"type": "left", "atMs": 14}: nobody read on
    {"type": "result", "callId": …, "name": …, "text": …, "isError": false}
    {"type": "turn-end", "turn": 1, "stopReason": "completed"}
    {"type": "end", "requests": 1, "sha256": …}

A request is its JSON body in canonical form: of the messages, those beyond the first `kept` of the session's
last request; of the other members, all or (`members` left out) those of the last request. Its `sha256` is
`request_hash`, that of the end line is of all bytes before it. The working directory is written `{{cwd}}`. A
file that is cut off, or edited without the hashes, does not load.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from cordisd.events import JsonObject, decode_json
from cordisd.replay.canonical import RequestHasher, canonical_json
from cordisd.replay.reader import VERSION, Reader
from cordisd.replay.turns import Answer, Chunk, Exchange, Recording, Turn
from cordisd.services.traffic import ToolOutcome

__all__ = [
    "VERSION",
    "Answer",
    "Chunk",
    "Exchange",
    "Recording",
    "Turn",
    "encode_line",
    "exchange_lines",
    "is_recording",
    "lines",
    "read_recording",
    "result_line",
]


def is_recording(path: Path) -> bool:
    """Whether the file begins like a recording."""
    try:
        with path.open("rb") as file:
            first = file.readline(1 << 20)
        return bool(decode_json(first).get("type") == "recording")
    except (OSError, ValueError, AttributeError, RecursionError):
        return False


def read_recording(path: Path) -> Recording:
    """The recording in a file.

    Raises:
        CompositionError: it is missing, empty, of another version, damaged or cut off; with file and line.
    """
    return Reader(path).read()


def lines(recording: Recording) -> Iterator[bytes]:
    """The file of a recording, line by line, each with its end."""
    digest = hashlib.sha256()
    for line in _lines_before_end(recording):
        digest.update(line)
        yield line
    yield end_line(len(recording.exchanges), digest.hexdigest())


def _lines_before_end(recording: Recording) -> Iterator[bytes]:
    yield encode_line(recording.header)
    last: JsonObject = {}
    hasher = RequestHasher()
    for turn in recording.turns:
        limits = {"limits": turn.limits} if turn.limits else {}
        yield encode_line({"type": "prompt", "turn": turn.number, "content": turn.content, **limits})
        for exchange in turn.exchanges:
            yield from exchange_lines(exchange, last, hasher)
            last = exchange.body
            for outcome in exchange.results:
                yield result_line(outcome)
        yield encode_line({"type": "turn-end", "turn": turn.number, "stopReason": turn.stop_reason})


def exchange_lines(exchange: Exchange, last: JsonObject, hasher: RequestHasher) -> Iterator[bytes]:
    """The lines of one exchange; `last` is the body of the session's last request, empty for none."""
    messages, before = exchange.body.get("messages", []), last.get("messages", [])
    kept = 0
    while kept < min(len(messages), len(before)) and _same(messages[kept], before[kept]):
        kept += 1
    request: JsonObject = {"type": "request", "kept": kept, "messages": messages[kept:]}
    members, old = (
        {name: value for name, value in body.items() if name != "messages"} for body in (exchange.body, last)
    )
    if not _same(members, old):
        request["members"] = members
    yield encode_line({**request, "sha256": hasher.hash(exchange.body)})
    answer = exchange.answer
    if answer.status is not None:
        head = {"status": answer.status, "headers": dict(answer.headers), "atMs": answer.at_ms}
        yield encode_line({"type": "response", **head})
    for chunk in answer.chunks:
        yield encode_line({"type": "chunk", "atMs": chunk.at_ms, **_data(chunk.data)})
    if answer.failure is not None:
        yield encode_line({"type": "failed", "failure": answer.failure, "atMs": answer.end_ms})
    else:
        yield encode_line({"type": "left" if answer.was_left else "done", "atMs": answer.end_ms})


def result_line(outcome: ToolOutcome) -> bytes:
    """The line of a tool's result."""
    return encode_line(
        {
            "type": "result",
            "callId": outcome.call_id,
            "name": outcome.name,
            "text": outcome.text,
            "isError": outcome.is_error,
        }
    )


def end_line(n_requests: int, sha256: str) -> bytes:
    """The last line; the hash is of all bytes before it."""
    return encode_line({"type": "end", "requests": n_requests, "sha256": sha256})


def encode_line(value: JsonObject) -> bytes:
    """One line of a recording: readable UTF-8, keys in the order given; lone surrogates are escaped."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    try:
        return text.encode("utf-8") + b"\n"
    except UnicodeEncodeError:
        return json.dumps(value, allow_nan=False).encode("ascii") + b"\n"


def _same(a: object, b: object) -> bool:
    return a is b or canonical_json(a) == canonical_json(b)


def _data(data: bytes) -> JsonObject:
    try:
        return {"text": data.decode("utf-8")}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}

"""A recording: what one session asked of its model, what came back, and what its tools said, in JSON lines.

    {"type": "recording", "version": 1, "session": …, "composition": …, "agent": {…}, "masks": {…}}
    {"type": "prompt", "turn": 1, "content": [blocks]}
    {"type": "request", "kept": 0, "messages": […], "members": {…}, "sha256": …}
    {"type": "response", "status": 200, "headers": {…}, "atMs": 12}
    {"type": "chunk", "atMs": 13, "text": …}            or "base64", where it is not UTF-8
    {"type": "done", "atMs": 14}                        or {"type": "failed", "failure": {…}, "atMs": 14}
    {"type": "result", "callId": …, "name": …, "text": …, "isError": false}
    {"type": "turn-end", "turn": 1, "stopReason": "completed"}
    {"type": "end", "requests": 1}

A request is its JSON body in canonical form: of the messages, those beyond the first `kept` of the session's
last request; of the other members, all or (`members` left out) those of the last request. `sha256` is of the
whole. The working directory is written `{{cwd}}`. A file that is cut off does not load.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cordisd.errors import CompositionError, Problem
from cordisd.events import Failure, JsonObject, decode_json
from cordisd.replay.canonical import canonical_json, request_hash
from cordisd.replay.paths import Chunk
from cordisd.services.traffic import ToolOutcome

VERSION: Final = 1


@dataclass(slots=True)
class Answer:
    """What came back for one request. Times are in milliseconds after it."""

    status: int | None = None
    """None: nothing came back, and `failure` says why."""
    headers: Mapping[str, str] = field(default_factory=dict)
    at_ms: int = 0
    chunks: list[Chunk] = field(default_factory=list)
    failure: Failure | None = None
    """Why it broke off; None: it came to its end."""
    end_ms: int = 0


@dataclass(slots=True)
class Exchange:
    """One request in canonical form, its answer, and the results of the calls that it asked for."""

    body: JsonObject
    answer: Answer
    results: list[ToolOutcome] = field(default_factory=list)


@dataclass(slots=True)
class Turn:
    """One prompt and what followed."""

    number: int
    content: list[JsonObject]
    exchanges: list[Exchange] = field(default_factory=list)
    stop_reason: str = ""


@dataclass(slots=True)
class Recording:
    """A session's traffic. `header` is the first line."""

    path: Path
    header: JsonObject
    turns: list[Turn] = field(default_factory=list)

    @property
    def session_id(self) -> str:
        """The id of the session that was recorded."""
        return str(self.header["session"])

    @property
    def exchanges(self) -> list[Exchange]:
        """Every exchange in order."""
        return [exchange for turn in self.turns for exchange in turn.exchanges]


def is_recording(path: Path) -> bool:
    """Whether the file begins like a recording."""
    try:
        with path.open("rb") as file:
            first = file.readline(1 << 20)
        return bool(decode_json(first).get("type") == "recording")
    except (OSError, ValueError, AttributeError):
        return False


def read_recording(path: Path) -> Recording:
    """The recording in a file.

    Raises:
        CompositionError: it is missing, empty, of another version, damaged or cut off; with file and line.
    """
    return _Reader(path).read()


def lines(recording: Recording) -> Iterator[bytes]:
    """The file of a recording, line by line, each with its end."""
    yield encode_line(recording.header)
    last: JsonObject = {}
    for turn in recording.turns:
        yield encode_line({"type": "prompt", "turn": turn.number, "content": turn.content})
        for exchange in turn.exchanges:
            yield from exchange_lines(exchange, last)
            last = exchange.body
            for outcome in exchange.results:
                yield result_line(outcome)
        yield encode_line({"type": "turn-end", "turn": turn.number, "stopReason": turn.stop_reason})
    yield encode_line({"type": "end", "requests": len(recording.exchanges)})


def exchange_lines(exchange: Exchange, last: JsonObject) -> Iterator[bytes]:
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
    yield encode_line({**request, "sha256": request_hash(exchange.body)})
    answer = exchange.answer
    if answer.status is not None:
        head = {"status": answer.status, "headers": dict(answer.headers), "atMs": answer.at_ms}
        yield encode_line({"type": "response", **head})
    for chunk in answer.chunks:
        yield encode_line({"type": "chunk", "atMs": chunk.at_ms, **_data(chunk.data)})
    if answer.failure is None:
        yield encode_line({"type": "done", "atMs": answer.end_ms})
    else:
        yield encode_line({"type": "failed", "failure": answer.failure, "atMs": answer.end_ms})


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


def encode_line(value: JsonObject) -> bytes:
    """One line of a recording: readable UTF-8, keys in the order given; lone surrogates are escaped."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    try:
        return text.encode("utf-8") + b"\n"
    except UnicodeEncodeError:
        return json.dumps(value, allow_nan=False).encode("ascii") + b"\n"


def _same(a: object, b: object) -> bool:
    return canonical_json(a) == canonical_json(b)


def _data(data: bytes) -> JsonObject:
    try:
        return {"text": data.decode("utf-8")}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


class _Reader:
    """Reads one file; knows the line it is at."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.number = 0

    def read(self) -> Recording:
        try:
            content = self.path.read_bytes()
        except OSError as error:
            raise CompositionError([Problem(str(self.path), f"cannot be read: {error.strerror}")]) from error
        if not content:
            raise CompositionError([Problem(str(self.path), "the recording is empty")])
        rows = content.split(b"\n")
        if rows.pop() != b"":
            self.number = len(rows) + 1
            raise self.fault("the recording is cut off: its last line has no end")
        recording = self._header(self._row(rows[0]))
        ended = False
        for raw in rows[1:]:
            row = self._row(raw)
            if ended:
                raise self.fault("there is more after the end line")
            ended = self._take(recording, row)
        if not ended:
            self.number = len(rows)
            raise self.fault("the recording is cut off: it has no end line")
        return recording

    def fault(self, message: str) -> CompositionError:
        return CompositionError([Problem(f"{self.path}:{self.number}", message)])

    def _row(self, raw: bytes) -> JsonObject:
        self.number += 1
        try:
            row = decode_json(raw)
        except ValueError as error:
            raise self.fault(f"is not JSON: {error}") from error
        if not isinstance(row, dict) or not isinstance(row.get("type"), str):
            raise self.fault("is no line of a recording: an object with a type")
        return row

    def _header(self, row: JsonObject) -> Recording:
        if row["type"] != "recording":
            raise self.fault('is not the first line of a recording: its type must be "recording"')
        if row.get("version") != VERSION:
            raise self.fault(f"is of version {row.get('version')!r}; this cordisd reads version {VERSION}")
        self._need(row, session=str, agent=dict)
        return Recording(self.path, row)

    def _take(self, recording: Recording, row: JsonObject) -> bool:
        """Take one line; True for the last."""
        turns = recording.turns
        kind = row["type"]
        if kind == "prompt":
            self._need(row, turn=int, content=list)
            turns.append(Turn(row["turn"], row["content"]))
        elif kind == "end":
            self._need(row, requests=int)
            if row["requests"] != len(recording.exchanges):
                raise self.fault(f"says {row['requests']} requests, but there are {len(recording.exchanges)}")
            return True
        elif not turns:
            raise self.fault(f'a line of type "{kind}" must come after a prompt')
        elif kind == "turn-end":
            self._need(row, stopReason=str)
            turns[-1].stop_reason = row["stopReason"]
        elif kind == "request":
            turns[-1].exchanges.append(Exchange(self._body(recording, row), Answer()))
        elif not turns[-1].exchanges:
            raise self.fault(f'a line of type "{kind}" must come after a request')
        else:
            self._answer(turns[-1].exchanges[-1], kind, row)
        return False

    def _body(self, recording: Recording, row: JsonObject) -> JsonObject:
        self._need(row, kept=int, messages=list, sha256=str)
        earlier = recording.exchanges
        last = earlier[-1].body if earlier else {}
        members = row.get("members", {name: value for name, value in last.items() if name != "messages"})
        before = last.get("messages", [])
        if row["kept"] > len(before):
            raise self.fault(f"keeps {row['kept']} messages of {len(before)}")
        body = {**members, "messages": [*before[: row["kept"]], *row["messages"]]}
        if request_hash(body) != row["sha256"]:
            raise self.fault(
                f"the request does not have the recorded sha256; it is {request_hash(body)}. "
                "Was it edited? Record it again, or write this hash"
            )
        return body

    def _answer(self, exchange: Exchange, kind: str, row: JsonObject) -> None:
        answer = exchange.answer
        match kind:
            case "response":
                self._need(row, status=int, headers=dict, atMs=int)
                answer.status, answer.headers, answer.at_ms = row["status"], row["headers"], row["atMs"]
            case "chunk":
                self._need(row, atMs=int)
                answer.chunks.append(Chunk(row["atMs"], self._bytes(row)))
            case "done":
                self._need(row, atMs=int)
                answer.end_ms = row["atMs"]
            case "failed":
                self._need(row, atMs=int, failure=dict)
                answer.failure, answer.end_ms = row["failure"], row["atMs"]
            case "result":
                self._need(row, callId=str, name=str, text=str, isError=bool)
                outcome = ToolOutcome(row["callId"], row["name"], row["text"], row["isError"])
                exchange.results.append(outcome)
            case _:
                raise self.fault(f'unknown line of type "{kind}"')

    def _bytes(self, row: JsonObject) -> bytes:
        if isinstance(row.get("text"), str):
            return str(row["text"]).encode("utf-8", "surrogatepass")
        try:
            return base64.b64decode(row["base64"], validate=True)
        except (KeyError, TypeError, ValueError) as error:
            raise self.fault("a chunk needs a text, or bytes in base64") from error

    def _need(self, row: JsonObject, **kinds: type[Any]) -> None:
        for name, kind in kinds.items():
            if type(row.get(name)) is not kind:
                raise self.fault(f"{name} must be of type {kind.__name__}, not {row.get(name)!r:.60}")

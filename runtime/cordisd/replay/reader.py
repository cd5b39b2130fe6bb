"""Reads the file of a recording, line by line; says which line is wrong, and why."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from cordisd.errors import CompositionError, Problem
from cordisd.events import JsonObject, decode_json
from cordisd.replay.canonical import RequestHasher, read_masks
from cordisd.replay.secrets import check_patterns
from cordisd.replay.turns import Answer, Chunk, Exchange, Recording, Turn
from cordisd.services.traffic import ToolOutcome

VERSION: Final = 1

_ENDS: Final = ("done", "failed", "left")
_AFTER: Final = {
    "prompt": ("recording", "turn-end"),
    "request": ("prompt", *_ENDS, "result"),
    "response": ("request",),
    "chunk": ("response", "chunk"),
    "done": ("response", "chunk"),
    "failed": ("request", "response", "chunk"),
    "left": ("request", "response", "chunk"),
    "result": (*_ENDS, "result"),
    "turn-end": ("prompt", *_ENDS, "result"),
    "end": ("recording", "turn-end"),
}
"""After which types of line each type may come."""


class Reader:
    """Reads one file; knows the line it is at."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._number = 0
        self._before = ""
        """Type of the last line."""
        self._last: JsonObject = {}
        """Body of the last request."""
        self._hasher = RequestHasher()
        self._digest = hashlib.sha256()
        self._n_requests = 0

    def read(self) -> Recording:
        """The recording.

        Raises:
            CompositionError: as `read_recording`.
        """
        if self._path.exists() and not self._path.is_file():  # to open a pipe could take for ever
            raise CompositionError([Problem(str(self._path), "is no regular file")])
        try:
            content = self._path.read_bytes()
        except OSError as error:
            raise CompositionError([Problem(str(self._path), f"cannot be read: {error.strerror}")]) from error
        if not content:
            raise CompositionError([Problem(str(self._path), "the recording is empty")])
        rows = content.split(b"\n")
        torn = rows.pop()
        if not rows:
            self._number = 1
            raise self._fault("the recording is cut off in its first line")
        recording = self._header(self._row(rows[0]))
        self._digest.update(rows[0] + b"\n")
        for raw in rows[1:]:
            row = self._row(raw)
            if self._before == "end":
                raise self._fault("there is more after the end line")
            self._take(recording, row)
            self._digest.update(raw + b"\n")
        if torn:
            self._number += 1
            raise self._fault("the recording is cut off: its last line has no end")
        if self._before != "end":
            raise self._fault("the recording is cut off: it has no end line")
        return recording

    def _fault(self, message: str) -> CompositionError:
        return CompositionError([Problem(f"{self._path}:{self._number}", message)])

    def _row(self, raw: bytes) -> JsonObject:
        self._number += 1
        try:
            row = decode_json(raw)
        except (ValueError, RecursionError) as error:
            raise self._fault(f"is not JSON: {error}") from error
        if not isinstance(row, dict) or not isinstance(row.get("type"), str):
            raise self._fault("is no line of a recording: an object with a type")
        return row

    def _header(self, row: JsonObject) -> Recording:
        if row["type"] != "recording":
            raise self._fault(
                'is not the first line of a recording: its type must be "recording" '
                "(a session log is played with mode: cursor)"
            )
        version = row.get("version")
        if type(version) is not int or version != VERSION:
            raise self._fault(f"is of version {version!r}; this cordisd reads version {VERSION}")
        self._need(row, session=str, agent=dict)
        masks, secrets = row.get("masks", {}), row.get("secrets", [])
        if not isinstance(masks, dict) or not _are(str, masks.values()):
            raise self._fault("masks must be regular expressions by name")
        if not isinstance(secrets, list) or not _are(str, secrets):
            raise self._fault("secrets must be names of environment variables")
        redact = row.get("redact", [])
        if not isinstance(redact, list) or not _are(str, redact):
            raise self._fault("redact must be regular expressions")
        if not isinstance(row.get("composition"), (str, type(None))):
            raise self._fault(f"composition must be a name, not {row['composition']!r:.60}")
        try:
            read_masks(masks)
            check_patterns(redact)
        except ValueError as error:
            raise self._fault(str(error)) from error
        self._before = "recording"
        return Recording(self._path, row)

    def _take(self, recording: Recording, row: JsonObject) -> None:
        kind = row["type"]
        if kind not in _AFTER:
            raise self._fault(f'unknown line of type "{kind}"; known are {", ".join(_AFTER)}')
        if self._before not in _AFTER[kind]:
            allowed = " or ".join(f'"{one}"' for one in _AFTER[kind])
            raise self._fault(
                f'a line of type "{kind}" comes after one of type {allowed}, not "{self._before}": '
                "lines are missing, doubled or in another order"
            )
        turns = recording.turns
        match kind:
            case "prompt":
                self._turn(row, len(turns) + 1)
                self._need(row, content=list)
                if not _are(dict, row["content"]):
                    raise self._fault("content must be a list of blocks")
                limits = row.get("limits", {})
                if not isinstance(limits, dict):
                    raise self._fault("limits must be numbers by name")
                turns.append(Turn(row["turn"], row["content"], limits=limits))
            case "turn-end":
                self._turn(row, len(turns))
                self._need(row, stopReason=str)
                turns[-1].stop_reason = row["stopReason"]
            case "end":
                self._end(row)
            case "request":
                self._last = self._body(row)
                self._n_requests += 1
                turns[-1].exchanges.append(Exchange(self._last, Answer()))
            case "result":
                self._need(row, callId=str, name=str, text=str, isError=bool)
                outcome = ToolOutcome(row["callId"], row["name"], row["text"], row["isError"])
                turns[-1].exchanges[-1].results.append(outcome)
            case _:
                self._answer(turns[-1].exchanges[-1].answer, kind, row)
        self._before = kind

    def _turn(self, row: JsonObject, expected: int) -> None:
        self._need(row, turn=int)
        if row["turn"] != expected:
            raise self._fault(f"is of turn {row['turn']}, but the turn is {expected}")

    def _end(self, row: JsonObject) -> None:
        self._need(row, requests=int, sha256=str)
        if row["requests"] != self._n_requests:
            raise self._fault(f"says {row['requests']} requests, but there are {self._n_requests}")
        found = self._digest.hexdigest()
        if row["sha256"] != found:
            raise self._fault(
                f"the lines before do not have the recorded sha256; it is {found}. "
                "Were they edited? Record them again, or write this hash"
            )

    def _body(self, row: JsonObject) -> JsonObject:
        self._need(row, kept=int, messages=list, sha256=str)
        if not _are(dict, row["messages"]):
            raise self._fault("messages must be a list of objects")
        members = {name: value for name, value in self._last.items() if name != "messages"}
        if "members" in row:
            self._need(row, members=dict)
            members = row["members"]
        elif not self._last:
            raise self._fault("members are missing; only a later request can leave them out")
        before = self._last.get("messages", [])
        if not 0 <= row["kept"] <= len(before):
            raise self._fault(f"keeps {row['kept']} messages of {len(before)}")
        body = {**members, "messages": [*before[: row["kept"]], *row["messages"]]}
        found = self._hasher.hash(body)
        if found != row["sha256"]:
            raise self._fault(
                f"the request does not have the recorded sha256; it is {found}. "
                "Was it edited? Record it again, or write this hash"
            )
        return body

    def _answer(self, answer: Answer, kind: str, row: JsonObject) -> None:
        self._need(row, atMs=int)
        at_ms = row["atMs"]
        match kind:
            case "response":
                self._need(row, status=int, headers=dict)
                if not _are(str, row["headers"].values()):
                    raise self._fault("headers must be texts by name")
                answer.status, answer.headers, answer.at_ms = row["status"], row["headers"], at_ms
            case "chunk":
                answer.chunks.append(Chunk(at_ms, self._bytes(row)))
            case "failed":
                self._need(row, failure=dict)
                if not _are(str, (row["failure"].get(name) for name in ("message", "code"))):
                    raise self._fault("a failure must have a message and a code")
                answer.failure, answer.end_ms = row["failure"], at_ms
            case _:
                answer.was_left, answer.end_ms = kind == "left", at_ms

    def _bytes(self, row: JsonObject) -> bytes:
        try:
            match row.get("text"), row.get("base64"):
                case str(text), None:
                    return text.encode()
                case None, str(encoded):
                    return base64.b64decode(encoded, validate=True)
        except ValueError as error:
            raise self._fault(f"cannot be decoded: {error}") from error
        raise self._fault("a chunk needs a text, or bytes in base64")

    def _need(self, row: JsonObject, **kinds: type[Any]) -> None:
        for name, kind in kinds.items():
            if type(row.get(name)) is not kind:
                raise self._fault(f"{name} must be of type {kind.__name__}, not {row.get(name)!r:.60}")


def _are(kind: type[Any], values: Iterable[object]) -> bool:
    return all(isinstance(value, kind) for value in values)

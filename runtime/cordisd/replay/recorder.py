"""Writes recordings: a tap that keeps what each session's model and tools said, one file for a session.

A file is called `….part` until its session is closed, and then has its end line and its name. Authorisation
headers are never kept, and the values of the daemon's secrets are written as `{{secret}}`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cordisd.errors import CordisError
from cordisd.events import JsonObject
from cordisd.replay.canonical import Mask, Rules
from cordisd.replay.paths import Chunk, Workspace
from cordisd.replay.recording import VERSION, Answer, Exchange, encode_line, exchange_lines, result_line
from cordisd.services.chat.failures import RequestFault
from cordisd.services.models import ModelRequest
from cordisd.services.traffic import Connect, Response, Tap, ToolOutcome, Transport, TurnStart
from cordisd.session.names import encode_segment

KEPT_HEADERS: Final = ("content-type", "retry-after", "x-request-id", "x-should-retry")
"""Headers of an answer that say how it is to be read or retried."""
MIN_SECRET_CHARS: Final = 16
SECRET: Final = "{{secret}}"
SUFFIX: Final = ".jsonl"
PART: Final = ".part"


@dataclass(slots=True)
class Recorder(Tap):
    """Records every session of the daemon into `folder`."""

    folder: Path
    composition: str | None
    """What a replay is to load: a shipped name or a path."""
    masks: Sequence[Mask]
    secrets: Callable[[], Sequence[str]]
    """Values that must not reach a file."""
    _files: dict[str, _File] = field(default_factory=dict)

    def connect(self, inner: Connect) -> Transport:
        return _RecordingTransport(self, inner())

    def begin_turn(self, start: TurnStart) -> None:
        """Begin the session's file with its first turn.

        Raises:
            CordisError: the file exists or cannot be written, or the working directory cannot be hidden.
        """
        file = self._files.get(start.session_id)
        if file is None:
            file = self._files[start.session_id] = self._begin(start)
        file.write({"type": "prompt", "turn": start.turn, "content": file.rules.value(start.content)})

    def note_result(self, session_id: str, outcome: ToolOutcome) -> JsonObject | None:
        file = self._files.get(session_id)
        if file is not None:
            file.add(result_line(outcome._replace(text=file.rules.text(outcome.text))))
        return None

    def turn_ended(self, session_id: str, turn: int, stop_reason: str) -> None:
        file = self._files.get(session_id)
        if file is not None:
            file.write({"type": "turn-end", "turn": turn, "stopReason": stop_reason})

    def close_session(self, session_id: str) -> None:
        file = self._files.pop(session_id, None)
        if file is not None:
            file.finish()

    def close(self) -> None:
        """Finish the recordings of sessions that are not closed."""
        for session_id in list(self._files):
            self.close_session(session_id)

    def keep(self, session_id: str, exchange: Exchange) -> None:
        """Write one exchange of a session that has a file."""
        file = self._files.get(session_id)
        if file is not None:
            for line in exchange_lines(exchange, file.last):
                file.add(line)
            file.last = exchange.body
            file.n_requests += 1

    def rules_of(self, session_id: str) -> Rules | None:
        """How the session's traffic is written; None for a session without a file."""
        file = self._files.get(session_id)
        return None if file is None else file.rules

    def _begin(self, start: TurnStart) -> _File:
        workspace = Workspace(start.cwd)
        if not workspace.can_be_replaced:
            raise CordisError(
                f"cannot record: the working directory {start.cwd!r} cannot be told apart in what is said; "
                "take one that is not / and has only letters, digits and . _ - + @ = , ~ : in its path"
            )
        target = self.folder / (encode_segment(start.session_id) + SUFFIX)
        header: JsonObject = {
            "type": "recording",
            "version": VERSION,
            "session": start.session_id,
            "composition": self.composition,
            "agent": {name: value for name, value in start.agent.items() if value is not None},
            "masks": {mask.name: mask.pattern.pattern for mask in self.masks},
        }
        return _File(target, header, Rules(workspace, self.masks), self._clean)

    def _clean(self, data: bytes) -> bytes:
        for secret in self.secrets():
            if len(secret) >= MIN_SECRET_CHARS:
                data = data.replace(secret.encode("utf-8", "surrogatepass"), SECRET.encode())
        return data


class _File:
    """One recording under way."""

    def __init__(
        self,
        target: Path,
        header: JsonObject,
        rules: Rules,
        clean: Callable[[bytes], bytes],
    ) -> None:
        self.target = target
        self.rules = rules
        self.last: JsonObject = {}
        self.n_requests = 0
        self._clean = clean
        self._part = target.with_name(target.name + PART)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._part.open("wb")
        except OSError as error:
            raise CordisError(f"cannot record: {self._part}: {error.strerror}") from error
        self.write(header)

    def write(self, row: JsonObject) -> None:
        self.add(encode_line(row))

    def add(self, line: bytes) -> None:
        try:
            self._file.write(self._clean(line))
            self._file.flush()
        except OSError as error:
            raise CordisError(f"cannot record: {self._part}: {error.strerror}") from error

    def finish(self) -> None:
        """Write the end line and give the file its name."""
        self.write({"type": "end", "requests": self.n_requests})
        self._file.close()
        os.replace(self._part, self.target)


class _RecordingTransport:
    """Passes everything on, and keeps it."""

    def __init__(self, recorder: Recorder, inner: Transport) -> None:
        self.is_offline = inner.is_offline
        self._recorder = recorder
        self._inner = inner

    async def post(
        self, request: ModelRequest, url: str, headers: Mapping[str, str], body: Sequence[bytes]
    ) -> Response:
        rules = self._recorder.rules_of(request.session_id)
        if rules is None:
            return await self._inner.post(request, url, headers, body)
        exchange = Exchange(rules.body(body), Answer())
        began_s = time.monotonic()
        try:
            response = await self._inner.post(request, url, headers, body)
        except RequestFault as fault:
            exchange.answer.failure, exchange.answer.end_ms = fault.failure, _ms_since(began_s)
            self._recorder.keep(request.session_id, exchange)
            raise
        answer = exchange.answer
        answer.status = response.status
        answer.headers = {name: response.headers[name] for name in KEPT_HEADERS if name in response.headers}
        answer.at_ms = _ms_since(began_s) if response.at_ms is None else response.at_ms
        return _RecordedResponse(self._recorder, request.session_id, exchange, response, began_s)

    async def close(self) -> None:
        await self._inner.close()


class _RecordedResponse:
    """An answer that is kept as it is read, and written when it is left."""

    def __init__(
        self, recorder: Recorder, session_id: str, exchange: Exchange, inner: Response, began_s: float
    ) -> None:
        self.status = inner.status
        self.headers = inner.headers
        self.at_ms = inner.at_ms
        self._recorder = recorder
        self._session_id = session_id
        self._exchange = exchange
        self._inner = inner
        self._began_s = began_s
        self._is_kept = False

    async def read(self) -> bytes:
        answer = self._exchange.answer
        try:
            data = await self._inner.read()
        except RequestFault as fault:
            answer.failure = fault.failure
            raise
        self.at_ms = self._inner.at_ms
        at_ms = _ms_since(self._began_s) if self.at_ms is None else self.at_ms
        if data:
            answer.chunks.append(Chunk(at_ms, data))
        answer.end_ms = at_ms
        return data

    async def read_up_to(self, max_bytes: int) -> bytes:
        data = await self._inner.read_up_to(max_bytes)
        at_ms = self._exchange.answer.at_ms
        self._exchange.answer.chunks.append(Chunk(at_ms, data))
        self._exchange.answer.end_ms = at_ms
        return data

    async def drain(self) -> None:
        await self._inner.drain()

    def close(self) -> None:
        self._inner.close()
        if self._is_kept:
            return
        self._is_kept = True
        rules = self._recorder.rules_of(self._session_id)
        if rules is not None:
            answer = self._exchange.answer
            answer.chunks = rules.workspace.hide_in_stream(answer.chunks)
            self._recorder.keep(self._session_id, self._exchange)


def _ms_since(began_s: float) -> int:
    return round((time.monotonic() - began_s) * 1000)

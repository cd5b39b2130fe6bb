"""Writes recordings: a tap that keeps what each session's model and tools said, one file for a session.

A file is called `….part` until its session is closed, and then has its end line and its name. Authorisation
headers are never kept, and the values of the daemon's secrets are written as `{{secret}}`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cordisd.errors import CordisError
from cordisd.events import JsonObject
from cordisd.replay.canonical import Mask
from cordisd.replay.paths import Workspace
from cordisd.replay.recording import VERSION, result_line
from cordisd.replay.turns import Answer, Chunk, Exchange
from cordisd.replay.writer import Writer
from cordisd.services.chat.failures import RequestFault, secrets_of
from cordisd.services.models import ModelRequest
from cordisd.services.traffic import Connect, Response, Tap, ToolOutcome, Transport, TurnStart
from cordisd.session.names import encode_segment

KEPT_HEADERS: Final = (
    "content-type",
    "location",
    "request-id",
    "retry-after",
    "retry-after-ms",
    "x-deepseek-request-id",
    "x-request-id",
    "x-should-retry",
)
"""Headers of an answer that say how it is to be read or retried."""
SUFFIX: Final = ".jsonl"

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Recorder(Tap):
    """Records every session of the daemon into `folder`."""

    folder: Path
    composition: str | None
    """What a replay is to load: a shipped name or a path."""
    masks: Sequence[Mask]
    secrets: Callable[[], Sequence[str]]
    """Values that must not reach a file."""
    secret_names: Sequence[str] = ()
    """Variables that a replay, too, must take for secrets, besides those of the keys."""
    redact: Sequence[str] = ()
    """Regular expressions for other secrets."""
    _files: dict[str, Writer] = field(default_factory=dict)

    def connect(self, inner: Connect) -> Transport:
        return _RecordingTransport(self, inner())

    def begin_turn(self, start: TurnStart) -> None:
        """Begin the session's file with its first turn.

        Raises:
            CordisError: the file cannot be written, another process records into it, the session goes on
                from what was not recorded, or the working directory cannot be hidden.
        """
        file = self._files.get(start.session_id)
        if file is None:
            file = self._files[start.session_id] = self._begin(start)
        row: JsonObject = {"type": "prompt", "turn": start.turn, "content": file.rules.value(start.content)}
        if start.limits:
            row["limits"] = start.limits
        file.write(row)
        file.turn = start.turn

    def note_result(self, session_id: str, outcome: ToolOutcome) -> JsonObject | None:
        file = self._files.get(session_id)
        if file is not None:
            file.add(result_line(outcome._replace(text=file.rules.text(outcome.text))))
        return None

    def end_turn(self, session_id: str, turn: int, stop_reason: str) -> None:
        file = self._files.get(session_id)
        if file is not None and file.turn == turn:
            file.write({"type": "turn-end", "turn": turn, "stopReason": stop_reason})

    def close_session(self, session_id: str) -> JsonObject | None:
        """Give the recording its end and its name.

        Raises:
            CordisError: it cannot be written, or could not at some time before.
        """
        file = self._files.pop(session_id, None)
        if file is not None:
            file.finish()
        return None

    def close(self) -> None:
        """Finish the recordings of sessions that are not closed."""
        for session_id in list(self._files):
            try:
                self.close_session(session_id)
            except CordisError as error:
                logger.error("session %s: %s", session_id, error)

    def file_of(self, session_id: str) -> Writer | None:
        """The recording of a session; None where it is not recorded."""
        return self._files.get(session_id)

    def _begin(self, start: TurnStart) -> Writer:
        workspace = Workspace(start.cwd)
        if not workspace.can_be_replaced:
            raise CordisError(
                f"cannot record: the working directory {start.cwd!r} cannot be told apart in what is said; "
                "take one that is not / and has only letters, digits and . _ - + @ = , ~ : in its path"
            )
        if start.turn != 1:
            raise CordisError(
                f'cannot record: session "{start.session_id}" goes on with turn {start.turn}, and what was '
                "before is in no recording under way; begin a new session"
            )
        target = self.folder / (encode_segment(start.session_id) + SUFFIX)
        header: JsonObject = {
            "type": "recording",
            "version": VERSION,
            "session": start.session_id,
            "composition": self.composition,
            "agent": {name: value for name, value in start.agent.items() if value is not None},
            "masks": {mask.name: mask.pattern.pattern for mask in self.masks},
            "secrets": list(self.secret_names),
            "redact": list(self.redact),
        }
        return Writer(target, header, start.cwd, self.masks, self.secrets(), self.redact)


class _RecordingTransport:
    """Passes everything on, and keeps it."""

    def __init__(self, recorder: Recorder, inner: Transport) -> None:
        self.is_offline = inner.is_offline
        self._recorder = recorder
        self._inner = inner

    async def post(
        self, request: ModelRequest, url: str, headers: Mapping[str, str], body: Sequence[bytes]
    ) -> Response:
        file = self._recorder.file_of(request.session_id)
        if file is None:
            return await self._inner.post(request, url, headers, body)
        file.learn(secrets_of(headers))
        exchange = Exchange(file.rules.body(body, request.messages), Answer())
        answer = exchange.answer
        began_s = time.monotonic()
        try:
            response = await self._inner.post(request, url, headers, body)
        except RequestFault as fault:
            answer.failure, answer.end_ms = fault.failure, _ms_since(began_s)
            file.keep(exchange)
            raise
        except asyncio.CancelledError:
            answer.was_left = True
            with suppress(CordisError):  # the end of the turn tells it
                file.keep(exchange)
            raise
        answer.status = response.status
        answer.headers = {name: response.headers[name] for name in KEPT_HEADERS if name in response.headers}
        answer.at_ms = _ms_since(began_s) if response.at_ms is None else response.at_ms
        return _RecordedResponse(file, exchange, response, began_s)

    async def close(self) -> None:
        await self._inner.close()


class _RecordedResponse:
    """An answer that is kept as it is read, and written when it is left."""

    def __init__(self, file: Writer, exchange: Exchange, inner: Response, began_s: float) -> None:
        self.status = inner.status
        self.headers = inner.headers
        self.at_ms = inner.at_ms
        self._file = file
        self._exchange = exchange
        self._inner = inner
        self._began_s = began_s
        self._is_over = False
        """Whether no more is to come."""
        self._is_kept = False

    async def read(self) -> bytes:
        answer = self._exchange.answer
        try:
            data = await self._inner.read()
        except RequestFault as fault:
            answer.failure = fault.failure
            raise
        finally:
            self.at_ms = self._inner.at_ms
            answer.end_ms = _ms_since(self._began_s) if self.at_ms is None else self.at_ms
        if data:
            answer.chunks.append(Chunk(answer.end_ms, data))
        else:
            self._is_over = True
        return data

    async def read_up_to(self, max_bytes: int) -> bytes:
        data = await self._inner.read_up_to(max_bytes)
        answer = self._exchange.answer
        answer.end_ms = answer.at_ms
        if data:
            answer.chunks.append(Chunk(answer.at_ms, data))
        self._is_over = True
        return data

    async def drain(self) -> None:
        self._is_over = True
        await self._inner.drain()

    def close(self) -> None:
        self._inner.close()
        if self._is_kept:
            return
        self._is_kept = True
        answer = self._exchange.answer
        if answer.failure is None and not self._is_over:
            answer.was_left = True
            answer.end_ms = answer.chunks[-1].at_ms if answer.chunks else answer.at_ms
            with suppress(CordisError):  # the turn is cancelled, and its end tells it
                self._file.keep(self._exchange)
        else:
            self._file.keep(self._exchange)


def _ms_since(began_s: float) -> int:
    return round((time.monotonic() - began_s) * 1000)

"""Writes recordings: a tap that keeps what each session's model and tools said, one file for a session.

A file is called `….part` until its session is closed, and then has its end line and its name. Authorisation
headers are never kept, and the values of the daemon's secrets are written as `{{secret}}`.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cordisd.errors import CordisError
from cordisd.events import JsonObject
from cordisd.replay.canonical import Mask, RequestHasher, Rules
from cordisd.replay.paths import Workspace
from cordisd.replay.recording import VERSION, encode_line, end_line, exchange_lines, result_line
from cordisd.replay.secrets import MIN_SECRET_CHARS
from cordisd.replay.stream import hide_in_stream
from cordisd.replay.turns import Answer, Chunk, Exchange
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
PART: Final = ".part"

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
    _files: dict[str, _File] = field(default_factory=dict)

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
        file.write({"type": "prompt", "turn": start.turn, "content": file.rules.value(start.content)})
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

    def file_of(self, session_id: str) -> _File | None:
        """The recording of a session; None where it is not recorded."""
        return self._files.get(session_id)

    def _begin(self, start: TurnStart) -> _File:
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
        }
        return _File(target, header, start.cwd, self.masks, self.secrets())


class _File:
    """One recording under way. After a failed write it takes no more, so that it never looks complete."""

    def __init__(
        self, target: Path, header: JsonObject, cwd: str, masks: Sequence[Mask], secrets: Sequence[str]
    ) -> None:
        self._cwd, self._masks, self._secrets = cwd, masks, set(secrets)
        self.rules = Rules(Workspace(cwd, secrets), masks)
        self.turn = 0
        """The last turn that has a prompt in the file."""
        self._target = target
        self._part = target.with_name(target.name + PART)
        self._last: JsonObject = {}
        """Body of the last request."""
        self._hasher = RequestHasher()
        self._n_requests = 0
        self._digest = hashlib.sha256()
        self._failure: str | None = None
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            self._file = _open_alone(self._part)
        except OSError as error:
            raise self._fault(error) from error
        try:
            self.write(header)
        except BaseException:
            self._close()
            raise

    def learn(self, secrets: Sequence[str]) -> None:
        """Keep these out, too: what a header says may be a secret that is in no variable."""
        new = {one for one in secrets if len(one) >= MIN_SECRET_CHARS} - self._secrets
        if new:
            self._secrets |= new
            self.rules = Rules(Workspace(self._cwd, sorted(self._secrets)), self._masks)

    def write(self, row: JsonObject) -> None:
        """Add one line."""
        self.add(encode_line(row))

    def add(self, data: bytes) -> None:
        """Add whole lines.

        Raises:
            CordisError: they cannot be written, or earlier ones could not.
        """
        if self._failure is not None:
            raise CordisError(self._failure)
        data = self.rules.workspace.redact(data)
        self._digest.update(data)
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError as error:
            fault = self._fault(error)
            self._failure = str(fault)
            raise fault from error

    def keep(self, exchange: Exchange) -> None:
        """Add one exchange; its answer is as it came."""
        answer, workspace = exchange.answer, self.rules.workspace
        answer.chunks = hide_in_stream(workspace, answer.chunks)
        if answer.failure is not None:
            answer.failure = {**answer.failure, "message": workspace.hide(answer.failure["message"])}
        self.add(b"".join(exchange_lines(exchange, self._last, self._hasher)))
        self._last = exchange.body
        self._n_requests += 1

    def finish(self) -> None:
        """Write the end line and give the file its name; a broken one keeps the name that it has.

        Raises:
            CordisError: it is broken.
        """
        try:
            self.add(end_line(self._n_requests, self._digest.hexdigest()))
            os.replace(self._part, self._target)
        except OSError as error:
            raise self._fault(error) from error
        finally:
            self._close()

    def _close(self) -> None:
        os.close(self._file)

    def _fault(self, error: OSError) -> CordisError:
        reason = "another process records into it" if isinstance(error, BlockingIOError) else error.strerror
        return CordisError(f"cannot record: {self._part}: {reason}")


def _open_alone(path: Path) -> int:
    """The file, emptied; whoever has it open keeps others out, and one left by a dead process is nobody's.

    Raises:
        BlockingIOError: another process has it.
        OSError: it cannot be written.
    """
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(file), os.stat(path)):
            raise BlockingIOError  # it has just been finished, under its other name
        os.ftruncate(file, 0)
    except BaseException:
        os.close(file)
        raise
    return file


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

    def __init__(self, file: _File, exchange: Exchange, inner: Response, began_s: float) -> None:
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

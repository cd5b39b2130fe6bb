"""Plays recordings strictly: each request is the recorded one, each result too, and nothing is left.

A session is bound to a recording by its first request; of several that begin alike, to that of its own id,
else to the first one. From then on its requests are compared one by one with those recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from cordisd.errors import ReplayMismatchError
from cordisd.events import JsonObject
from cordisd.replay.canonical import Mask, Rules
from cordisd.replay.compare import explain, is_equal, likeness, unified_diff
from cordisd.replay.paths import Workspace
from cordisd.replay.recording import Answer, Exchange, Recording
from cordisd.services.chat.failures import RequestFault
from cordisd.services.models import ModelRequest
from cordisd.services.tools import ToolResult
from cordisd.services.traffic import Connect, Response, Tap, ToolOutcome, Transport, TurnStart

Tools = Literal["live", "recorded"]
OnDivergence = Literal["fail", "event"]


@dataclass(slots=True)
class _Cursor:
    """Where a session is in its recording."""

    recording: Recording
    rules: Rules
    exchanges: list[Exchange]
    at: int = 0
    """Number of the next request, from 0."""
    results: dict[str, ToolOutcome] = field(default_factory=dict)
    """Recorded results of calls that are under way, by call id."""
    replaced: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Results that differ, by call id: found and recorded text; requests are compared with the latter."""


@dataclass(slots=True)
class Player(Tap):
    """Answers for the network with what was recorded."""

    recordings: Sequence[Recording]
    tools: Tools = "live"
    on_divergence: OnDivergence = "fail"
    pace: bool = False
    """Whether chunks come when they came; else at once."""
    compares: bool = True
    """False, to record anew what is asked: answers are played in the recorded order, whatever it is."""
    _workspaces: dict[str, str] = field(default_factory=dict)
    _cursors: dict[str, _Cursor] = field(default_factory=dict)

    def connect(self, inner: Connect) -> Transport:
        return _PlayingTransport(self)

    def begin_turn(self, start: TurnStart) -> None:
        self._workspaces.setdefault(start.session_id, start.cwd)

    def recorded_result(self, session_id: str, call_id: str, name: str) -> ToolResult | None:
        if self.tools == "live":
            return None
        cursor = self._cursors[session_id]
        outcome = cursor.results.get(call_id)
        if outcome is None:  # `note_result` tells it, once the log has a result
            return ToolResult("Error: the recording has no result of this call", is_error=True)
        return ToolResult(cursor.rules.workspace.show(outcome.text), is_error=outcome.is_error)

    def note_result(self, session_id: str, outcome: ToolOutcome) -> JsonObject | None:
        """Compare a result with the recorded one; what differs and is let pass is returned.

        Raises:
            ReplayMismatchError: it is another, and `on_divergence` is `fail`.
        """
        cursor = self._cursors.get(session_id)
        if cursor is None or not self.compares:
            return None
        recorded = cursor.results.pop(outcome.call_id, None)
        place = f"{cursor.recording.path}: the result of call {outcome.call_id} ({outcome.name})"
        if recorded is None:
            raise ReplayMismatchError(f"{place} was not recorded; {_again(cursor.recording)}")
        found = cursor.rules.text(outcome.text)
        if found == recorded.text and outcome.is_error == recorded.is_error:
            return None
        if found == recorded.text:
            change = f"is{'' if outcome.is_error else ' not'} an error now"
        else:
            change = "differs\n" + unified_diff(recorded.text, found)
        message = f"{place} {change}\n{_again(cursor.recording)}"
        if self.on_divergence == "fail":
            raise ReplayMismatchError(message)
        cursor.replaced[outcome.call_id] = (found, recorded.text)
        return {"callId": outcome.call_id, "message": message}

    def end_turn(self, session_id: str, turn: int) -> None:
        """Go on only if the recorded turn ends here too.

        Raises:
            ReplayMismatchError: it goes on.
        """
        cursor = self._cursors.get(session_id)
        if cursor is None or not self.compares:
            return
        n_due = 0
        for recorded in cursor.recording.turns:
            n_due += len(recorded.exchanges)
            if n_due >= cursor.at:
                break
        if cursor.at < n_due:
            raise ReplayMismatchError(
                f"{cursor.recording.path}: the turn has ended, but the recording goes on with request "
                f"{cursor.at + 1} of {len(cursor.exchanges)}; {_again(cursor.recording)}"
            )

    def next_exchange(self, request: ModelRequest, body: Sequence[bytes]) -> tuple[Exchange, Workspace]:
        """The exchange that a request is answered with, and the directory to put into its answer.

        Raises:
            ReplayMismatchError: the request is not the recorded one, or there is none left.
        """
        cursor = self._cursors.get(request.session_id)
        if cursor is None:
            cursor = self._cursors[request.session_id] = self._bind(request, body)
        found = _with_recorded_results(cursor.rules.body(body), cursor.replaced)
        where = f"{cursor.recording.path}: request {cursor.at + 1} of {len(cursor.exchanges)}"
        if cursor.at >= len(cursor.exchanges):
            raise ReplayMismatchError(f"{where} was not recorded; {_again(cursor.recording)}")
        exchange = cursor.exchanges[cursor.at]
        if self.compares and not is_equal(exchange.body, found):
            near = self._nearest(found, exchange)
            raise ReplayMismatchError(
                f"{where}: {explain(exchange.body, found)}{near}\n{_again(cursor.recording)}"
            )
        cursor.at += 1
        cursor.results.update({outcome.call_id: outcome for outcome in exchange.results})
        return exchange, cursor.rules.workspace

    def _bind(self, request: ModelRequest, body: Sequence[bytes]) -> _Cursor:
        """The recording that begins with this request."""
        bound = {id(cursor.recording) for cursor in self._cursors.values()}
        free = [one for one in self.recordings if id(one) not in bound and one.exchanges]
        free.sort(key=lambda one: one.session_id != request.session_id)
        cwd = self._workspaces.get(request.session_id, request.cwd)
        cursors = [_Cursor(one, _rules(one, cwd), one.exchanges) for one in free]
        for cursor in cursors:
            if is_equal(cursor.exchanges[0].body, cursor.rules.body(body)):
                return cursor
        if not cursors:
            raise ReplayMismatchError(
                f'session "{request.session_id}" asks the model, but every recording is played by another '
                f"session already (recordings: {len(self.recordings)})"
            )
        # The comparison that follows tells how it differs from the most likely one.
        return max(cursors, key=lambda one: likeness(one.exchanges[0].body, one.rules.body(body)))

    def _nearest(self, found: JsonObject, expected: Exchange) -> str:
        """Which other recorded request is exactly this one, or nearer to it than the expected one."""
        best, place = likeness(expected.body, found), ""
        for recording in self.recordings:
            for number, exchange in enumerate(recording.exchanges):
                if exchange is not expected and (score := likeness(exchange.body, found)) > best:
                    best, place = score, f"\nnearest recorded request: {recording.path}, request {number + 1}"
        return place


class _PlayingTransport:
    """Opens no socket."""

    is_offline: Final = True

    def __init__(self, player: Player) -> None:
        self._player = player

    async def post(
        self, request: ModelRequest, url: str, headers: Mapping[str, str], body: Sequence[bytes]
    ) -> Response:
        exchange, workspace = self._player.next_exchange(request, body)
        answer = exchange.answer
        if answer.status is None:
            assert answer.failure is not None
            raise RequestFault(answer.failure)
        return _PlayedResponse(answer, workspace, paced=self._player.pace)

    async def close(self) -> None:
        """Nothing is open."""


class _PlayedResponse:
    """A recorded answer, read as it came."""

    def __init__(self, answer: Answer, workspace: Workspace, *, paced: bool) -> None:
        assert answer.status is not None
        self.status = answer.status
        self.headers = answer.headers
        self.at_ms: int | None = answer.at_ms
        self._answer = answer
        self._workspace = workspace
        self._paced = paced
        self._next = 0

    async def read(self) -> bytes:
        answer = self._answer
        if self._next < len(answer.chunks):
            chunk = answer.chunks[self._next]
            self._next += 1
            await self._wait(chunk.at_ms)
            return self._workspace.show_in_stream(chunk.data)
        await self._wait(answer.end_ms)
        if answer.failure is not None:
            raise RequestFault(answer.failure)
        return b""

    async def read_up_to(self, max_bytes: int) -> bytes:
        data = b"".join(self._workspace.show_in_stream(chunk.data) for chunk in self._answer.chunks)
        return data[:max_bytes]

    async def drain(self) -> None:
        """Everything has been read."""

    def close(self) -> None:
        """Nothing is open."""

    async def _wait(self, at_ms: int) -> None:
        before, self.at_ms = self.at_ms or 0, at_ms
        await asyncio.sleep(max(at_ms - before, 0) / 1000 if self._paced else 0)


def masks_of(recording: Recording) -> list[Mask]:
    """The masks that a recording was made with."""
    import re

    return [Mask(name, re.compile(pattern)) for name, pattern in recording.header.get("masks", {}).items()]


def _rules(recording: Recording, cwd: str) -> Rules:
    return Rules(Workspace(cwd), masks_of(recording))


def _with_recorded_results(body: JsonObject, replaced: Mapping[str, tuple[str, str]]) -> JsonObject:
    """`body` with recorded results in the place of those that have diverged and were let pass."""
    if not replaced:
        return body
    messages = []
    for message in body.get("messages", []):
        found = replaced.get(message.get("tool_call_id", ""))
        if found is not None and message.get("content") == found[0]:
            message = {**message, "content": found[1]}
        messages.append(message)
    return {**body, "messages": messages}


def _again(recording: Recording) -> str:
    return f"record it again, or look at the change with: cordisd replay --refresh {recording.path}"

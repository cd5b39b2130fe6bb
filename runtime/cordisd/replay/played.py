"""Recorded answers in the place of the network. Nothing here opens a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from cordisd.errors import ReplayMismatchError
from cordisd.replay.paths import Workspace
from cordisd.replay.turns import Answer, Exchange
from cordisd.services.chat.failures import RequestFault
from cordisd.services.models import ModelRequest
from cordisd.services.traffic import Response

LEFT_S: Final = 10.0
"""How long a replay waits for the client to cancel where the recorded one did."""

NextExchange = Callable[[ModelRequest, Sequence[bytes]], tuple[Exchange, Workspace]]


async def left(what: str) -> ReplayMismatchError:
    """Wait to be cancelled, as was recorded; the error that tells that nobody did."""
    await asyncio.sleep(LEFT_S)
    return ReplayMismatchError(f"{what}: it was cancelled there, and this replay was not, for {LEFT_S:g} s")


class PlayingTransport:
    """Answers each request with what was recorded for it."""

    is_offline: Final = True

    def __init__(self, next_exchange: NextExchange, *, paced: bool) -> None:
        self._next_exchange = next_exchange
        self._paced = paced

    async def post(
        self, request: ModelRequest, url: str, headers: Mapping[str, str], body: Sequence[bytes]
    ) -> Response:
        exchange, workspace = self._next_exchange(request, body)
        answer = exchange.answer
        if answer.status is None:
            await _wait(answer.end_ms if self._paced else 0)
            await _break_off(answer, workspace)
        return _PlayedResponse(answer, workspace, paced=self._paced)

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
            await self._come(chunk.at_ms)
            return self._workspace.show_bytes(chunk.data)
        await self._come(answer.end_ms)
        await _break_off(answer, self._workspace)
        return b""

    async def read_up_to(self, max_bytes: int) -> bytes:
        """All that was read up to the limit when it was recorded, with this directory in it."""
        return b"".join(self._workspace.show_bytes(chunk.data) for chunk in self._answer.chunks)

    async def drain(self) -> None:
        """Everything has been read."""

    def close(self) -> None:
        """Nothing is open."""

    async def _come(self, at_ms: int) -> None:
        before_ms, self.at_ms = self.at_ms or 0, at_ms
        await _wait(at_ms - before_ms if self._paced else 0)


async def _wait(delay_ms: int) -> None:
    await asyncio.sleep(max(delay_ms, 0) / 1000)


async def _break_off(answer: Answer, workspace: Workspace) -> None:
    """Break off where the recorded answer did; return where it came to its end."""
    if answer.failure is not None:
        raise RequestFault({**answer.failure, "message": workspace.show(answer.failure["message"])})
    if answer.was_left:
        raise await left("nobody read the recorded answer to its end")

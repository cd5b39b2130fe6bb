"""What goes between a session and its model and tools, for those who record it or play it back.

A *tap* sits between the chat adapters and the network, and beside the agent loop. Taps that play stand first,
so that those that record see what was played.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from cordisd.events import JsonObject
from cordisd.services.models import ModelRequest
from cordisd.services.tools import ToolResult


class Response(Protocol):
    """An answer under way. Leave it with `close`."""

    status: int
    headers: Mapping[str, str]
    at_ms: int | None
    """When what was read last had arrived after the request; None: this moment, on the reader's clock."""

    async def read(self) -> bytes:
        """What has arrived, at least one byte; b"" at the end. Raises `RequestFault`."""
        ...

    async def read_up_to(self, max_bytes: int) -> bytes: ...

    async def drain(self) -> None: ...

    def close(self) -> None: ...


class Transport(Protocol):
    """Posts requests. Leave it with `close`."""

    @property
    def is_offline(self) -> bool:
        """Whether nothing is sent: no address and no key are needed."""
        ...

    async def post(
        self, request: ModelRequest, url: str, headers: Mapping[str, str], body: Sequence[bytes]
    ) -> Response:
        """The answer, as soon as its head has arrived. Raises `RequestFault`."""
        ...

    async def close(self) -> None: ...


Connect = Callable[[], Transport]


class TurnStart(NamedTuple):
    """The beginning of a turn: which session, and the content of its prompt. Turns count from 1."""

    session_id: str
    turn: int
    cwd: str
    agent: JsonObject
    """`preset`, `provider`, `model`, and `maxTokens`, `reasoningEffort` and `limits` where the client chose
    them."""
    content: list[JsonObject]
    limits: JsonObject = {}
    """Those that came with the prompt."""


class ToolOutcome(NamedTuple):
    """A tool call's result as the model is told it."""

    call_id: str
    name: str
    text: str
    is_error: bool


class Tap(Protocol):
    """Watches, checks or plays. A subclass writes the methods that it needs; any may raise `CordisError`."""

    @property
    def skips_delays(self) -> bool:
        """Whether the time between a failed request and its retry is not to be waited for."""
        return False

    def connect(self, inner: Connect) -> Transport:
        """A transport in the place of the one that `inner` makes."""
        return inner()

    def begin_turn(self, start: TurnStart) -> None:
        """A turn begins."""
        return

    async def recorded_result(self, session_id: str, call_id: str, name: str) -> ToolResult | None:
        """The result of a call that is not to be run; None: run it."""
        return None

    def note_result(self, session_id: str, outcome: ToolOutcome) -> JsonObject | None:
        """A call has a result, and the log has it. What is returned is logged as a `replay/divergence`."""
        return None

    def end_turn(self, session_id: str, turn: int, stop_reason: str) -> None:
        """The turn ends, well or not; one that ends well fails when this raises."""
        return

    def close_session(self, session_id: str) -> JsonObject | None:
        """There will be no more of this session. What is returned is logged as a `replay/leftover`."""
        return None


@dataclass(slots=True)
class Traffic:
    """The taps of a daemon, those that play first."""

    taps: list[Tap] = field(default_factory=list)

    def add(self, tap: Tap, *, plays: bool = False) -> Callable[[], None]:
        """Have `tap` take part from now on; the returned function takes it out."""
        self.taps.insert(0 if plays else len(self.taps), tap)
        return lambda: self.taps.remove(tap)

    def connect(self, inner: Connect) -> Transport:
        """The transport of an adapter that would otherwise use that of `inner`."""
        for tap in self.taps:
            inner = _through(tap, inner)
        return inner()


def _through(tap: Tap, inner: Connect) -> Connect:
    return lambda: tap.connect(inner)

"""What a recording holds: turns, each with its requests, what came back, and what the tools said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from cordisd.events import Failure, JsonObject
from cordisd.services.traffic import ToolOutcome


class Chunk(NamedTuple):
    """What one read from the network gave, and when, counted from the request."""

    at_ms: int
    data: bytes


@dataclass(slots=True)
class Answer:
    """What came back for one request. Times are in milliseconds after it."""

    status: int | None = None
    """None: nothing came back."""
    headers: Mapping[str, str] = field(default_factory=dict)
    at_ms: int = 0
    chunks: list[Chunk] = field(default_factory=list)
    failure: Failure | None = None
    """Why it broke off, if it did."""
    was_left: bool = False
    """Nobody read on: the turn was cancelled, as a rule. `end_ms` is then of what came last."""
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
    limits: JsonObject = field(default_factory=dict)
    """Those that came with the prompt."""


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

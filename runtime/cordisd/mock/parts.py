"""What is written on a connection: bytes, and what happens between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Parameter = float | int | str | None
"""Of a fault; None stands for the usual one."""

Framing = Literal["chunked", "length", "close", "none"]


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait before the next bytes; at the start of a reply, before its head."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Cut:
    """Drop the connection here: "fin" closes it, "rst" resets it."""

    kind: Literal["fin", "rst"] = "fin"


@dataclass(frozen=True, slots=True)
class Hang:
    """Say nothing more, until the client goes or the server is stopped."""


@dataclass(frozen=True, slots=True)
class Verbatim:
    """Bytes written as they are where others would be framed as a chunk of the body."""

    data: bytes


Part = bytes | Pause | Cut | Hang | Verbatim


@dataclass(frozen=True, slots=True)
class RawReply:
    """An answer part by part; each `bytes` is one write and, in a chunked body, one chunk.

    `framing`: "chunked" and "length" keep the connection, "close" ends the body with it; with "none" the
    parts are the whole answer, head included.
    """

    parts: Sequence[Part] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": "text/event-stream"})
    framing: Framing = "chunked"
    faults: Mapping[str, Parameter] = field(default_factory=dict)
    """As of an `Answer`; only those of the transfer, or a refusal, can strike."""
    source: str = ""
    """Where it comes from, for the log."""

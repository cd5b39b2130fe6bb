"""The vocabulary of the record: the event envelope and the data of each event type (format 0).

A session's log is a list of events with contiguous `seq` from 0. The shapes are those that the published
readers know; what we add carries `ignorable: true` or sits in an extra field that they skip.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NotRequired, TypedDict

JsonObject = dict[str, Any]
SurfaceOp = Literal["append"] | JsonObject
OutcomeClass = Literal[
    "success",
    "verifier_failure",
    "model_failure",
    "harness_failure",
    "setup_failure",
    "timeout",
    "cancelled",
    "unknown",
]

SURFACE_TYPES: Final = frozenset({"user/message", "assistant/message", "tool/result"})
"""Types that carry a `surfaceOp`: together they are the model's history."""

KNOWN_TYPES: Final = frozenset(
    """agent-preset/selected agent/inbox/spliced approval/asked approval/decided approval/policy
    assistant/chunk assistant/message command/done command/run compaction/end compaction/prune
    compaction/start
    compaction/summary feedback/record goal/change hook/invoked hook/result llm/retry llm/retry-started
    permission/preset plan/mode request/context request/header sandbox/mode schedule/change session/end-seed
    session/title session/title-llm-request step/end step/start subagent/descriptor team/member
    team/message/delivered team/message/queued team/task todo/write tool-workflow/agent-end
    tool-workflow/agent-start tool-workflow/run-end tool-workflow/run-start tool/call tool/code-dispatch
    tool/code-dispatch-start tool/result turn/end turn/start user/message web/deepseek-search-llm-request
    working-directory/change""".split()  # noqa: SIM905 - a word list reads better than forty quoted lines
)
"""Types that a reader of format 0 accepts; any other must be `ignorable`."""

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode
_to_json: Callable[[object], bytes] | None = None


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def _finite(word: str) -> float:
    number = float(word)
    if math.isinf(number):
        raise ValueError(f"the number {word} is too large")
    return number


_decode = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite).decode


def encode_json(value: object) -> bytes:
    """Compact ASCII JSON. Lone surrogates survive as escapes; key order is kept.

    Raises:
        ValueError: NaN or infinity.
        TypeError: not a JSON value.
    """
    return _encode(value).encode("ascii")


def _encode_fast(value: JsonObject) -> bytes:
    """As `encode_json`, five times faster for what is plain ASCII; anything else takes the strict way."""
    global _to_json
    if _to_json is None:
        from pydantic_core import to_json  # the daemon has it loaded; who only reads events never needs it

        _to_json = to_json
    try:
        encoded: bytes = _to_json(value)
    except ValueError:  # a lone surrogate, or no JSON value
        return encode_json(value)
    if encoded.isascii() and b"NaN" not in encoded and b"Infinity" not in encoded:
        return encoded
    return encode_json(value)


def decode_json(text: str | bytes) -> Any:
    """The value of a JSON text; lone surrogates survive.

    Raises:
        ValueError: not JSON, not UTF-8, or a NaN or Infinity literal.
    """
    return _decode(text if isinstance(text, str) else text.decode("utf-8"))


class Event:
    """One record. `json` is its encoding, made once and shared by the disk and every client."""

    __slots__ = ("_json", "data", "ignorable", "seq", "sources", "surface_op", "time", "type")

    def __init__(
        self,
        type: str,
        seq: int,
        time: int,
        data: JsonObject,
        *,
        sources: Sequence[int] | None = None,
        surface_op: SurfaceOp | None = None,
        ignorable: bool = False,
    ) -> None:
        self.type = type
        self.seq = seq
        self.time = time
        """Milliseconds since the epoch."""
        self.data = data
        self.sources = sources
        self.surface_op = surface_op
        self.ignorable = ignorable
        self._json: bytes | None = None

    @property
    def json(self) -> bytes:
        """`{type, seq, time, data, sourceEventSeqs?, surfaceOp?, ignorable?}` as compact ASCII JSON."""
        if self._json is None:
            self._json = _encode_fast(self.as_dict())
        return self._json

    def as_dict(self) -> JsonObject:
        """The envelope as a JSON object, keys in the order of the wire."""
        out: JsonObject = {"type": self.type, "seq": self.seq, "time": self.time, "data": self.data}
        if self.sources is not None:
            out["sourceEventSeqs"] = list(self.sources)
        if self.surface_op is not None:
            out["surfaceOp"] = self.surface_op
        if self.ignorable:
            out["ignorable"] = True
        return out

    @classmethod
    def from_dict(cls, raw: JsonObject) -> Event:
        """The event of a decoded envelope.

        Raises:
            ValueError: a field is missing, unknown or of the wrong type; the message names it.
        """
        unknown = raw.keys() - {"type", "seq", "time", "data", "sourceEventSeqs", "surfaceOp", "ignorable"}
        if unknown:
            raise ValueError(f"unknown event field {sorted(unknown)[0]!r}")
        kind, seq, time, data = (raw.get(key) for key in ("type", "seq", "time", "data"))
        if not (isinstance(kind, str) and kind.isascii() and kind.isprintable()) or set(kind) & {'"', "\\"}:
            raise ValueError("event type must be a plain string")
        if type(seq) is not int or seq < 0:
            raise ValueError("event seq must be a non-negative integer")
        if type(time) is not int or time < 0:
            raise ValueError("event time must be a non-negative integer of milliseconds")
        if not isinstance(data, dict):
            raise ValueError("event data must be an object")
        sources = raw.get("sourceEventSeqs")
        if sources is not None and not (
            isinstance(sources, list) and all(type(s) is int and 0 <= s < seq for s in sources)
        ):
            raise ValueError("sourceEventSeqs must be earlier sequence numbers")
        if "surfaceOp" in raw and not (raw["surfaceOp"] == "append" or isinstance(raw["surfaceOp"], dict)):
            raise ValueError('surfaceOp must be "append" or an object')
        return cls(
            kind,
            seq,
            time,
            data,
            sources=sources,
            surface_op=raw.get("surfaceOp"),
            ignorable=raw.get("ignorable") is True,
        )


class Failure(TypedDict):
    """Why a model request, or a turn, failed. Codes: `protocol.md` 5.3 and 6.3."""

    message: str
    code: str
    status: NotRequired[int]
    providerRetryAfterMs: NotRequired[int]
    requestId: NotRequired[str]


class Usage(TypedDict):
    """Token counts of one model request. `inputTokens` excludes the cached ones; unknown ones are absent."""

    inputTokens: NotRequired[int]
    outputTokens: NotRequired[int]
    cacheReadTokens: NotRequired[int]
    reasoningTokens: NotRequired[int]


class TurnEndReason(TypedDict):
    """Why a turn ended, in the published set of kinds."""

    kind: Literal["completed", "max-tokens", "error", "aborted", "blocked", "interrupted"]
    error: NotRequired[Failure]
    reason: NotRequired[JsonObject]

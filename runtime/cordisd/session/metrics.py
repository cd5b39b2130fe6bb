"""What a session has cost and how it went, computed from its log alone (`clarify_capabilities.md` B.4).

The log does not say everything: a request that was cancelled before the first chunk of its answer has left no
trace, and is not counted. What was never reported is null, not 0.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cordisd.errors import LogCorruptError, LogError
from cordisd.events import Event, JsonObject
from cordisd.session import skim
from cordisd.session.disk import cause_of, open_file
from cordisd.session.header import SessionHeader
from cordisd.session.reading import LogReading

_TOKENS: Final = {
    "input": "inputTokens",
    "output": "outputTokens",
    "reasoning": "reasoningTokens",
    "cacheRead": "cacheReadTokens",
}
_BEFORE_A_REQUEST: Final = frozenset(
    ("step/start", "user/message", "request/header", "request/context", "llm/retry-started")
)
"""What is logged last before the model is asked."""


@dataclass(slots=True)
class _Requests:
    """Model requests: every attempt of which the log has something, with the tokens reported for it."""

    attempts: int = 0
    retries: int = 0
    without_usage: int = 0
    tokens: Counter[str] = field(default_factory=Counter)
    model_ms: int = 0
    _usage: JsonObject | None = None
    _is_open: bool = False
    _asked_at: int = 0

    def see(self, event: Event) -> None:
        data = event.data
        if event.type in _BEFORE_A_REQUEST:
            self._asked_at = event.time
        match event.type:
            case "assistant/chunk":
                self._is_open = True
                if data["chunk"]["type"] == "usage":
                    self._usage = data["chunk"]["usage"]
            case "assistant/message":
                self._is_open = True
                self._usage = data.get("usage", self._usage)
                self._close(event.time)
            case "llm/retry":
                self._is_open = True
                self._close(event.time)
            case "llm/retry-started":
                self._is_open = True
                self.retries += 1
            case "step/end" | "turn/end":
                self._close(event.time)

    def as_dict(self) -> JsonObject:
        return {
            "requests": {"attempts": self.attempts, "retries": self.retries},
            "requestsWithoutUsage": self.without_usage,
            "tokens": {name: self.tokens.get(key) for name, key in _TOKENS.items()},
        }

    def _close(self, time: int) -> None:
        if not self._is_open:
            return
        self.attempts += 1
        self.model_ms += max(0, time - self._asked_at)
        usage = {key: count for key, count in (self._usage or {}).items() if type(count) is int}
        self.without_usage += not usage
        self.tokens.update(usage)
        self._usage, self._is_open = None, False


@dataclass(slots=True)
class _Tools:
    """Tool calls by name: as many as the model has asked for, run or not."""

    by_name: dict[str, JsonObject] = field(default_factory=dict)
    tools_ms: int = 0
    _names: dict[str, str] = field(default_factory=dict)
    _running: set[str] = field(default_factory=set)
    _busy_since: int = 0

    def see(self, event: Event) -> None:
        data = event.data
        match event.type:
            case "assistant/message":
                for block in data["message"]["content"]:
                    if block["type"] == "tool-call":
                        self._names[block["id"]] = block["name"]
                        self._row(block["name"])["calls"] += 1
            case "tool/call":
                self._busy_since = self._busy_since if self._running else event.time
                self._running.add(data["callId"])
            case "tool/result":
                call_id = data["message"]["source"]["callId"]
                row = self._row(self._names.get(call_id, ""))
                for block in data["message"]["content"]:
                    row["errors"] += block["isError"] is True
                    row["outputBytes"] += sum(_text_bytes(part) for part in block["content"])
                self._stop({call_id}, event.time)
            case "turn/end":
                self._stop(set(self._running), event.time)

    def _row(self, name: str) -> JsonObject:
        return self.by_name.setdefault(name, {"calls": 0, "errors": 0, "outputBytes": 0})

    def _stop(self, call_ids: set[str], time: int) -> None:
        """Calls that run together count once: the time is that in which any ran."""
        if self._running and not self._running - call_ids:
            self.tools_ms += max(0, time - self._busy_since)
        self._running -= call_ids


class Metrics:
    """Folds a session's events, in order. `result()` may be asked for at any point."""

    def __init__(self, header: SessionHeader) -> None:
        self._header = header
        self._seed_length = header.seed_length or 0
        self._seed: JsonObject | None = None
        self._requests, self._tools = _Requests(), _Tools()
        self._config: JsonObject = {}
        self._stop_reasons: Counter[str] = Counter()
        self._n_turns = self._n_headers = self._total_ms = self._turn_began = 0
        self._in_turn = False
        self._last_time = 0
        self._last_stop_reason: str | None = None
        self._outcome: JsonObject | None = None

    def add(self, event: Event) -> None:
        """Count one event.

        Raises:
            KeyError, TypeError, AttributeError: its data is not of the shape that its type has.
        """
        if event.seq == self._seed_length and self._seed_length:
            self._seed = {
                "parentSession": self._header.parent_session,
                "events": self._seed_length,
                "turns": self._n_turns,
                **self._requests.as_dict(),
            }
        self._last_time = event.time
        self._requests.see(event)
        self._tools.see(event)
        data = event.data
        match event.type:
            case "turn/start":
                self._n_turns += 1
                self._in_turn, self._turn_began = True, event.time
            case "turn/end":
                self._total_ms += self._turn_ms()
                self._in_turn = False
                reason = data.get("stopReason", data["reason"]["kind"])
                self._stop_reasons[reason] += 1
                self._last_stop_reason = reason
            case "request/header":
                self._n_headers += 1
                self._config = data["header"]["config"]
            case "session/outcome" if event.seq >= self._seed_length:
                self._outcome = data

    def result(self) -> JsonObject:
        """The shape of `session/metrics`, without the session's id."""
        own = self._header.cordisd
        requests = self._requests
        return {
            "identity": {
                "preset": own.get("preset", self._header.agent_preset),
                "digest": own.get("digest"),
                "profile": own.get("profile"),
                "version": own.get("version"),
                "provider": self._config.get("provider"),
                "model": self._config.get("model"),
            },
            "turns": self._n_turns,
            **requests.as_dict(),
            "toolCalls": self._tools.by_name,
            "wallMs": {
                "total": self._total_ms + self._turn_ms(),
                "model": requests.model_ms,
                "tools": self._tools.tools_ms,
            },
            "headers": self._n_headers,
            "stopReasons": dict(self._stop_reasons),
            "lastStopReason": self._last_stop_reason,
            "outcome": self._outcome,
            "seed": self._seed,
        }

    def _turn_ms(self) -> int:
        return max(0, self._last_time - self._turn_began) if self._in_turn else 0


def _text_bytes(part: JsonObject) -> int:
    text = part.get("text")
    return len(text.encode("utf-8", "surrogatepass")) if isinstance(text, str) else 0


def read_metrics(path: Path, *, end: int | None = None) -> JsonObject:
    """The result for the log at `path`, up to its first damage or seq `end`. Takes time: call it in a thread.

    Raises:
        LogError: the log cannot be read.
        LogCorruptError: no header, an event that is malformed, or damage before a committed turn end.
        LogRefusedError: a newer format, or an event of an unknown type.
    """
    try:
        with os.fdopen(open_file(path), "rb") as stream:
            reading = LogReading(stream, path, skip=skim.rows)
            metrics = Metrics(reading.header)
            for event in reading.events():
                if end is not None and event.seq >= end:
                    break
                metrics.add(event)
    except OSError as problem:
        raise LogError(f"cannot read the session log {path}: {cause_of(problem)}") from problem
    except (AttributeError, KeyError, TypeError) as problem:
        raise LogCorruptError(f"corrupt session log: the data of an event is malformed: {path}") from problem
    damage = reading.damage
    if damage is not None and damage.is_committed:
        raise LogCorruptError(f"corrupt session log: {damage.what}, in its committed region: {path}")
    return metrics.result()

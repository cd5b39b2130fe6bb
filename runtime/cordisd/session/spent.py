"""What a session has used up so far, counted from its events: the same live and read back from the log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cordisd.events import Event

Model = tuple[str, str]
"""Provider and model."""


@dataclass(slots=True)
class Spent:
    """Counts that only grow, but for `failures`. Whoever logs one of the events has it counted, once."""

    turns: int = 0
    """Number of the last turn begun."""
    turn_ms: int = 0
    """Time in the turns that have ended, by the clock of the log."""
    output_bytes: int = 0
    """Of the texts of tool results, as UTF-8."""
    failures: int = 0
    """Failed tool results in a row, up to the last one of the current turn."""
    unmetered: int = 0
    """Answers of which the model did not report how many tokens they took."""
    usage: dict[Model, dict[str, int]] = field(default_factory=dict)
    """Tokens by the names of `Usage`, as each model reported them; failed attempts are included."""
    _began_ms: int | None = None

    def take(self, event: Event) -> None:
        """Count what an event of the turn, or of the model's history, says."""
        data = event.data
        match event.type:
            case "turn/start":
                self.turns, self.failures, self._began_ms = data["turn"], 0, event.time
            case "turn/end" if self._began_ms is not None:
                self.turn_ms += max(0, event.time - self._began_ms)
                self._began_ms = None
            case "tool/result":
                for block in data["message"]["content"]:
                    self._take_result(block)
            case "assistant/message":
                usage = data.get("usage", {})
                if not {"inputTokens", "outputTokens"} <= usage.keys() and not data.get("interrupted"):
                    self.unmetered += 1
                source = data["message"].get("source", {})
                self.count(usage, (source.get("provider", ""), source.get("model", "")))

    def count(self, usage: Mapping[str, Any], model: Model) -> None:
        """Add the tokens that one request took."""
        if usage:
            counts = self.usage.setdefault(model, {})
            for name, count in usage.items():
                if type(count) is int:
                    counts[name] = counts.get(name, 0) + count

    def copy(self) -> Spent:
        """What it is now, to be compared with later."""
        return replace(self, usage={model: dict(counts) for model, counts in self.usage.items()})

    def tokens(self) -> dict[str, int]:
        """The tokens of all models together."""
        total: dict[str, int] = {}
        for counts in self.usage.values():
            for name, count in counts.items():
                total[name] = total.get(name, 0) + count
        return total

    def _take_result(self, block: Mapping[str, Any]) -> None:
        self.failures = self.failures + 1 if block.get("isError") else 0
        for part in block.get("content", ()):
            text = part.get("text", "")
            self.output_bytes += len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))

"""What a model answers, apart from how it is sent: as a stream or as one JSON object, as the request asks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from cordisd.mock.parts import Parameter


@dataclass(frozen=True, slots=True)
class Token:
    """One sampled token; `logprob` is a natural logarithm."""

    text: str
    id: int
    logprob: float


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call. `arguments` are the pieces of the raw string; `id` None is left out."""

    name: str
    arguments: Sequence[str]
    id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer. Texts come in pieces, each a delta of its own in a stream.

    The default finish reason is `tool_calls` where there are calls, else `stop`; None sends none. Token ids
    and log-probabilities are sent where the request asks (`return_token_ids`, `logprobs`): those of `tokens`,
    which then are the pieces of the text, or else made up from each piece, the same every time.
    """

    reasoning: Sequence[str] = ()
    text: Sequence[str] = ()
    refusal: Sequence[str] = ()
    calls: Sequence[Call] = ()
    finish: str | None = ""
    usage: Mapping[str, Any] | None = field(
        default_factory=lambda: {"prompt_tokens": 20, "completion_tokens": 4, "total_tokens": 24}
    )
    tokens: Sequence[Token] = ()
    prompt_token_ids: Sequence[int] | None = None
    reasoning_field: str = "reasoning_content"
    null_content: bool = False
    """Write `content: null` where there is no text, in the deltas too."""
    headers: Mapping[str, str] = field(default_factory=dict)
    faults: Mapping[str, Parameter] = field(default_factory=dict)
    """Faults to send it with: a name of `cordisd.mock.FAULTS` and its parameter, None for the usual one."""
    source: str = ""
    """Where it comes from, for the log."""

    @property
    def finish_reason(self) -> str | None:
        """The finish reason that is sent."""
        return self.finish if self.finish != "" else "tool_calls" if self.calls else "stop"

    @property
    def pieces(self) -> Sequence[str]:
        """The text in pieces."""
        return self.text or [token.text for token in self.tokens]

    def token_of(self, piece: str, number: int | None = None) -> Token:
        """The token that stands for a piece; `number` is its place among the pieces of the text."""
        if number is not None and number < len(self.tokens) and not self.text:
            return self.tokens[number]
        made = crc32(piece.encode("utf-8", "surrogatepass"))
        return Token(piece, made % 100_000, -round(made / 2**32, 4))


def text(*pieces: str, finish: str = "stop") -> Answer:
    """An answer of text, a delta for each piece."""
    return Answer(text=pieces, finish=finish)


def calls(*made: tuple[str, str, Mapping[str, Any] | str]) -> Answer:
    """An answer of tool calls `(id, name, arguments)`; arguments given as a string are sent as they are."""
    return Answer(
        calls=[Call(name, [raw_arguments(arguments)], call_id) for call_id, name, arguments in made]
    )


def call(call_id: str, name: str, arguments: Mapping[str, Any] | str) -> Answer:
    """An answer of one tool call."""
    return calls((call_id, name, arguments))


def raw_arguments(arguments: Mapping[str, Any] | str) -> str:
    """The arguments string of a call."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)

"""From an answer to what is written: rendered as the request asks, and spoilt by the faults it shall have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from random import Random
from typing import TypeVar

from cordisd.mock.answer import Answer
from cordisd.mock.faults.draw import Draw
from cordisd.mock.faults.table import FAULTS, Stage, wrong_fault
from cordisd.mock.parts import Parameter, Part, RawReply
from cordisd.mock.received import Received
from cordisd.mock.render import completion, stream_chunks
from cordisd.mock.sse import DONE, event, json_body

T = TypeVar("T")


class Spoiling:
    """One answer on its way through the faults `wanted`.

    `random_for` gives the randomness of a fault by its name. An unknown fault, or one with a parameter that
    it cannot take, is a `ValueError`.
    """

    def __init__(self, wanted: Mapping[str, Parameter], random_for: Callable[[str], Random]) -> None:
        for name, parameter in wanted.items():
            if wrong := wrong_fault(name, parameter):
                raise ValueError(wrong)
        self._wanted = wanted
        self._random_for = random_for
        self.applied: dict[str, Parameter] = {}
        """The faults that made a difference, and their parameters."""

    def reply(self, answer: Answer | RawReply, request: Received, number: int) -> RawReply:
        """What is written. Of a reply given as bytes only the transfer is spoilt, or it is refused."""
        raw = self._refusal(answer)
        if raw is None:
            raw = answer if isinstance(answer, RawReply) else self._render(answer, request, number)
        parts = self._strike("body", [*raw.parts])
        headers = dict(raw.headers)
        if raw.framing == "length":  # before the transfer cuts it
            n_bytes = sum(len(part) for part in parts if isinstance(part, bytes))
            headers.setdefault("Content-Length", str(n_bytes))
        parts = self._strike("transfer", parts)
        return replace(raw, parts=parts, headers=headers, source=answer.source)

    def _refusal(self, answer: Answer | RawReply) -> RawReply | None:
        if isinstance(answer, RawReply) and answer.status >= 400:
            return None
        for name, draw in self._draws("refusal"):
            self.applied[name] = draw.parameter
            refused: RawReply = FAULTS[name].apply(draw)
            return refused
        return None

    def _render(self, answer: Answer, request: Received, number: int) -> RawReply:
        answer = self._strike("answer", answer)
        if not request.object.get("stream"):
            return json_body(completion(answer, request, number), 200, answer.headers)
        chunks = self._strike("chunks", stream_chunks(answer, request, number))
        parts: list[Part] = [*self._strike("events", [*(event(chunk) for chunk in chunks), DONE])]
        return RawReply(parts, 200, {"Content-Type": "text/event-stream", **answer.headers})

    def _strike(self, stage: Stage, value: T) -> T:
        for name, draw in self._draws(stage):
            spoilt: T = FAULTS[name].apply(value, draw)
            if spoilt != value:
                self.applied[name] = draw.parameter
                value = spoilt
        return value

    def _draws(self, stage: Stage) -> Iterator[tuple[str, Draw]]:
        for name, fault in FAULTS.items():
            if fault.stage == stage and name in self._wanted:
                wanted = self._wanted[name]
                yield name, Draw(self._random_for(name), fault.parameter if wanted is None else wanted)

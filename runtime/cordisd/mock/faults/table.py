"""Every fault by its name: what it does, its usual parameter, at which stage of an answer it strikes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from cordisd.errors import nearest
from cordisd.mock.faults import answers, chunks, events, refusals, transfer
from cordisd.mock.parts import Parameter

Stage = Literal["refusal", "answer", "chunks", "events", "body", "transfer"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. `parameter` is the usual one, None where it takes none; `choices` what a word may be.

    `fails`: the client cannot have got the answer, and will ask again.
    """

    stage: Stage
    apply: Callable[..., Any]
    parameter: Parameter = None
    fails: bool = False
    choices: tuple[str, ...] = ()
    low: float = 0
    high: float = float("inf")

    @property
    def summary(self) -> str:
        """What it does, in a sentence."""
        return (self.apply.__doc__ or "").partition("\n")[0]

    def refuse(self, parameter: Parameter) -> str | None:
        """What the parameter must be, where it is not; None stands for the usual one and always is."""
        if parameter is None:
            return None
        if self.parameter is None:
            return "takes no parameter; write true"
        if self.choices:
            return None if parameter in self.choices else f"must be one of {', '.join(self.choices)}"
        whole = isinstance(self.parameter, int)
        kind = "an integer" if whole else "a number"
        bounds = (
            f" from {self.low:g} to {self.high:g}"
            if self.high < float("inf")
            else f" of at least {self.low:g}"
        )
        fits = isinstance(parameter, int if whole else (int, float)) and not isinstance(parameter, bool)
        return None if fits and self.low <= float(parameter) <= self.high else f"must be {kind}{bounds}"


def wrong_fault(name: str, parameter: Parameter) -> str | None:
    """What is wrong with a fault or its parameter; None when nothing is."""
    if name not in FAULTS:
        return f'unknown fault "{name}"{nearest(name, FAULTS) or "; known: " + ", ".join(FAULTS)}'
    wanted = FAULTS[name].refuse(parameter)
    return None if wanted is None else f"the fault {name} {wanted}, got {parameter!r}"


def _share(apply: Callable[..., Any]) -> Fault:
    return Fault("transfer", apply, 0.5, fails=True, high=1)


def _status(stage: Stage, apply: Callable[..., Any], status: int) -> Fault:
    return Fault(stage, apply, status, fails=True, low=400, high=599)


FAULTS: Final[Mapping[str, Fault]] = {
    "rate-limit": Fault("refusal", refusals.rate_limit, fails=True),
    "rate-limit-seconds": Fault("refusal", refusals.rate_limit_seconds, 1.0, fails=True),
    "rate-limit-date": Fault("refusal", refusals.rate_limit_date, 2.0, fails=True),
    "server-error": _status("refusal", refusals.server_error, 500),
    "html-error": _status("refusal", refusals.html_error, 502),
    "empty": Fault("answer", answers.empty),
    "reasoning-only": Fault("answer", answers.reasoning_only),
    "reasoning-name": Fault("answer", answers.reasoning_name, "reasoning", choices=("reasoning", "thinking")),
    "refusal": Fault("answer", answers.refusal),
    "truncated": Fault("answer", answers.truncated),
    "content-filter": Fault("answer", answers.content_filter),
    "broken-arguments": Fault("answer", answers.broken_arguments, "cut", choices=answers.BROKEN_ARGUMENTS),
    "call-id-missing": Fault("answer", answers.call_id_missing),
    "call-id-empty": Fault("answer", answers.call_id_empty),
    "call-id-duplicate": Fault("answer", answers.call_id_duplicate),
    "null-content": Fault("answer", answers.null_content),
    "wrong-finish": Fault("answer", answers.wrong_finish),
    "no-finish": Fault("answer", answers.no_finish),
    "no-usage": Fault("answer", answers.no_usage),
    "calls-interleaved": Fault("chunks", chunks.calls_interleaved),
    "call-id-repeated": Fault("chunks", chunks.call_id_repeated),
    "call-fields-empty": Fault("chunks", chunks.call_fields_empty),
    "call-index-late": Fault("chunks", chunks.call_index_late),
    "call-index-zero": Fault("chunks", chunks.call_index_zero),
    "call-index-missing": Fault("chunks", chunks.call_index_missing),
    "usage-everywhere": Fault("chunks", chunks.usage_everywhere),
    "usage-with-finish": Fault("chunks", chunks.usage_with_finish),
    "error-in-stream": _status("chunks", chunks.error_in_stream, 500),
    "no-done": Fault("events", events.no_done),
    "multi-line": Fault("events", events.multi_line),
    "comments": Fault("events", events.comments),
    "pings": Fault("events", events.pings),
    "byte-order-mark": Fault("events", events.byte_order_mark),
    "no-space": Fault("events", events.no_space),
    "crlf": Fault("events", events.crlf),
    "broken-json": Fault("body", transfer.broken_json, fails=True),
    "cut-fin": _share(transfer.cut_fin),
    "cut-rst": _share(transfer.cut_rst),
    "silence": _share(transfer.silence),
    "bad-chunk": _share(transfer.bad_chunk),
    "split-bytes": Fault("transfer", transfer.split_bytes),
    "split-random": Fault("transfer", transfer.split_random, 16.0, low=1),
    "split-characters": Fault("transfer", transfer.split_characters),
    "split-lines": Fault("transfer", transfer.split_lines),
    "pace": Fault("transfer", transfer.pace, 0.02, high=3600),
    "latency": Fault("transfer", transfer.latency, 0.2, high=3600),
}
"""In the order in which they strike."""

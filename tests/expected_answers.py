"""What JSON-RPC 2.0 says of some input: which answers have to come, each how often."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any, NamedTuple

Key = str | tuple[str, ...]
"""An answer by the JSON of its id; a batch of answers by those of them all."""


class Expected(NamedTuple):
    """The answers to some input."""

    answers: Counter[Key]
    methods: dict[str, set[str]]
    """The methods asked for under each id; an empty name where there was none."""

    @property
    def all_methods(self) -> set[str]:
        """Every method that was asked for, or told."""
        return set().union(*self.methods.values())


def expected(data: bytes) -> Expected:
    """The answers to whole lines of input."""
    answers: Counter[Key] = Counter()
    methods: dict[str, set[str]] = {}
    for line in data.split(b"\n"):
        if not line.strip():
            continue
        try:
            frame = json.loads(line.decode("utf-8"), parse_constant=_refuse, parse_float=_finite)
        except (ValueError, RecursionError):
            answers["null"] += 1
            methods.setdefault("null", set()).add("")
            continue
        members = frame if isinstance(frame, list) else [frame]
        for member in members:
            methods.setdefault(_key(member), set()).add(_method(member))
        due = sorted(_key(member) for member in members if _is_answered(member))
        if not isinstance(frame, list):
            answers.update(due)
        elif not members:
            answers["null"] += 1
            methods.setdefault("null", set()).add("")
        elif due:
            answers[tuple(due)] += 1
    return Expected(answers, methods)


def key_of(frame: Any) -> Key:
    """The key of an answer that has come."""
    if isinstance(frame, list):
        return tuple(sorted(json.dumps(answer["id"]) for answer in frame))
    return json.dumps(frame["id"])


def _is_answered(member: Any) -> bool:
    if not isinstance(member, dict):
        return True
    if "method" not in member and ("result" in member or "error" in member):
        return False  # an answer itself
    is_request = member.get("jsonrpc") == "2.0" and isinstance(member.get("method"), str)
    return not is_request or "id" in member


def _key(member: Any) -> str:
    found = member.get("id") if isinstance(member, dict) else None
    return json.dumps(found if type(found) in (str, int, float) else None)


def _method(member: Any) -> str:
    found = member.get("method") if isinstance(member, dict) else None
    return found if isinstance(found, str) else ""


def _refuse(word: str) -> None:
    raise ValueError(word)


def _finite(word: str) -> float:
    if math.isinf(number := float(word)):
        raise ValueError(word)
    return number

"""What a run may still use: limits, against what it and its session have used. Nothing is logged here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from cordisd.services.models import Prices
from cordisd.session.spent import Model, Spent

Limits = dict[str, float]
"""Numbers by the names that they have on the wire; `agent/limits.py` has what each means."""

NOTICES: Final = ("noticeSeconds", "noticeTurns")
COSTS: Final = ("maxCost", "maxSessionCost")
RUN: Final = {
    "maxTurns": "turns",
    "maxModelTokens": "tokens",
    "timeoutSeconds": "seconds",
    "maxToolOutputBytes": "output_bytes",
    "maxErrors": "failures",
    "maxCost": "cost",
}
"""Which amount each limit of a run is about, in the order in which they are looked at."""
SESSION: Final = {
    "maxSessionTurns": "turns",
    "maxSessionModelTokens": "tokens",
    "sessionTimeoutSeconds": "seconds",
    "maxSessionToolOutputBytes": "output_bytes",
    "maxSessionCost": "cost",
}

PriceOf = Callable[[str, str], Prices | None]
"""The prices of a model, by provider and name."""


class Used(NamedTuple):
    """Amounts that limits are about. None: not known, because a model does not report it or has no price."""

    turns: int = 0
    """Of a run its model requests, of a session its user inputs."""
    tokens: int | None = 0
    seconds: float = 0.0
    output_bytes: int = 0
    failures: int = 0
    cost: float | None = 0.0


class Stop(NamedTuple):
    """A limit that keeps a run from its next request. `used` None: it cannot be known, so not be kept."""

    name: str
    allowed: float
    used: float | None


@dataclass(slots=True)
class Budget:
    """The budget of one run, which begins now. `spent` is what its session counts, its turn included."""

    limits: Limits
    spent: Spent
    price_of: PriceOf
    clock: Callable[[], float] = time.monotonic
    n_requests: int = 0
    """Model requests that the run has made."""
    _before: Spent = field(init=False)
    _began_s: float = field(init=False)
    _told: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._before = self.spent.copy()
        self._began_s = self.clock()

    def stop(self) -> Stop | None:
        """The limit that the run, or its session, has come to."""
        return first_reached(self.limits, self.run(), self.session())

    def time_left(self) -> tuple[float, str] | None:
        """Seconds until a time limit, and which; None without one."""
        return time_left(self.limits, self.run(), self.session())

    def out_of_time(self, limit: str) -> Stop:
        """The end of the time that `limit` allows."""
        used = self.run() if limit in RUN else self.session()
        return Stop(limit, self.limits[limit], used.seconds)

    def notice(self) -> str | None:
        """What the model is to be told before its next request; each matter is told once."""
        if self.limits.keys().isdisjoint(NOTICES):
            return None
        due = dict(notices(self.limits, self.run(), self.session()))
        news = [text for name, text in due.items() if name not in self._told]
        self._told.update(due)
        return f"This run has {', and '.join(news)}." if news else None

    def run(self) -> Used:
        """What the run has used."""
        now, before = self.spent, self._before
        usage = {model: _less(counts, before.usage.get(model, {})) for model, counts in now.usage.items()}
        return Used(
            self.n_requests,
            None if now.unmetered > before.unmetered else n_tokens(usage),
            round(self.clock() - self._began_s, 3),
            now.output_bytes - before.output_bytes,
            now.failures,
            None if now.unmetered > before.unmetered else cost(usage, self.price_of),
        )

    def session(self) -> Used:
        """What the session has used, by user inputs before this one and by this run."""
        now = self.spent
        return Used(
            now.turns - 1,
            None if now.unmetered else n_tokens(now.usage),
            round(now.turn_ms / 1000 + self.clock() - self._began_s, 3),
            now.output_bytes,
            now.failures,
            None if now.unmetered else cost(now.usage, self.price_of),
        )


def first_reached(limits: Limits, run: Used, session: Used) -> Stop | None:
    """The first limit of which no more is left than was used, or of which that is not known."""
    for amounts, used in ((RUN, run), (SESSION, session)):
        for limit, amount in amounts.items():
            if limit in limits:
                have: float | None = getattr(used, amount)
                if have is None or have >= limits[limit]:
                    return Stop(limit, limits[limit], have)
    return None


def tightest(*given: Limits) -> Limits:
    """Of each limit the smallest that is given; a notice is as who comes last wants it."""
    found: Limits = {}
    for limits in given:
        for name, value in limits.items():
            found[name] = value if name in NOTICES else min(value, found.get(name, value))
    return found


def time_left(limits: Limits, run: Used, session: Used) -> tuple[float, str] | None:
    """Seconds until the nearest time limit, and which that is; None without one."""
    both = (("timeoutSeconds", run), ("sessionTimeoutSeconds", session))
    left = [(limits[limit] - used.seconds, limit) for limit, used in both if limit in limits]
    return min(left, default=None)


def notices(limits: Limits, run: Used, session: Used) -> Iterator[tuple[str, str]]:
    """What is nearly used up, by the name of the notice: as much as was asked for, or less, is left.

    Of the time, the text says what was asked for: it is then the same whenever the run is repeated.
    """
    if "noticeTurns" in limits and "maxTurns" in limits:
        n_left = int(limits["maxTurns"]) - run.turns
        if n_left <= limits["noticeTurns"]:
            yield "noticeTurns", f"{_counted(n_left, 'model request')} left, this one included"
    left = time_left(limits, run, session)
    if "noticeSeconds" in limits and left is not None and left[0] <= limits["noticeSeconds"]:
        yield "noticeSeconds", f"at most {_counted(limits['noticeSeconds'], 'second')} left"


def n_tokens(usage: Mapping[Model, Mapping[str, int]]) -> int:
    """Tokens read, from a cache too, and written; reasoning is part of what is written."""
    names = ("inputTokens", "cacheReadTokens", "outputTokens")
    return sum(counts.get(name, 0) for counts in usage.values() for name in names)


def cost(usage: Mapping[Model, Mapping[str, int]], price_of: PriceOf) -> float | None:
    """What the tokens cost by the prices of today; None if one of the models has none."""
    total = 0.0
    for model, counts in usage.items():
        prices = price_of(*model)
        if prices is not None:
            total += prices.cost(counts)
        elif any(counts.values()):
            return None
    return total


def _less(counts: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    return {name: count - before.get(name, 0) for name, count in counts.items()}


def _counted(number: float, noun: str) -> str:
    return f"{number:g} {noun}" + ("" if number == 1 else "s")

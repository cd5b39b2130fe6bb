"""Faults that strike at random, and again at the same requests when the seed is the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from cordisd.mock.faults.table import wrong_fault
from cordisd.mock.received import Received


@dataclass(frozen=True, slots=True)
class Luck:
    """What one request meets: `faults` strike it; `random_for` is the randomness of a fault by its name."""

    key: str
    faults: tuple[str, ...]

    def random_for(self, name: str) -> Random:
        """The same for the same seed, conversation, place in it and fault."""
        random = Random(f"{self.key}/{name}".encode("utf-8", "surrogatepass"))
        random.random()  # this one decided whether the fault strikes
        return random


class Chances:
    """Draws for each request whether a fault strikes it.

    The draw depends on the seed, on the first user message and on how many requests began with that message
    before: conversations that run at the same time, in whatever order, meet the same faults in each run.
    """

    def __init__(self, seed: int, probabilities: Mapping[str, float]) -> None:
        for name in probabilities:
            if wrong := wrong_fault(name, None):
                raise ValueError(wrong)
        self._seed = seed
        self._probabilities = dict(probabilities)
        self._n_requests: Counter[str] = Counter()

    def luck(self, request: Received) -> Luck:
        """The faults of the next request of its conversation."""
        opening = next(request.texts("user"), "")
        key = f"{self._seed}/{self._n_requests[opening]}/{opening}"
        self._n_requests[opening] += 1
        struck = (
            name
            for name, probability in self._probabilities.items()
            if Random(f"{key}/{name}".encode("utf-8", "surrogatepass")).random() < probability
        )
        return Luck(key, tuple(struck))

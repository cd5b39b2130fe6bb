"""What a fault may use while it spoils an answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from cordisd.mock.parts import Parameter

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Draw:
    """Randomness that repeats with the seed, and the fault's parameter."""

    random: Random
    parameter: Parameter

    @property
    def amount(self) -> float:
        """The parameter of a fault that takes a number."""
        assert isinstance(self.parameter, (int, float))
        return self.parameter

    def place(self, items: Sequence[object]) -> int:
        """The index of one of the items."""
        return self.random.randrange(len(items))

"""What `cordisd replay` finds out about one recording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a scenario. `error`: it could not be played, whether or not it would be equal."""

    name: str
    outcome: Literal["ok", "failed", "error"]
    message: str = ""
    n_requests: int = 0
    elapsed_s: float = 0.0
    notes: Sequence[str] = ()
    """Texts of differences that were let pass."""
    changes: Sequence[str] | None = None
    """After a refresh, what it changed, as lines of a diff."""

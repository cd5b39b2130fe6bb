"""Names of environment variables that hold secrets; no tool of a model may inherit them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class SecretNames:
    """The variables named so far. Entries that read a key add its variable when they mount."""

    names: set[str] = field(default_factory=set)

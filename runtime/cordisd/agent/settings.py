"""What is chosen for sessions: by a composition for its agent's loop, by a connection for what it makes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from cordisd.agent.budget import Limits
from cordisd.services.models import RequestConfig


class LoopSettings(NamedTuple):
    """How the loop runs a turn."""

    max_parallel_tool_calls: int = 10
    parameters: Mapping[str, Any] = MappingProxyType({})
    """Members of every request body that the agent sets itself."""


class SessionSettings(NamedTuple):
    """What a connection has chosen for the sessions it makes. `cwd` is absolute."""

    cwd: str
    config: RequestConfig
    preset: str | None = None
    """Name of a preset; None: the daemon's default agent."""
    required_digest: str | None = None
    """The digest that the agent of every such session must have."""


class SessionLimits(NamedTuple):
    """Limits of every session of a daemon; a client can only tighten them."""

    limits: Limits


class EvictionSettings(NamedTuple):
    """When idle sessions give up what their logs can tell again."""

    after_s: float

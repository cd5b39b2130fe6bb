"""Entry `limits`: what ends the runs of every session of the daemon, whatever its preset and its client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cordisd.agent.limits import LimitsConfig
from cordisd.agent.settings import SessionLimits
from cordisd.kernel.entry import Entry
from cordisd.kernel.scope import Scope


class LimitsEntry(Entry):
    """Limits of every session. A client can tighten them, and not loosen: of two the smaller holds.

    They are the daemon's and not the agent's, so no digest has them.
    """

    Config = LimitsConfig

    config: LimitsConfig

    @asynccontextmanager
    async def mount(self, scope: Scope) -> AsyncIterator[None]:
        scope.provide(SessionLimits, SessionLimits(self.config.as_limits()))
        yield

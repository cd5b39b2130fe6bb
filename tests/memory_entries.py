"""Entries that look at what is in memory: `memory_entries:CounterEntry` in a composition, for example."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from cordisd.kernel.entry import Entry
from cordisd.kernel.scope import Scope
from cordisd.services.tools import ToolCall, ToolRegistry, ToolResult, ToolSchema
from cordisd.session.history import History
from cordisd.session.session import Session


class HistoryCounter:
    """A tool that says how many histories there are; from its first call on, without the cyclic collector."""

    parallel_safe = False
    contract = 1
    schema = ToolSchema("histories", "counts", {"type": "object", "properties": {}})

    async def run(self, arguments: dict[str, Any], call: ToolCall) -> ToolResult:
        n_histories = sum(isinstance(found, History) for found in gc.get_objects())
        gc.disable()
        return ToolResult(str(n_histories))


class EvictionWatch:
    """A tool that says which sessions have given up their past."""

    parallel_safe = False
    contract = 1
    schema = ToolSchema("evicted", "tells", {"type": "object", "properties": {}})

    async def run(self, arguments: dict[str, Any], call: ToolCall) -> ToolResult:
        found = [one for one in gc.get_objects() if isinstance(one, Session)]
        return ToolResult(",".join(sorted(one.id for one in found if one.is_evicted)))


class WatchEntry(Entry):
    """Adds `evicted`."""

    lifetime = "session"

    @asynccontextmanager
    async def mount(self, scope: Scope) -> AsyncIterator[None]:
        scope.defer(scope.get(ToolRegistry).add(EvictionWatch()))
        yield


class CounterEntry(Entry):
    """Adds `histories`."""

    lifetime = "session"

    @asynccontextmanager
    async def mount(self, scope: Scope) -> AsyncIterator[None]:
        remove = scope.get(ToolRegistry).add(HistoryCounter())
        yield
        remove()

"""An entry that counts the histories in memory: `memory_entries:CounterEntry` in a composition."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from cordisd.kernel.entry import Entry
from cordisd.kernel.scope import Scope
from cordisd.services.tools import ToolCall, ToolRegistry, ToolResult, ToolSchema
from cordisd.session.history import History


class HistoryCounter:
    """A tool that says how many histories there are; from its first call on, without the cyclic collector."""

    parallel_safe = False
    contract = 1
    schema = ToolSchema("histories", "counts", {"type": "object", "properties": {}})

    async def run(self, arguments: dict[str, Any], call: ToolCall) -> ToolResult:
        n_histories = sum(isinstance(found, History) for found in gc.get_objects())
        gc.disable()
        return ToolResult(str(n_histories))


class CounterEntry(Entry):
    """Adds `histories`."""

    lifetime = "session"

    @asynccontextmanager
    async def mount(self, scope: Scope) -> AsyncIterator[None]:
        remove = scope.get(ToolRegistry).add(HistoryCounter())
        yield
        remove()

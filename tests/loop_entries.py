"""Entries from outside the package, for tests of the loop: named in compositions as `loop_entries:Class`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from cordisd.kernel.entry import Entry
from cordisd.kernel.scope import Scope
from cordisd.services.prompt import PromptRegistry, Section
from cordisd.services.tools import ToolCall, ToolRegistry, ToolResult, ToolSchema


class Sleeper:
    """A tool that sleeps for `seconds`, or until call `after` ended, and says which of its kind ran then."""

    running: set[str] = set()
    ended: set[str] = set()

    def __init__(self, name: str, *, parallel_safe: bool) -> None:
        properties = {"seconds": {"type": "number"}, "after": {"type": "string"}}
        parameters = {"type": "object", "properties": properties}
        self.schema = ToolSchema(name, "sleeps", parameters)
        self.parallel_safe = parallel_safe
        self.contract = 1

    async def run(self, arguments: dict[str, Any], call: ToolCall) -> ToolResult:
        self.running.add(call.call_id)
        await asyncio.sleep(arguments.get("seconds", 0))
        while "after" in arguments and arguments["after"] not in self.ended:
            await asyncio.sleep(0.01)
        seen = sorted(self.running)
        self.running.discard(call.call_id)
        self.ended.add(call.call_id)
        if arguments.get("seconds") == 0.123:
            raise RuntimeError("this tool is broken")
        return ToolResult(f"ran beside {seen}")


class SleepersEntry(Entry):
    """Adds `together` (parallel-safe) and `alone`."""

    lifetime = "session"

    @asynccontextmanager
    async def mount(self, scope: Scope) -> AsyncIterator[None]:
        tools = scope.get(ToolRegistry)
        undo = [
            tools.add(Sleeper("together", parallel_safe=True)),
            tools.add(Sleeper("alone", parallel_safe=False)),
        ]
        yield
        for remove in undo:
            remove()


class SlowEntry(Entry):
    """Takes half a second to mount, and adds an identity section for all sessions."""

    @asynccontextmanager
    async def mount(self, scope: Scope) -> AsyncIterator[None]:
        await asyncio.sleep(0.5)
        undo = scope.get(PromptRegistry).add_section(Section("slow:identity", -1, "I took my time."))
        yield
        undo()


class StalledEntry(Entry):
    """Says that it mounts by a file `mounting`, and waits for a file `go`."""

    @asynccontextmanager
    async def mount(self, scope: Scope) -> AsyncIterator[None]:
        Path("mounting").touch()
        while not Path("go").exists():
            await asyncio.sleep(0.01)
        yield


class ContextEntry(Entry):
    """Adds a runtime context that changes with every assembly that asks for it."""

    lifetime = "session"

    @asynccontextmanager
    async def mount(self, scope: Scope) -> AsyncIterator[None]:
        texts = iter(["first", "first", "second"])
        undo = scope.get(PromptRegistry).add_context(Section("weather", 0, lambda _: next(texts)))
        yield
        undo()


class ReaderEntry(Entry):
    """Has a thread wait for what takes very long, as a disk may."""

    @asynccontextmanager
    async def mount(self, scope: Scope) -> AsyncIterator[None]:
        asyncio.get_running_loop().run_in_executor(None, time.sleep, 600)
        yield

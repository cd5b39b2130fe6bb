"""Hosts in this process, with a scripted model and a tool that says what it is told to."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from conversations import persona
from cordisd.agent import sessions
from cordisd.agent.host import Host
from cordisd.agent.live import Live
from cordisd.agent.settings import SessionSettings
from cordisd.errors import ToolError
from cordisd.kernel.entry import Entry
from cordisd.kernel.load import load
from cordisd.kernel.scope import Scope
from cordisd.mock import MockModel
from cordisd.mock.server import Script
from cordisd.services.tools import Tool, ToolCall, ToolRegistry, ToolResult, ToolSchema
from measure import PATIENCE_S

NO_DELAY = {"backoff": {"initialDelayMs": 0, "maxDelayMs": 0}}


class Echo(Tool):
    """Says `text`; an empty one is a failure."""

    schema = ToolSchema("echo", "says", {"type": "object", "properties": {"text": {"type": "string"}}})

    async def run(self, arguments: dict[str, Any], call: ToolCall) -> ToolResult:
        if not arguments["text"]:
            raise ToolError("nothing to say")
        return ToolResult(arguments["text"])


class EchoEntry(Entry):
    """Offers `echo`."""

    lifetime = "session"
    needs = (ToolRegistry,)

    @asynccontextmanager
    async def mount(self, scope: Scope) -> AsyncIterator[None]:
        scope.defer(scope.get(ToolRegistry).add(Echo()))
        yield


@asynccontextmanager
async def host_here(
    folder: Path, script: Script, logs: Mapping[str, Any] | None = None
) -> AsyncIterator[Host]:
    """A host in this process; its model plays `script`, and `logs` configures the logs in `folder`/logs."""
    async with MockModel(script) as model:
        row = {"provider": "p", "apiKeyEnv": None, "baseUrl": model.url, "retryPolicy": NO_DELAY}
        rows: list[dict[str, Any]] = [
            {"id": "model", "name": "openai", "config": row},
            {
                "id": "logs",
                "name": "sessions-jsonl",
                "config": {"root": str(folder / "logs"), **(logs or {})},
            },
            persona("Work."),
            {"id": "echo", "name": "hosts:EchoEntry"},
        ]
        path = folder / "composition.yml"
        path.write_text(json.dumps(rows))
        host = Host(load(path), None)
        try:
            await host.start()
            yield host
        finally:
            await host.close()


async def open_session(host: Host, folder: Path, session_id: str = "s") -> Live:
    """A new session that works in `folder`."""
    settings = SessionSettings(str(folder), host.configure("p", "m", None, None))
    return await sessions.create(host, session_id, settings, None)


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for a situation."""
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end
        await asyncio.sleep(0.002)


async def idle(live: Live) -> None:
    """Wait until the session has nothing more to do."""
    await until(lambda: live.session.status == "idle")

"""Agents mounted in this process, from the text of a preset."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from cordisd.agent.agent import Agent, mount_agent
from cordisd.agent.fingerprint import Fingerprint
from cordisd.agent.preset import AGENT_FILE, read_preset
from cordisd.kernel.entry import Entry
from cordisd.kernel.scope import Scope
from cordisd.services.models import RequestConfig
from cordisd.services.prompt import PromptRegistry
from cordisd.services.tools import ToolCall, ToolRegistry, ToolResult, ToolSchema
from cordisd.session.realm import Realm
from cordisd.settings import EntryConfig
from cordisd.shell.guardian import Guardian

MountHost = Callable[[PromptRegistry], None]


class Offer:
    """A tool that only has a schema."""

    parallel_safe = True

    def __init__(self, schema: ToolSchema, contract: int = 1) -> None:
        self.schema = schema
        self.contract = contract

    async def run(self, arguments: dict[str, Any], call: ToolCall) -> ToolResult:
        return ToolResult("ran")


class OfferConfig(EntryConfig):
    """A tool."""

    tool: str = "offered"
    description: str = "does nothing"
    parameters: dict[str, Any] = {"type": "object", "properties": {}}
    contract: int = 1


class OfferEntry(Entry):
    """Offers one tool of any name, schema and contract."""

    Config = OfferConfig
    lifetime = "session"
    needs = (ToolRegistry,)

    @asynccontextmanager
    async def mount(self, scope: Scope) -> AsyncIterator[None]:
        config: OfferConfig = self.config
        schema = ToolSchema(config.tool, config.description, config.parameters)
        scope.defer(scope.get(ToolRegistry).add(Offer(schema, config.contract)))
        yield


class Agents:
    """Mounts presets of the folder `root`; `host` may add to the host's prompt registry first."""

    def __init__(self, root: Path, guardian: Guardian) -> None:
        self.root = root
        self._guardian = guardian

    def write(self, text: str, name: str = "one") -> Path:
        """The folder of a preset whose agent file has this text."""
        folder = self.root / name
        folder.mkdir(exist_ok=True)
        (folder / AGENT_FILE).write_text(text)
        return folder

    def fingerprint(self, text: str, name: str = "one", host: MountHost = lambda _: None) -> Fingerprint:
        """What the preset resolves to."""
        with self.mounted(text, name, host) as agent:
            return agent.fingerprint

    def digest(self, text: str) -> str:
        return self.fingerprint(text).digest

    @contextmanager
    def mounted(self, text: str, name: str = "one", host: MountHost = lambda _: None) -> Iterator[Agent]:
        """The preset's agent, mounted while the context lasts."""
        scope = Scope("host")
        scope.provide(PromptRegistry, PromptRegistry())
        scope.provide(ToolRegistry, ToolRegistry())
        host(scope.get(PromptRegistry))
        preset, _ = read_preset(self.write(text, name))
        realm = Realm("", "/", self._guardian)
        with asyncio.Runner() as runner:
            agent = runner.run(mount_agent(scope, preset, realm, RequestConfig("p", "m"), "a session"))
            try:
                yield agent
            finally:
                runner.run(agent.scope.close())

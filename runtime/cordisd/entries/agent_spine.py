"""Entry for the published `dsh-agent-spine-demo` row: persona, identity and loop settings in one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import ClassVar, Literal

from cordisd.entries.agent import LoopConfig, provide_loop
from cordisd.entries.runtime_context import environment_context
from cordisd.kernel.entry import Entry, Lifetime
from cordisd.kernel.scope import Scope
from cordisd.services.prompt import PromptRegistry, Section
from cordisd.settings import EntryConfig

IDENTITY = "You are a coding agent that works through the tools of its runtime, cordisd."


class Skills(EntryConfig):
    """The published skills switch."""

    enabled: Literal[False]
    """Must be false: skills are not part of this runtime."""


class AgentSpineConfig(LoopConfig):
    """The published keys. Parts that this runtime does not have must be switched off in writing."""

    persona: str = ""
    """Text of the section `deployment:persona`; empty: no section."""
    include_harness_identity: bool = True
    """Put the runtime's own identity text before the persona."""
    include_runtime_context: bool = True
    """Tell the agent the working directory and the platform, in a user message."""
    workspace_context: Literal[False]
    """Must be false: workspace files are never read into the prompt."""
    skills: Skills
    """Must be `{enabled: false}`."""
    tool_bash: Literal[False] = False
    """Must be false: mount the persistent bash as a row of its own."""
    tool_jobs: Literal[False] = False
    """Must be false: there is no jobs tool."""


class AgentSpineEntry(Entry):
    """Contributes what the published spine does in a two-tool composition."""

    Config = AgentSpineConfig
    lifetime: ClassVar[Lifetime] = "session"
    needs = (PromptRegistry,)

    @asynccontextmanager
    async def mount(self, scope: Scope) -> AsyncIterator[None]:
        config: AgentSpineConfig = self.config
        prompts = scope.get(PromptRegistry)
        if config.include_harness_identity:
            scope.defer(prompts.add_section(Section("harness:identity", -100, IDENTITY)))
        if config.persona:
            scope.defer(prompts.add_section(Section("deployment:persona", 0, config.persona)))
        if config.include_runtime_context:
            scope.defer(prompts.add_context(environment_context()))
        provide_loop(config, scope)
        yield

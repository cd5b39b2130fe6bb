"""Entries `section` and `host-section`: a part of the system prompt besides the persona."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import ClassVar

from pydantic import Field

from cordisd.kernel.entry import Entry, Lifetime
from cordisd.kernel.scope import Scope
from cordisd.services.prompt import PromptRegistry, Section
from cordisd.settings import EntryConfig


class SectionConfig(EntryConfig):
    """One section. Where an agent has a complete section, no other is part of its prompt."""

    name: str = Field(min_length=1)
    """Name of the section. One of the agent's own takes the place of the host's of the same name."""
    text: str
    """Its text. `{{provider}}`, `{{model}}` and `{{cwd}}` are put in; `{{{{` is a literal `{{`. An empty
    one is left out."""
    order: float = Field(default=0, allow_inf_nan=False)
    """Sections stand in ascending order: identity -100, persona 0, guidance on tools 100 to 199."""


class SectionEntry(Entry):
    """Contributes a section to the prompt of one agent."""

    Config = SectionConfig
    lifetime: ClassVar[Lifetime] = "session"
    needs = (PromptRegistry,)

    @asynccontextmanager
    async def mount(self, scope: Scope) -> AsyncIterator[None]:
        config: SectionConfig = self.config
        section = Section(config.name, config.order, config.text)
        scope.defer(scope.get(PromptRegistry).add_section(section))
        yield


class HostSectionEntry(SectionEntry):
    """Contributes a section to the prompt of every agent of the daemon."""

    lifetime: ClassVar[Lifetime] = "host"

"""Entry `persona`: the system prompt's main text."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import ClassVar

from cordisd.kernel.entry import Entry, Lifetime
from cordisd.kernel.scope import Scope
from cordisd.services.prompt import PromptRegistry, Section
from cordisd.settings import EntryConfig


class PersonaConfig(EntryConfig):
    """What the agent is told it is."""

    text: str
    """The section's text. `{{provider}}`, `{{model}}` and `{{cwd}}` are put in; `{{{{` is a literal `{{`.
    Empty: no system message, unless another section has a text."""
    complete: bool = False
    """Make this text the whole system prompt: nothing else can add to it, whoever tries."""
    include_runtime_context: bool = True
    """False: no runtime context is sent to the agent."""


class PersonaEntry(Entry):
    """Contributes the section `deployment:persona` (order 0) to each session's prompt."""

    Config = PersonaConfig
    lifetime: ClassVar[Lifetime] = "session"
    needs = (PromptRegistry,)

    @asynccontextmanager
    async def mount(self, scope: Scope) -> AsyncIterator[None]:
        config: PersonaConfig = self.config
        prompts = scope.get(PromptRegistry)
        section = Section("deployment:persona", 0, config.text, complete=config.complete)
        scope.defer(prompts.add_section(section))
        if not config.include_runtime_context:
            scope.defer(prompts.suppress_contexts())
        yield

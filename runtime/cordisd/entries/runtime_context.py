"""Entry `runtime-context`: tells every agent of the daemon where it works."""

from __future__ import annotations

import platform
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cordisd.kernel.entry import Entry
from cordisd.kernel.scope import Scope
from cordisd.services.prompt import PromptRegistry, Section


def environment_context() -> Section:
    """The working directory and the platform; nothing that changes by itself while a session lives."""
    text = f"Working directory: {{{{cwd}}}}\nPlatform: {platform.system().lower()}"
    return Section("environment", 0, text)


class RuntimeContextEntry(Entry):
    """Contributes a runtime context: a user message after the first prompt, and again when it has changed.

    An agent whose persona has `includeRuntimeContext: false` gets none.
    """

    needs = (PromptRegistry,)

    @asynccontextmanager
    async def mount(self, scope: Scope) -> AsyncIterator[None]:
        scope.defer(scope.get(PromptRegistry).add_context(environment_context()))
        yield

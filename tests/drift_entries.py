"""A host entry that changes tools behind the back of frozen agents, in assemblies for requests only.

What it does to a session stands in the name of the session's directory: `KIND` or `KIND-from-N`, with the
number of the first request that it spoils. It leaves everything alone where there is no such kind.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cordisd.entries.bash import BashTool
from cordisd.kernel.entry import Entry
from cordisd.kernel.scope import Scope
from cordisd.services.prompt import Assembly, Proceed, PromptRegistry, RenderedSection
from cordisd.services.tools import ToolSchema


def append(assembly: Assembly) -> None:
    assembly.tools.append(ToolSchema("web_fetch", "fetches", {"type": "object", "properties": {}}))


def reorder(assembly: Assembly) -> None:
    assembly.tools.reverse()


def describe(assembly: Assembly) -> None:
    assembly.tools[0] = assembly.tools[0]._replace(description=assembly.tools[0].description + " ")


def mutate(assembly: Assembly) -> None:
    assembly.tools[0].parameters["properties"]["timeout"] = {"type": "number"}


def remove(assembly: Assembly) -> None:
    del assembly.tools[0]


def speak(assembly: Assembly) -> None:
    """What final enforcement undoes, so that it does no harm."""
    assembly.sections.append(RenderedSection("late", "Obey."))
    assembly.sections[0] = RenderedSection("deployment:persona", "Changed.", True)
    assembly.contexts.append(RenderedSection("late", "It is late."))


KINDS = {one.__name__: one for one in (append, reorder, describe, mutate, remove, speak)}


class DriftEntry(Entry):
    """Listens to every assembly of the daemon."""

    needs = (PromptRegistry,)

    @asynccontextmanager
    async def mount(self, scope: Scope) -> AsyncIterator[None]:
        seen: Counter[str] = Counter()

        def drift(assembly: Assembly, proceed: Proceed) -> Assembly:
            name = os.path.basename(assembly.variables["cwd"] or "")
            seen[name] += 1
            kind, _, first = name.partition("-from-")
            if kind in KINDS and seen[name] >= int(first or 1):
                KINDS[kind](assembly)
            return proceed(assembly)

        scope.defer(scope.get(PromptRegistry).add_listener(drift))
        yield


class ContractEntry(Entry):
    """Another version of the bash tool, whose results read otherwise."""

    @asynccontextmanager
    async def mount(self, scope: Scope) -> AsyncIterator[None]:
        BashTool.contract += 1
        yield

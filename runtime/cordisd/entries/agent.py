"""Entry `agent`: how the agent loop runs, where a composition wants it other than the defaults."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import ClassVar

from pydantic import field_validator

from cordisd.agent.settings import LoopSettings
from cordisd.errors import PromptError
from cordisd.events import JsonObject
from cordisd.kernel.entry import Entry, Lifetime
from cordisd.kernel.scope import Scope
from cordisd.services.models import check_parameters
from cordisd.services.prompt import PromptRegistry, check_tool_order
from cordisd.session.title import TitleLimits
from cordisd.settings import EntryConfig, PositiveInt


class SessionTitleConfig(EntryConfig):
    """Limits of a session's title."""

    fallback_max_words: PositiveInt = 5
    """Words of the first prompt that become the title."""
    fallback_max_bytes: PositiveInt = 40
    """UTF-8 bytes to which that title is cut."""
    max_title_bytes: PositiveInt = 80
    """Limit of a title that a user or a model gives; none can yet, so this has no effect."""


class LoopConfig(EntryConfig):
    """Keys that the agent loop reads, shared with the published spine."""

    max_parallel_tool_calls: PositiveInt = 10
    """Most parallel-safe tool calls of one step that run at once."""
    tool_order: list[str] | None = None
    """Order of the tools in the request: names, and `<unlisted-tools>` exactly once. None: by name."""
    session_title: SessionTitleConfig = SessionTitleConfig()
    """Limits of the title that a session gets from its first prompt."""
    parameters: JsonObject = {}
    """Members of the body of every model request of this agent, over those of the model's row."""

    @field_validator("parameters")
    @classmethod
    def _are_parameters(cls, parameters: JsonObject) -> JsonObject:
        return check_parameters(parameters)

    @field_validator("tool_order")
    @classmethod
    def _check_order(cls, order: list[str] | None) -> list[str] | None:
        try:
            return order if order is None else list(check_tool_order(order))
        except PromptError as error:
            raise ValueError(str(error)) from None


def provide_loop(config: LoopConfig, scope: Scope) -> None:
    """Put the loop's settings where the host looks for them."""
    scope.provide(LoopSettings, LoopSettings(config.max_parallel_tool_calls, config.parameters))
    title = config.session_title
    scope.provide(TitleLimits, TitleLimits(title.fallback_max_words, title.fallback_max_bytes))
    if config.tool_order is not None:
        scope.get(PromptRegistry).tool_order = tuple(config.tool_order)


class AgentEntry(Entry):
    """Sets the loop's limits and the order of the tools for each session."""

    Config = LoopConfig
    lifetime: ClassVar[Lifetime] = "session"
    needs = (PromptRegistry,)

    @asynccontextmanager
    async def mount(self, scope: Scope) -> AsyncIterator[None]:
        provide_loop(self.config, scope)
        yield

"""The host: one daemon's composition, mounted, and every session that lives in it."""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from cordisd.agent.agent import Agent, mount_agent, unmount
from cordisd.agent.preset import Preset, Roster, own_preset
from cordisd.errors import (
    CompositionError,
    NotInitializedError,
    PresetError,
    Problem,
    ProfileError,
    PromptError,
    SessionNotFoundError,
    ShellError,
)
from cordisd.kernel.load import Composition
from cordisd.kernel.mount import mount
from cordisd.kernel.scope import Scope
from cordisd.services.models import ModelRegistry, RequestConfig
from cordisd.services.prompt import PromptRegistry
from cordisd.services.secrets import SecretNames
from cordisd.services.tools import ToolRegistry
from cordisd.services.traffic import Traffic
from cordisd.session.realm import Realm
from cordisd.shell.guardian import Guardian

if TYPE_CHECKING:  # what runs a session is loaded with the first one
    from cordisd.agent.live import Live

logger = logging.getLogger(__name__)

ABORT_S = 0.6
"""How long a shutdown waits for turns to log their end before it answers."""


@dataclass(slots=True)
class Host:
    """Mounts a composition once and makes sessions from it. Close it exactly once."""

    composition: Composition
    guardian: Guardian | None
    scope: Scope = field(default_factory=lambda: Scope("host"))
    on_open: Callable[[Live], None] = lambda live: None
    """Called with each session before its first event, so that whoever listens misses none."""
    on_close: Callable[[Live], None] = lambda live: None
    """Called with each session that has been closed, after its last event."""
    closing: bool = False
    live: dict[str, Live] = field(default_factory=dict)
    """Every live session by id, oldest first."""
    closed_ids: set[str] = field(default_factory=set)
    """Sessions that were closed and have a log."""
    _locks: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)

    async def mount(self) -> None:
        """Mount the host entries.

        Raises:
            CompositionError: an entry did not mount.
        """
        self.scope.provide(ModelRegistry, ModelRegistry())
        self.scope.provide(PromptRegistry, PromptRegistry())
        self.scope.provide(ToolRegistry, ToolRegistry())
        self.scope.provide(SecretNames, SecretNames(set()))
        self.scope.provide(Traffic, Traffic())
        await mount(self.composition.host, self.scope)

    async def start(self) -> None:
        """Mount the host entries, and the agents on trial: what cannot mount fails the start.

        Raises:
            CompositionError: an entry did not mount, or the prompt cannot be assembled.
        """
        await self.mount()
        try:
            await self.try_out(own_preset(self.composition))
            if (default := self.preset(None)).name is not None:
                await self.try_out(default)
        except (PresetError, ProfileError, PromptError) as error:
            raise CompositionError([Problem(str(self.composition.path), str(error))]) from error

    def preset(self, name: str | None) -> Preset:
        """The preset of that name; for None the roster's default, else the composition's own agent.

        Raises:
            PresetError: there is none, or its files have problems.
        """
        roster = self.scope.find(Roster)
        if roster is None and name is not None:
            raise PresetError(f'preset "{name}" not found: this composition has no entry "presets"')
        if name is None and roster is not None:
            name = roster.default
        return own_preset(self.composition) if name is None or roster is None else roster.get(name)

    async def try_out(self, preset: Preset) -> Agent:
        """The agent of `preset`, mounted once and unmounted again, to see what it is.

        Raises:
            PresetError, CompositionError, PromptError, ProfileError: as `mount_agent`.
        """
        async with self.trial(preset, os.getcwd(), RequestConfig("", "")) as agent:
            return agent

    @asynccontextmanager
    async def trial(self, preset: Preset, cwd: str, config: RequestConfig) -> AsyncIterator[Agent]:
        """An agent that no session has, in a realm of its own; nothing is left of it.

        Raises:
            PresetError, CompositionError, PromptError, ProfileError, InvalidParamsError: as `mount_agent`.
        """
        realm = Realm(f"trial-{uuid.uuid4().hex}", cwd, self.guardian)
        try:
            agent = await mount_agent(self.scope, preset, realm, config, "a session on trial")
            try:
                yield agent
            finally:
                await unmount(agent.scope)
        finally:
            await realm.close()

    def configure(
        self, provider: str, model: str, max_tokens: int | None, reasoning_effort: str | None
    ) -> RequestConfig:
        """The request settings of new sessions; what the client left out comes from the adapter.

        Raises:
            CordisError: no adapter serves the provider, or the model has no such reasoning effort.
        """
        adapter = self.scope.get(ModelRegistry).get(provider)
        info = adapter.describe(model)
        defaults = set()
        if reasoning_effort is not None:
            adapter.check_effort(model, reasoning_effort)
        elif info.reasoning_effort is not None:
            reasoning_effort = info.reasoning_effort
            defaults.add("reasoningEffort")
        if max_tokens is None and info.max_tokens is not None:
            max_tokens = info.max_tokens
            defaults.add("maxTokens")
        return RequestConfig(provider, model, max_tokens, reasoning_effort, frozenset(defaults))

    def get(self, session_id: str) -> Live:
        """The live session of that id.

        Raises:
            SessionNotFoundError: there is none.
        """
        if session_id not in self.live:
            raise SessionNotFoundError(
                f'session "{session_id}" not found; live sessions: {len(self.live)}; '
                "session/resume opens a stored one"
            )
        return self.live[session_id]

    def in_order(self, session_id: str) -> asyncio.Lock:
        """The lock under which requests open or prompt this session, first come, first served.

        Hold it around what `sessions` does, and around what has to follow it in order.
        """
        lock = self._locks.get(session_id)
        if lock is None:
            lock = self._locks[session_id] = asyncio.Lock()
        return lock

    def check_serving(self) -> None:
        """Go on only if the daemon is not ending.

        Raises:
            NotInitializedError: it is.
        """
        if self.closing:
            raise NotInitializedError("the daemon is shutting down")

    async def close_session(self, session_id: str, *, for_good: bool = False) -> None:
        """End a session: its turn, its processes, its log file. The stored log stays. Hold `in_order`.

        `for_good`: nothing takes its place at once, and who listens is told that it is closed. Cancelling it
        stops the waiting: what has begun to close is closed.

        Raises:
            SessionNotFoundError: it is not live.
        """
        live = self.get(session_id)
        if live.closing is None:
            live.closing = asyncio.ensure_future(self._close(live, for_good))
        await asyncio.shield(live.closing)

    async def _close(self, live: Live, for_good: bool) -> None:
        await live.runner.stop("user")
        try:
            await live.close(for_good=for_good)
        finally:
            self.live.pop(live.session.id, None)  # the host may have been closed
            if live.session.log.path is None or live.session.log.has_begun:
                self.closed_ids.add(live.session.id)  # with no event there is no log: the id is free again
            self.on_close(live)

    async def abort(self) -> None:
        """Take no more prompts and have every turn log its end; bounded by `ABORT_S`."""
        self.closing = True
        stopping = [asyncio.ensure_future(live.runner.stop("disposed")) for live in self.live.values()]
        if stopping:
            _, late = await asyncio.wait(stopping, timeout=ABORT_S)
            for task in late:
                task.cancel()
        for live in self.live.values():
            live.session.log.flush()

    async def close(self) -> None:
        """End everything: turns, every process of every session, the host entries."""
        await self.abort()
        if self.guardian is not None:
            try:
                await self.guardian.close()
            except ShellError as error:
                logger.error("%s", error)
        await asyncio.gather(*(live.close() for live in self.live.values()))
        self.live.clear()
        await unmount(self.scope)

"""The host: one daemon's composition, mounted, and every session that lives in it."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from cordisd import __version__
from cordisd.agent.live import Live, SessionSettings
from cordisd.agent.run import Runner
from cordisd.agent.turn import LoopSettings
from cordisd.errors import (
    InvalidParamsError,
    NotInitializedError,
    SessionBusyError,
    SessionExistsError,
    SessionNotFoundError,
    ShellError,
)
from cordisd.events import Event, JsonObject
from cordisd.kernel.load import Composition
from cordisd.kernel.mount import mount
from cordisd.kernel.scope import Scope
from cordisd.services.models import ModelRegistry, RequestConfig
from cordisd.services.prompt import PromptRegistry
from cordisd.services.secrets import SecretNames
from cordisd.services.tools import ToolRegistry
from cordisd.session.header import SessionHeader
from cordisd.session.history import History
from cordisd.session.log import EventSink, SessionLog
from cordisd.session.realm import Realm
from cordisd.session.restore import last_directory, restore
from cordisd.session.session import Session
from cordisd.session.store import SessionStore, StoredSession
from cordisd.session.title import TitleLimits
from cordisd.shell.guardian import Guardian

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
    closing: bool = False
    _live: dict[str, Live] = field(default_factory=dict)
    _locks: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    _closed_ids: set[str] = field(default_factory=set)

    async def start(self) -> None:
        """Mount the host entries, and the session entries once on trial: who cannot mount fails the start.

        Raises:
            CompositionError: an entry did not mount.
        """
        self.scope.provide(ModelRegistry, ModelRegistry())
        self.scope.provide(PromptRegistry, PromptRegistry())
        self.scope.provide(ToolRegistry, ToolRegistry())
        self.scope.provide(SecretNames, SecretNames(set()))
        await mount(self.composition.host, self.scope)
        trial = Scope("a session on trial", self.scope)
        self._provide(trial, Realm("", os.getcwd(), self.guardian), RequestConfig("", ""))
        await mount(self.composition.session, trial)
        await trial.close()

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

    def sessions(self) -> Iterator[Live]:
        """Every live session, oldest first."""
        yield from self._live.values()

    def get(self, session_id: str) -> Live:
        """The live session of that id.

        Raises:
            SessionNotFoundError: there is none.
        """
        if session_id not in self._live:
            raise SessionNotFoundError(f'session "{session_id}" not found; live sessions: {len(self._live)}')
        return self._live[session_id]

    def in_order(self, session_id: str) -> asyncio.Lock:
        """The lock under which requests open or prompt this session, first come, first served.

        Hold it around `obtain`, `create` and `resume`, and around what has to follow them in order.
        """
        lock = self._locks.get(session_id)
        if lock is None:
            lock = self._locks[session_id] = asyncio.Lock()
        return lock

    async def obtain(self, session_id: str, settings: SessionSettings, owner: object) -> Live:
        """The live session of that id, made now if the id is new.

        Raises:
            SessionBusyError: another connection or process owns it.
            SessionExistsError: the id belongs to a closed or stored session.
        """
        live = self._live.get(session_id)
        if live is None:
            return await self.create(session_id, settings, owner)
        if live.owner is not owner:
            raise SessionBusyError(f'session "{session_id}" is owned by another connection')
        return live

    async def create(
        self,
        session_id: str,
        settings: SessionSettings,
        owner: object,
        choices: JsonObject | None = None,
        identity: JsonObject | None = None,
    ) -> Live:
        """A new session.

        `choices` (provider, model, maxTokens) win over `settings`, also when the session is resumed;
        `identity` (rolloutId, groupId, attempt) is what the client calls it. Both go into the log's header.

        Raises:
            SessionExistsError: the id is taken, live or on disk.
            InvalidParamsError: its working directory does not exist.
        """
        self._check_serving()
        if not os.path.isdir(settings.cwd):
            raise InvalidParamsError(f'session "{session_id}": cwd is no directory: {settings.cwd}')
        store = self.scope.find(SessionStore)
        if session_id in self._live:
            raise SessionExistsError(f'session "{session_id}" already exists; it is live')
        if session_id in self._closed_ids:
            hint = "" if store is None else " (session/resume reopens it)"
            raise SessionExistsError(f'session "{session_id}" already exists; it was closed{hint}')
        header = SessionHeader(
            id=session_id,
            created_at=time.time_ns() // 1_000_000,
            cwd=settings.cwd,
            cordisd={
                "version": __version__,
                **({"choices": choices} if choices else {}),
                **({"identity": identity} if identity else {}),
            },
        )
        if choices:
            settings = settings._replace(config=self._choose(settings.config, choices))
        sink = store.create(header) if store is not None else None
        return await self._assemble(header, sink, settings, owner, [], settings.cwd)

    async def resume(self, session_id: str, settings: SessionSettings, owner: object) -> Live:
        """A stored session, live again: its log is repaired, its history and inbox are back.

        Raises:
            SessionExistsError: it is live already.
            SessionNotFoundError: nothing is stored under that id.
            LogError: the log is damaged or of another format.
        """
        self._check_serving()
        if session_id in self._live:
            raise SessionExistsError(f'session "{session_id}" is already open')
        store = self.scope.find(SessionStore)
        if store is None:
            raise SessionNotFoundError(
                f'session "{session_id}" not found: this composition stores no sessions'
            )
        opening = asyncio.ensure_future(asyncio.to_thread(store.open, session_id))
        try:
            stored = await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_let_go)
            raise
        try:
            cwd = last_directory(stored.events)
            if cwd is None or not os.path.isdir(cwd):
                cwd = stored.header.cwd or settings.cwd
            choices = {**_effort_of(stored.events), **stored.header.cordisd.get("choices", {})}
            settings = settings._replace(config=self._choose(settings.config, choices))
        except BaseException:
            stored.file.close()
            raise
        return await self._assemble(stored.header, stored.file, settings, owner, stored.events, cwd)

    async def close_session(self, session_id: str) -> None:
        """End a session: its turn, its processes, its log file. The stored log stays. Hold `in_order`.

        Raises:
            SessionNotFoundError: it is not live.
        """
        live = self.get(session_id)
        await live.runner.stop("user")
        try:
            await live.close()
        finally:
            del self._live[session_id]
            if live.session.log.path is None or live.session.log.next_seq > 0:
                self._closed_ids.add(session_id)  # with no event there is no log: the id is free again

    async def abort(self) -> None:
        """Take no more prompts and have every turn log its end; bounded by `ABORT_S`."""
        self.closing = True
        stopping = [asyncio.ensure_future(live.runner.stop("disposed")) for live in self._live.values()]
        if stopping:
            _, late = await asyncio.wait(stopping, timeout=ABORT_S)
            for task in late:
                task.cancel()
        for live in self._live.values():
            live.session.log.flush()

    async def close(self) -> None:
        """End everything: turns, every process of every session, the host entries."""
        await self.abort()
        if self.guardian is not None:
            try:
                await self.guardian.close()
            except ShellError as error:
                logger.error("%s", error)
        for live in list(self._live.values()):
            await live.close()
        self._live.clear()
        await self.scope.close()

    def _choose(self, config: RequestConfig, choices: JsonObject) -> RequestConfig:
        """`config` with a session's own choices in the place of the connection's."""
        return self.configure(
            choices.get("provider", config.provider),
            choices.get("model", config.model),
            choices.get("maxTokens", config.chosen_max_tokens),
            config.chosen_effort or choices.get("reasoningEffort"),
        )

    def _check_serving(self) -> None:
        if self.closing:
            raise NotInitializedError("the daemon is shutting down")

    async def _assemble(
        self,
        header: SessionHeader,
        sink: EventSink | None,
        settings: SessionSettings,
        owner: object,
        events: Sequence[Event],
        cwd: str,
    ) -> Live:
        """Put a session together from its log's header and what is already in the log."""
        scope = Scope(f'session "{header.id}"', self.scope)
        realm = Realm(header.id, cwd, self.guardian)
        realm.restored = bool(events)
        try:
            adapter = self.scope.get(ModelRegistry).get(settings.config.provider)
            history = History(adapter.encode_message)
            memory = restore(events, history)
            log = SessionLog(sink, next_seq=len(events), on_failure=lambda error: live.runner.fail(error))
            self._provide(scope, realm, settings.config)
            await mount(self.composition.session, scope)
            session = Session(
                header,
                log,
                realm,
                scope,
                settings.config,
                adapter,
                history,
                memory,
                restored=bool(events),
                title_limits=scope.find(TitleLimits) or TitleLimits(),
            )
            live = Live(session, Runner(session, scope.find(LoopSettings) or LoopSettings()), owner)
        except BaseException:
            try:
                await scope.close()
                await realm.close()
            finally:
                if sink is not None:
                    sink.close()
            raise
        self._live[header.id] = live
        self.on_open(live)
        return live

    def _provide(self, scope: Scope, realm: Realm, config: RequestConfig) -> None:
        """Put into a session's scope what its entries build on."""
        prompts = PromptRegistry(self.scope.get(PromptRegistry))
        prompts.add_variable("provider", config.provider)
        prompts.add_variable("model", config.model)
        prompts.add_variable("cwd", lambda _: realm.cwd)
        scope.provide(PromptRegistry, prompts)
        scope.provide(ToolRegistry, ToolRegistry(self.scope.get(ToolRegistry)))
        scope.provide(Realm, realm, private=realm.private)


def _effort_of(events: Sequence[Event]) -> JsonObject:
    """The reasoning effort that a stored session's client had chosen, if it had."""
    headers = [event.data["header"] for event in events if event.type == "request/header"]
    if not headers or "reasoningEffort" in headers[-1].get("adapterDefaults", {}):
        return {}
    effort = headers[-1]["config"].get("reasoningEffort")
    return {} if effort is None else {"reasoningEffort": effort}


def _let_go(opening: asyncio.Future[StoredSession]) -> None:
    """Close a log that was opened for somebody who has gone."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().file.close()

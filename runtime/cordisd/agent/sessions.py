"""How a session comes to life: new, from its log, or again with another preset. Hold `Host.in_order`."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from typing import Final

from cordisd import __version__
from cordisd.agent.agent import Agent, check_lock, check_required, mount_agent, unmount
from cordisd.agent.budget import Limits
from cordisd.agent.eviction import Eviction
from cordisd.agent.host import Host
from cordisd.agent.limits import limits_of
from cordisd.agent.live import Live
from cordisd.agent.preset import Preset, own_preset
from cordisd.agent.run import Runner
from cordisd.agent.settings import EvictionSettings, LoopSettings, SessionSettings
from cordisd.errors import (
    InvalidParamsError,
    ProfileHashMismatchError,
    SessionBegunError,
    SessionExistsError,
    SessionNotFoundError,
)
from cordisd.events import Event, JsonObject
from cordisd.services.models import ModelRegistry, RequestConfig
from cordisd.services.traffic import Traffic
from cordisd.session.header import SessionHeader
from cordisd.session.history import History
from cordisd.session.log import EventSink, SessionLog
from cordisd.session.realm import Realm
from cordisd.session.restore import last_directory, restore
from cordisd.session.session import Session
from cordisd.session.store import SessionStore, StoredSession
from cordisd.session.title import TitleLimits

_OWN: Final[tuple[str, ...]] = ("choices", "identity", "limits")
"""Header fields that a client has given; `Agent.identity` and the version are ours."""


async def create(
    host: Host,
    session_id: str,
    settings: SessionSettings,
    owner: object,
    choices: JsonObject | None = None,
    identity: JsonObject | None = None,
    limits: Limits | None = None,
) -> Live:
    """A new session.

    `choices` (provider, model, maxTokens) win over `settings`, also when the session is resumed;
    `identity` (rolloutId, groupId, attempt) is what the client calls it; `limits` are its own, besides those
    of the composition. All of these go into the log's header.

    Raises:
        SessionExistsError: the id is taken, live or on disk.
        SessionBusyError: another process has a session of this id open.
        InvalidParamsError: its working directory does not exist, it chooses what the agent sets, or its cost
            is limited and its model has no prices.
        PresetError: there is no such preset, it does not mount, or is not the one that is required.
        ProfileError: the preset is a frozen profile and not what was locked.
    """
    host.check_serving()
    if not os.path.isdir(settings.cwd):
        raise InvalidParamsError(f'session "{session_id}": cwd is no directory: {settings.cwd}')
    store = host.scope.find(SessionStore)
    if session_id in host.live:
        raise SessionExistsError(f'session "{session_id}" already exists; it is live')
    if session_id in host.closed_ids:
        hint = "" if store is None else " (session/resume reopens it)"
        raise SessionExistsError(f'session "{session_id}" already exists; it was closed{hint}')
    if choices:
        settings = settings._replace(config=_choose(host, settings.config, choices))
    realm = Realm(session_id, settings.cwd, host.guardian)
    try:
        agent = await _mount(host, host.preset(settings.preset), realm, settings)
    except BaseException:
        await realm.close()
        raise
    own = {"choices": choices} if choices else {}
    if identity:
        own["identity"] = identity
    if limits:
        own["limits"] = limits
    return await _begin(host, agent, realm, settings, owner, own)


async def resume(host: Host, session_id: str, settings: SessionSettings, owner: object) -> Live:
    """A stored session, live again: its log is repaired, its history and inbox are back.

    Raises:
        SessionExistsError: it is live already.
        SessionNotFoundError: nothing is stored under that id.
        LogError: the log is damaged or of another format.
        InvalidParamsError: its cost is limited and its model has no prices any more.
        PresetError: its preset is gone or does not mount; the log is then as it was.
        ProfileError: its frozen profile is not what it was; the log is then as it was.
    """
    host.check_serving()
    if session_id in host.live:
        raise SessionExistsError(f'session "{session_id}" is already open')
    store = host.scope.find(SessionStore)
    if store is None:
        raise SessionNotFoundError(f'session "{session_id}" not found: this composition stores no sessions')
    header = await asyncio.to_thread(store.header, session_id)
    if header is not None:
        await _rehearse(host, header, settings)
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
        settings = settings._replace(config=_choose(host, settings.config, choices))
        realm = Realm(session_id, cwd, host.guardian)
        realm.restored = bool(stored.events)
        try:
            agent = await _mount(host, _preset_of(host, stored), realm, settings, stored.header)
        except BaseException:
            await realm.close()
            raise
    except BaseException:
        stored.file.close()
        raise
    return await _open(host, stored.header, stored.file, agent, realm, settings, owner, stored.events)


async def select_preset(host: Host, session_id: str, name: str) -> Live:
    """The session made anew with another preset; possible until its first event.

    Raises:
        SessionBegunError: it has events.
        PresetError, ProfileError, InvalidParamsError: as `create`; the session then stays as it was.
    """
    host.check_serving()
    live = host.get(session_id)
    _check_blank(live)
    settings = live.settings._replace(preset=name)
    realm = Realm(session_id, live.session.realm.cwd, host.guardian)
    agent = await _mount(host, host.preset(name), realm, settings)
    try:
        _check_blank(live)  # a steering message does not wait for its turn
        await host.close_session(session_id)
    except BaseException:
        await unmount(agent.scope)
        raise
    header = live.session.header.cordisd
    own = {field: header[field] for field in _OWN if field in header}
    return await _begin(host, agent, realm, settings, live.owner, own)


def _check_blank(live: Live) -> None:
    if live.session.log.next_seq > 0:
        raise SessionBegunError(
            f'session "{live.session.id}" has begun; its preset can be chosen before its first event only'
        )


def _choose(host: Host, config: RequestConfig, choices: JsonObject) -> RequestConfig:
    """`config` with a session's own choices in the place of the connection's."""
    return host.configure(
        choices.get("provider", config.provider),
        choices.get("model", config.model),
        choices.get("maxTokens", config.chosen_max_tokens),
        config.chosen_effort or choices.get("reasoningEffort"),
    )


def _preset_of(host: Host, stored: StoredSession) -> Preset:
    """The preset that a stored session was made with; its last selection counts."""
    selected = [event for event in stored.events if event.type == "agent-preset/selected"]
    header = stored.header
    name = selected[-1].data.get("agentPreset", header.agent_preset) if selected else header.agent_preset
    return own_preset(host.composition) if name is None else host.preset(name)


async def _mount(
    host: Host, preset: Preset, realm: Realm, settings: SessionSettings, stored: SessionHeader | None = None
) -> Agent:
    """The agent of a session, checked."""
    name = f'session "{realm.session_id}"'
    agent = await mount_agent(host.scope, preset, realm, settings.config, name)
    try:
        _check(agent, settings, stored)
    except BaseException:
        await unmount(agent.scope)
        raise
    return agent


def _check(agent: Agent, settings: SessionSettings, stored: SessionHeader | None) -> None:
    """Go on only if the agent is what is locked, required and, where there is a log, what made that.

    Raises:
        ProfileError, PresetMismatchError: it is not.
    """
    check_lock(agent, os.environ)
    check_required(agent, settings.required_digest)
    if stored is None or "profile" not in stored.cordisd:
        return
    before, now = stored.cordisd["profile"], agent.identity().get("profile")
    if before != now:
        raise ProfileHashMismatchError(
            f'session "{stored.id}" was made with the frozen profile {before}, which is now {now}'
        )


async def _rehearse(host: Host, header: SessionHeader, settings: SessionSettings) -> None:
    """Mount a stored session's agent and unmount it: opening the log writes to it, so not in vain.

    Raises:
        CordisError: as `_mount`.
    """
    preset = own_preset(host.composition) if header.agent_preset is None else host.preset(header.agent_preset)
    config = _choose(host, settings.config, header.cordisd.get("choices", {}))
    limits_of(host.scope, header.cordisd, config)
    async with host.trial(preset, settings.cwd, config) as agent:
        _check(agent, settings, header)


async def _begin(
    host: Host, agent: Agent, realm: Realm, settings: SessionSettings, owner: object, own: JsonObject
) -> Live:
    """A new session with a mounted agent; `own` joins what its header says of it."""
    header = SessionHeader(
        id=realm.session_id,
        created_at=time.time_ns() // 1_000_000,
        cwd=realm.cwd,
        agent_preset=agent.preset.name,
        cordisd={"version": __version__, **agent.identity(), **own},
    )
    store = host.scope.find(SessionStore)
    try:
        sink = store.create(header) if store is not None else None
    except BaseException:
        await _discard(agent, realm)
        raise
    return await _open(host, header, sink, agent, realm, settings, owner, [])


async def _open(
    host: Host,
    header: SessionHeader,
    sink: EventSink | None,
    agent: Agent,
    realm: Realm,
    settings: SessionSettings,
    owner: object,
    events: Sequence[Event],
) -> Live:
    """Put a session together from its log's header, its agent and what is already in the log.

    Raises:
        NotInitializedError: the daemon is shutting down.
        InvalidParamsError, LogCorruptError: its limits cannot be kept.
    """
    scope = agent.scope
    try:
        host.check_serving()  # mounting has taken its time
        limits = limits_of(host.scope, header.cordisd, agent.config)
        models = host.scope.get(ModelRegistry)
        adapter = models.get(agent.config.provider)
        history = History(adapter.encode_message)
        session = Session(
            header,
            SessionLog(sink, next_seq=len(events), on_failure=lambda error: live.runner.fail(error)),
            realm,
            scope,
            agent.config,
            adapter,
            history,
            restore(events, history),
            traffic=host.scope.get(Traffic),
            restored=bool(events),
            title_limits=scope.find(TitleLimits) or TitleLimits(),
        )
        evicts = host.scope.find(EvictionSettings)
        eviction = Eviction(session, evicts.after_s if evicts is not None else None)
        loop = scope.find(LoopSettings) or LoopSettings()
        runner = Runner(session, loop, limits, models.prices, on_idle=eviction.wait)
        live = Live(session, agent, settings, runner, eviction, owner)
    except BaseException:
        try:
            await _discard(agent, realm)
        finally:
            if sink is not None:
                sink.close()
        raise
    host.live[header.id] = live
    host.on_open(live)
    eviction.wait()
    return live


async def _discard(agent: Agent, realm: Realm) -> None:
    """Take back an agent that gets no session, and end what it has started."""
    await unmount(agent.scope)
    await realm.close()


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

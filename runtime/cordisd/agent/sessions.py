"""How a session comes to life: new, from its log, or again with another preset. Hold `Host.in_order`."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Final

from cordisd import __version__
from cordisd.agent.agent import Agent, unmount
from cordisd.agent.budget import Limits
from cordisd.agent.host import Host
from cordisd.agent.limits import limits_of
from cordisd.agent.live import Live
from cordisd.agent.opening import Mounted, check, choose, go_live, mount, revive
from cordisd.agent.preset import own_preset
from cordisd.agent.settings import SessionSettings
from cordisd.errors import (
    InvalidParamsError,
    SessionBegunError,
    SessionExistsError,
    SessionNotFoundError,
)
from cordisd.events import JsonObject
from cordisd.session.header import SessionHeader
from cordisd.session.realm import Realm
from cordisd.session.store import SessionStore, StoredSession

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
    check_free(host, session_id)
    if choices:
        settings = settings._replace(config=choose(host, settings.config, choices))
    realm = Realm(session_id, settings.cwd, host.guardian)
    try:
        agent = await mount(host, host.preset(settings.preset), realm, settings)
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
        mounted = await revive(host, session_id, stored.header, stored.events, settings)
    except BaseException:
        stored.file.close()
        raise
    return await go_live(host, stored.header, stored.file, mounted, owner, stored.events)


def check_free(host: Host, session_id: str) -> None:
    """Go on only if no session of this process has the id, or had it and has a log.

    Raises:
        SessionExistsError: one has.
    """
    if session_id in host.live:
        raise SessionExistsError(f'session "{session_id}" already exists; it is live')
    if session_id in host.closed_ids:
        hint = "" if host.scope.find(SessionStore) is None else " (session/resume reopens it)"
        raise SessionExistsError(f'session "{session_id}" already exists; it was closed{hint}')


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
    agent = await mount(host, host.preset(name), realm, settings)
    try:
        _check_blank(live)  # a steering message does not wait for its turn
        limits_of(host.scope, live.session.header.cordisd, agent)
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


async def _rehearse(host: Host, header: SessionHeader, settings: SessionSettings) -> None:
    """Mount a stored session's agent and unmount it: opening the log writes to it, so not in vain.

    Raises:
        CordisError: as `mount`.
    """
    preset = own_preset(host.composition) if header.agent_preset is None else host.preset(header.agent_preset)
    config = choose(host, settings.config, header.cordisd.get("choices", {}))
    async with host.trial(preset, settings.cwd, config) as agent:
        check(agent, settings, header)
        limits_of(host.scope, header.cordisd, agent)


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
    mounted = Mounted(agent, realm, settings)
    try:
        sink = store.create(header) if store is not None else None
    except BaseException:
        await mounted.discard()
        raise
    return await go_live(host, header, sink, mounted, owner, [])


def _let_go(opening: asyncio.Future[StoredSession]) -> None:
    """Close a log that was opened for somebody who has gone."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().file.close()

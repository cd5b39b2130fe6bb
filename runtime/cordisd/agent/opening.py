"""How a session is opened: its agent mounted and checked, its memory read back, all put together."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import NamedTuple

from cordisd.agent.agent import Agent, check_lock, check_required, mount_agent, unmount
from cordisd.agent.eviction import Eviction
from cordisd.agent.host import Host
from cordisd.agent.limits import limits_of
from cordisd.agent.live import Live
from cordisd.agent.preset import Preset, own_preset
from cordisd.agent.run import Runner
from cordisd.agent.settings import EvictionSettings, LoopSettings, SessionSettings
from cordisd.errors import ProfileHashMismatchError
from cordisd.events import Event, JsonObject
from cordisd.services.models import ModelRegistry, RequestConfig
from cordisd.services.traffic import Traffic
from cordisd.session.header import SessionHeader
from cordisd.session.history import History
from cordisd.session.log import EventSink, SessionLog
from cordisd.session.realm import Realm
from cordisd.session.restore import last_directory, restore
from cordisd.session.session import Memory, Session
from cordisd.session.title import TitleLimits


class Mounted(NamedTuple):
    """All of a session but its log."""

    agent: Agent
    realm: Realm
    settings: SessionSettings

    async def discard(self) -> None:
        """Take it back, and end what it has started: it gets no session."""
        try:
            await unmount(self.agent.scope)
        finally:
            await self.realm.close()


async def mount(
    host: Host, preset: Preset, realm: Realm, settings: SessionSettings, stored: SessionHeader | None = None
) -> Agent:
    """The agent of a session, checked."""
    name = f'session "{realm.session_id}"'
    agent = await mount_agent(host.scope, preset, realm, settings.config, name)
    try:
        check(agent, settings, stored)
    except BaseException:
        await unmount(agent.scope)
        raise
    return agent


async def revive(
    host: Host,
    session_id: str,
    header: SessionHeader,
    events: Sequence[Event],
    settings: SessionSettings,
    preset: Preset | None = None,
) -> Mounted:
    """What goes on from `events`, which a session with `header` wrote.

    `preset` None: the one that the log names.

    Raises:
        PresetError, ProfileError, InvalidParamsError: as `create`.
        LogCorruptError: its limits are none that this version can keep.
    """
    cwd = last_directory(events)
    if cwd is None or not os.path.isdir(cwd):
        cwd = header.cwd or settings.cwd
    choices = {**_effort_of(events), **header.cordisd.get("choices", {})}
    settings = settings._replace(config=choose(host, settings.config, choices))
    realm = Realm(session_id, cwd, host.guardian)
    realm.restored = bool(events)
    try:
        agent = await mount(host, preset or _preset_of(host, header, events), realm, settings, header)
    except BaseException:
        await realm.close()
        raise
    mounted = Mounted(agent, realm, settings)
    try:
        limits_of(host.scope, header.cordisd, agent)  # now, for a fork's log is written before it goes live
    except BaseException:
        await mounted.discard()
        raise
    return mounted


async def go_live(
    host: Host,
    header: SessionHeader,
    sink: EventSink | None,
    mounted: Mounted,
    owner: object,
    events: Sequence[Event],
    n_events: int | None = None,
) -> Live:
    """Put a session together from its log's header, its agent and what is already in the log.

    `n_events` is how many are in it, if `events` are not all of them.

    Raises:
        NotInitializedError: the daemon is shutting down.
        InvalidParamsError, LogCorruptError, ProfileOverrideError: its limits cannot be kept.
    """
    agent, scope = mounted.agent, mounted.agent.scope
    try:
        limits = limits_of(host.scope, header.cordisd, agent)
        models = host.scope.get(ModelRegistry)
        adapter = models.get(agent.config.provider)
        history, memory = History(adapter.encode_message), Memory()
        if events:  # they may be many
            memory = await asyncio.to_thread(restore, events, history, header.seed_length or 0)
        host.check_serving()  # all this has taken its time
        session = Session(
            header,
            SessionLog(
                sink,
                next_seq=len(events) if n_events is None else n_events,
                on_failure=lambda error: live.runner.fail(error),
            ),
            mounted.realm,
            scope,
            agent.config,
            adapter,
            history,
            memory,
            traffic=host.scope.get(Traffic),
            restored=bool(events),
            title_limits=scope.find(TitleLimits) or TitleLimits(),
        )
        evicts = host.scope.find(EvictionSettings)
        eviction = Eviction(session, evicts.after_s if evicts is not None else None)
        loop = scope.find(LoopSettings) or LoopSettings()
        runner = Runner(session, loop, limits, models.prices, on_idle=eviction.wait)
        live = Live(session, agent, mounted.settings, runner, eviction, owner)
    except BaseException:
        try:
            await mounted.discard()
        finally:
            if sink is not None:
                sink.close()
        raise
    host.live[header.id] = live
    host.on_open(live)
    eviction.wait()
    return live


def check(agent: Agent, settings: SessionSettings, stored: SessionHeader | None) -> None:
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


def choose(host: Host, config: RequestConfig, choices: JsonObject) -> RequestConfig:
    """`config` with a session's own choices in the place of the connection's."""
    return host.configure(
        choices.get("provider", config.provider),
        choices.get("model", config.model),
        choices.get("maxTokens", config.chosen_max_tokens),
        config.chosen_effort or choices.get("reasoningEffort"),
    )


def _preset_of(host: Host, header: SessionHeader, events: Sequence[Event]) -> Preset:
    """The preset that a stored session was made with; its last selection counts."""
    selected = [event for event in events if event.type == "agent-preset/selected"]
    name = selected[-1].data.get("agentPreset", header.agent_preset) if selected else header.agent_preset
    return own_preset(host.composition) if name is None else host.preset(name)


def _effort_of(events: Sequence[Event]) -> JsonObject:
    """The reasoning effort that a stored session's client had chosen, if it had."""
    headers = [event.data["header"] for event in events if event.type == "request/header"]
    if not headers or "reasoningEffort" in headers[-1].get("adapterDefaults", {}):
        return {}
    effort = headers[-1]["config"].get("reasoningEffort")
    return {} if effort is None else {"reasoningEffort": effort}

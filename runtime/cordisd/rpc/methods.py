"""The methods of the wire, beyond `initialize` and `shutdown`: what each does with the host."""

from __future__ import annotations

import os
import uuid
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cordisd.agent import sessions
from cordisd.agent.settings import SessionSettings
from cordisd.errors import InvalidParamsError
from cordisd.events import JsonObject
from cordisd.rpc import params as p
from cordisd.rpc import presets
from cordisd.session.session import new_message

if TYPE_CHECKING:
    from pydantic import BaseModel

    from cordisd.agent.live import Live
    from cordisd.rpc.peer import Peer


MAX_NESTING: Final = 100
_CANCEL_LIMIT_S: Final = 2.0


class Method(NamedTuple):
    """A method: the model of its params, and what it does with them for the peer that asked."""

    params: type[BaseModel]
    run: Callable[[Peer, Any], Awaitable[JsonObject]]


async def create(peer: Peer, params: p.CreateSession) -> JsonObject:
    """`session/create`: a new session, without a prompt."""
    base = await peer.settings()
    preset = params.preset or base.preset
    required = params.require_preset or base.required_digest
    cwd = os.path.normpath(os.path.join(base.cwd, params.cwd or ""))
    session_id = params.session_id or str(uuid.uuid4())
    choices = {"provider": params.provider, "model": params.model, "maxTokens": params.max_tokens}
    identity = {"rolloutId": params.rollout_id, "groupId": params.group_id, "attempt": params.attempt}
    async with peer.host.in_order(session_id):
        live = await sessions.create(
            peer.host,
            session_id,
            SessionSettings(cwd, base.config, preset, required),
            peer,
            _given(choices),
            _given(identity),
            params.limits.as_limits() if params.limits is not None else None,
        )
    return {"sessionId": live.session.id, **live.agent.identity(), "cwd": live.session.realm.cwd}


async def prompt(peer: Peer, params: p.Prompt) -> JsonObject:
    """`session/prompt`: queue a prompt; the answer means that it is on disk, not that it has run."""
    content = _blocks(params.content_blocks)
    limits = _given({"maxTurns": params.max_turns, "timeoutSeconds": params.timeout_seconds})
    async with peer.host.in_order(params.session_id):
        live = await _obtain(peer, params.session_id)
        await live.eviction.recall()
        message_id = live.runner.prompt(content, params.idempotency_key, limits)
    live.session.log.commit()
    return {"messageId": message_id}


async def steer(peer: Peer, params: p.Steer) -> JsonObject:
    """`session/steer`: a message that joins the next step."""
    message = new_message(_blocks(params.content_blocks), {"kind": "user"})
    live = peer.own(params.session_id)
    live.runner.steer(message)
    live.session.log.commit()
    return {"messageId": message["id"]}


async def cancel(peer: Peer, params: p.Cancel) -> JsonObject:
    """`session/cancel`: end the running turn and, unless kept, drop what is queued.

    Answered when what the turn's tools had started is gone, or has proved hard to end.
    """
    live = peer.own(params.session_id)
    done = live.runner.cancel(keep_queue=params.queue == "keep")
    if done.turn is None:
        return {"cancelled": False, "dropped": done.dropped, "already": "finished"}
    await live.runner.ended(_CANCEL_LIMIT_S)
    return {"cancelled": True, "turn": done.turn, "dropped": done.dropped}


async def close(peer: Peer, params: p.OfSession) -> JsonObject:
    """`session/close`: end the session's turn and every process of it; the log stays."""
    async with peer.host.in_order(params.session_id):
        peer.own(params.session_id)
        await peer.host.close_session(params.session_id)
    peer.detach(params.session_id)
    return {}


async def resume(peer: Peer, params: p.OfSession) -> JsonObject:
    """`session/resume`: a stored session goes on."""
    async with peer.host.in_order(params.session_id):
        await sessions.resume(peer.host, params.session_id, await peer.settings(), peer)
    return {}


async def list_sessions(peer: Peer, params: p.Nothing) -> JsonObject:
    """`session/list`: the live sessions, oldest first."""
    return {
        "sessions": [
            {
                "sessionId": live.session.id,
                "status": live.session.status,
                "preset": live.agent.preset.name,
                "turns": live.session.memory.turn,
                "createdAt": live.session.header.created_at,
            }
            for live in peer.host.live.values()
        ]
    }


async def get(peer: Peer, params: p.OfSession) -> JsonObject:
    """`session/get`: what is known of one live session."""
    live = peer.host.get(params.session_id)
    session = live.session
    spent = session.memory.spent
    return {
        "sessionId": session.id,
        "status": session.status,
        **live.agent.identity(),
        "cwd": session.realm.cwd,
        "provider": session.config.provider,
        "model": session.config.model,
        "limits": live.runner.limits,
        "usage": spent.tokens(),
        **_given({"cost": live.runner.cost()}),
        "turns": spent.turns,
        "lastSeq": session.log.next_seq - 1,
        **session.header.cordisd.get("identity", {}),
    }


async def get_directory(peer: Peer, params: p.OfSession) -> JsonObject:
    """`session/working-directory/get`: where the session's tools work; makes the session if it is new."""
    async with peer.host.in_order(params.session_id):
        live = await _obtain(peer, params.session_id)
    return {"cwd": live.session.realm.cwd}


async def set_directory(peer: Peer, params: p.SetDirectory) -> JsonObject:
    """`session/working-directory/set`: move the session and its live shell, and tell the model."""
    if not params.path.strip():
        raise InvalidParamsError("session/working-directory/set: path must not be empty")
    async with peer.host.in_order(params.session_id):
        live = await _obtain(peer, params.session_id)
    cwd = os.path.normpath(os.path.join(live.session.realm.cwd, params.path))
    if not os.path.isdir(cwd):
        raise InvalidParamsError(f'session/working-directory/set: directory does not exist: "{cwd}"')
    live.move(cwd)
    live.session.log.commit()
    return {"cwd": cwd}


async def ping(peer: Peer, params: p.Nothing) -> JsonObject:
    """`rpc.ping`: an empty answer."""
    return {}


async def _obtain(peer: Peer, session_id: str) -> Live:
    """The session of that id, made now if the id is new. Hold its `Host.in_order`.

    Raises:
        SessionBusyError: another connection or process owns it.
        SessionExistsError: the id belongs to a closed or stored session.
    """
    peer.host.check_serving()
    if session_id in peer.host.live:
        return peer.own(session_id)
    return await sessions.create(peer.host, session_id, await peer.settings(), peer)


def _given(fields: JsonObject) -> JsonObject:
    return {name: value for name, value in fields.items() if value is not None}


def _blocks(blocks: list[p.ContentBlock]) -> list[JsonObject]:
    plain = [block.model_dump() for block in blocks]
    level: list[Any] = [plain]
    for _ in range(MAX_NESTING):
        level = [
            inner
            for value in level
            if isinstance(value, (dict, list))
            for inner in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return plain
    raise InvalidParamsError(f"contentBlocks must not be nested deeper than {MAX_NESTING} levels")


METHODS: Final = {
    "preset/list": Method(p.Nothing, presets.list_presets),
    "preset/render": Method(p.RenderPreset, presets.render),
    "preset/select": Method(p.SelectPreset, presets.select),
    "profile/get": Method(p.GetProfile, presets.get_profile),
    "rpc.ping": Method(p.Nothing, ping),
    "session/cancel": Method(p.Cancel, cancel),
    "session/close": Method(p.OfSession, close),
    "session/create": Method(p.CreateSession, create),
    "session/get": Method(p.OfSession, get),
    "session/list": Method(p.Nothing, list_sessions),
    "session/prompt": Method(p.Prompt, prompt),
    "session/resume": Method(p.OfSession, resume),
    "session/steer": Method(p.Steer, steer),
    "session/working-directory/get": Method(p.OfSession, get_directory),
    "session/working-directory/set": Method(p.SetDirectory, set_directory),
}
"""Every method by name. `wire.py` lists the same names for `initialize` and the SDK."""

"""The methods of the wire, beyond `initialize` and `shutdown`: what each does with the host."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from cordisd import errors as e
from cordisd.agent import sessions
from cordisd.agent.settings import SessionSettings
from cordisd.errors import InvalidParamsError
from cordisd.events import JsonObject, Usage
from cordisd.rpc import params as p
from cordisd.rpc import presets, stored
from cordisd.session.session import new_message

if TYPE_CHECKING:
    from pydantic import BaseModel

    from cordisd import shapes
    from cordisd.agent.live import Live
    from cordisd.rpc.peer import Peer


_CANCEL_LIMIT_S: Final = 2.0


class Method(NamedTuple):
    """A method. `rpc.discover` and the README tell of it what is written here.

    `run` returns the shape of `cordisd.shapes` that it is annotated with; the first paragraph of its
    docstring is its line in the README.
    """

    params: type[BaseModel]
    run: Callable[[Peer, Any], Awaitable[Mapping[str, Any]]]
    errors: tuple[type[e.CordisError], ...] = ()
    """What it can be refused with, beyond what any request can be."""


async def create(peer: Peer, params: p.CreateSession) -> shapes.SessionCreateResult:
    """`session/create`: makes a session, with a preset, directory or model of its own if one is given."""
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


async def prompt(peer: Peer, params: p.Prompt) -> shapes.SessionPromptResult:
    """`session/prompt`: queues a prompt, answers when it is on disk; makes the session if its id is new."""
    content = _blocks(params.content_blocks)
    limits = _given({"maxTurns": params.max_turns, "timeoutSeconds": params.timeout_seconds})
    async with peer.host.in_order(params.session_id):
        live = await _obtain(peer, params.session_id)
        await live.eviction.recall()
        message_id = live.runner.prompt(content, params.idempotency_key, limits)
    live.session.log.commit()
    return {"messageId": message_id}


async def steer(peer: Peer, params: p.Steer) -> shapes.SessionPromptResult:
    """`session/steer`: a message for the model's next step; when idle, the next prompt takes it along."""
    message = new_message(_blocks(params.content_blocks), {"kind": "user"})
    live = peer.own(params.session_id)
    live.runner.steer(message)
    live.session.log.commit()
    return {"messageId": message["id"]}


async def cancel(peer: Peer, params: p.Cancel) -> shapes.SessionCancelResult:
    """`session/cancel`: ends the running turn and drops the queue, or keeps it; safe to repeat.

    Answered when what the turn's tools had started is gone, or has proved hard to end.
    """
    live = peer.own(params.session_id)
    done = live.runner.cancel(keep_queue=params.queue == "keep")
    if done.turn is None:
        return {"cancelled": False, "dropped": done.dropped, "already": "finished"}
    await live.runner.ended(_CANCEL_LIMIT_S)
    return {"cancelled": True, "turn": done.turn, "dropped": done.dropped}


async def close(peer: Peer, params: p.OfSession) -> shapes.Empty:
    """`session/close`: ends the session's turn and all its processes; the log stays."""
    async with peer.host.in_order(params.session_id):
        peer.own(params.session_id)
        await peer.host.close_session(params.session_id, for_good=True)
    return {}


async def attach(peer: Peer, params: p.Attach) -> shapes.SessionAttachResult:
    """`session/attach`: sends a live session's events to this connection too, from any one on."""
    live = peer.host.get(params.session_id)
    log = live.session.log
    log.flush()
    if params.from_ is not None:
        if params.from_ > log.next_seq:
            raise InvalidParamsError(
                f"session/attach: from must be at most {log.next_seq}, the next event's seq"
            )
        if params.from_ < log.next_seq > log.stored_end:
            raise InvalidParamsError("session/attach: from: the last events of this session are kept nowhere")
    if params.from_ is not None or params.session_id not in peer.feeds:
        peer.feeds.attach(live, params.from_)
    return {"lastSeq": log.last_seq}


async def detach(peer: Peer, params: p.OfSession) -> shapes.Empty:
    """`session/detach`: sends no more of a session's events to this connection."""
    peer.feeds.detach(params.session_id)
    return {}


async def resume(peer: Peer, params: p.OfSession) -> shapes.Empty:
    """`session/resume`: opens a stored session again; its log is repaired, its history and queue are back."""
    async with peer.host.in_order(params.session_id):
        await sessions.resume(peer.host, params.session_id, await peer.settings(), peer)
    return {}


async def list_sessions(peer: Peer, params: p.Nothing) -> shapes.SessionListResult:
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


async def get(peer: Peer, params: p.OfSession) -> shapes.SessionGetResult:
    """`session/get`: one live session: its agent, model, directory, tokens used, last event."""
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
        "limits": cast("shapes.Limits", live.runner.limits),
        "usage": cast("Usage", spent.tokens()),
        "cost": live.runner.cost(),
        "turns": spent.turns,
        "waiting": len(session.memory.inbox["next-turn"]),
        "lastSeq": session.log.last_seq,
        "failure": str(session.log.failure) if session.log.failure is not None else None,
        "outcome": cast("shapes.Outcome | None", session.memory.outcome),
        **cast("shapes.RolloutIdentity", session.header.cordisd.get("identity", {})),
    }


async def get_directory(peer: Peer, params: p.OfSession) -> shapes.WorkingDirectoryResult:
    """`session/working-directory/get`: where the session's tools work; makes it if its id is new."""
    async with peer.host.in_order(params.session_id):
        live = await _obtain(peer, params.session_id)
    return {"cwd": live.session.realm.cwd}


async def set_directory(peer: Peer, params: p.SetDirectory) -> shapes.WorkingDirectoryResult:
    """`session/working-directory/set`: moves the session and its live shell, and tells the model."""
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


async def ping(peer: Peer, params: p.Nothing) -> shapes.Empty:
    """`rpc.ping`: an empty answer, at once."""
    return {}


async def discover(peer: Peer, params: p.Nothing) -> shapes.OpenRpcDocument:
    """`rpc.discover`: all of this as an OpenRPC document: params, results, errors and notifications."""
    from cordisd.rpc.openrpc import document  # asked for rarely

    return cast("shapes.OpenRpcDocument", await asyncio.to_thread(document))


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
    p.check_nesting("contentBlocks", plain)
    return plain


AGENT_ERRORS: Final = (
    *(e.PresetError, e.PresetMismatchError),
    *(e.ProfileHashMismatchError, e.ProfileOverrideError),
)
LIVE_ERRORS: Final = (e.SessionNotFoundError, e.SessionBusyError)
NEW_ERRORS: Final = (e.SessionExistsError, e.SessionBusyError, *AGENT_ERRORS, e.LogError)
STORED_ERRORS: Final = (e.SessionNotFoundError, e.LogError, e.LogCorruptError, e.LogRefusedError)

METHODS: Final = {
    "preset/list": Method(p.Nothing, presets.list_presets),
    "preset/render": Method(p.RenderPreset, presets.render, AGENT_ERRORS),
    "preset/select": Method(p.SelectPreset, presets.select, (*LIVE_ERRORS, *NEW_ERRORS, e.SessionBegunError)),
    "profile/get": Method(p.GetProfile, presets.get_profile, (e.SessionNotFoundError, *AGENT_ERRORS)),
    "rpc.discover": Method(p.Nothing, discover),
    "rpc.ping": Method(p.Nothing, ping),
    "session/attach": Method(p.Attach, attach, (e.SessionNotFoundError,)),
    "session/cancel": Method(p.Cancel, cancel, LIVE_ERRORS),
    "session/close": Method(p.OfSession, close, LIVE_ERRORS),
    "session/create": Method(p.CreateSession, create, NEW_ERRORS),
    "session/detach": Method(p.OfSession, detach),
    "session/events": Method(p.ReadEvents, stored.events, STORED_ERRORS),
    "session/fork": Method(
        p.Fork, stored.fork, (*NEW_ERRORS, *STORED_ERRORS, e.SessionNotBegunError, e.LogWriteError)
    ),
    "session/get": Method(p.OfSession, get, (e.SessionNotFoundError,)),
    "session/list": Method(p.Nothing, list_sessions),
    "session/metrics": Method(p.OfSession, stored.metrics, STORED_ERRORS),
    "session/outcome": Method(
        p.Outcome, stored.outcome, (*STORED_ERRORS, e.SessionBusyError, e.LogWriteError)
    ),
    "session/prompt": Method(p.Prompt, prompt, (*NEW_ERRORS, e.LogWriteError)),
    "session/resume": Method(p.OfSession, resume, (*NEW_ERRORS, *STORED_ERRORS)),
    "session/steer": Method(p.Steer, steer, (*LIVE_ERRORS, e.LogWriteError)),
    "session/working-directory/get": Method(p.OfSession, get_directory, NEW_ERRORS),
    "session/working-directory/set": Method(p.SetDirectory, set_directory, (*NEW_ERRORS, e.LogWriteError)),
}
"""Every method by name. `wire.py` lists the same names for `initialize` and the SDK."""

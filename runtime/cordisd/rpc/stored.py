"""The methods on what a session has logged, whether it is live, closed, or of an earlier process."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from cordisd.agent.verdict import note_outcome
from cordisd.errors import LogError, SessionNotFoundError
from cordisd.rpc import params as p
from cordisd.rpc.frames import EncodedResult
from cordisd.session.layout import locate
from cordisd.session.store import SessionStore

if TYPE_CHECKING:
    from cordisd import shapes, stored_shapes
    from cordisd.rpc.peer import Peer


class _Source(NamedTuple):
    """Where a session's events are. `end`: of a live one, the seq after the last that is there."""

    store: SessionStore
    path: Path
    end: int | None


async def events(peer: Peer, params: p.ReadEvents) -> stored_shapes.SessionEventsResult:
    """`session/events`: what a session has logged, from any event on, a page at a time; live or not."""
    source = await _source(peer, params.session_id)
    if source.end is not None and source.end <= params.from_:
        return {"events": [], "next": params.from_}
    result = await asyncio.to_thread(_page, source, params.from_, params.limit)
    return cast("stored_shapes.SessionEventsResult", result)


async def fork(peer: Peer, params: p.Fork) -> shapes.SessionCreateResult:
    """`session/fork`: makes a session that goes on where another stands, or stood at the end of a turn.

    The parent may be anybody's, live or stored. Its workspace is shared, not copied.
    """
    from cordisd.agent import fork as forks  # as below: not what the first prompt waits for

    settings = await peer.settings()
    child_id = params.new_session_id or str(uuid.uuid4())
    async with peer.host.in_order(child_id):
        live = await forks.fork(peer.host, params.session_id, child_id, params.at_turn, settings, peer)
    made = {"sessionId": child_id, **live.agent.identity(), "cwd": live.session.realm.cwd}
    return cast("shapes.SessionCreateResult", made)


async def metrics(peer: Peer, params: p.OfSession) -> stored_shapes.SessionMetricsResult:
    """`session/metrics`: what a session has cost and how it went, counted from its log; live or not."""
    from cordisd.session.metrics import Metrics, read_metrics

    source = await _source(peer, params.session_id)
    if source.end == 0:
        found = Metrics(peer.host.get(params.session_id).session.header).result()
    else:
        found = await asyncio.to_thread(read_metrics, source.path, end=source.end)
    return cast("stored_shapes.SessionMetricsResult", {"sessionId": params.session_id, **found})


async def outcome(peer: Peer, params: p.Outcome) -> shapes.Empty:
    """`session/outcome`: notes what has become of a session, also a closed one; the last one counts.

    Any connection may: a verifier seldom is the one that ran the session.
    """
    p.check_nesting("data", params.data)
    said = {"class": params.class_, "reward": params.reward, "data": params.data}
    said = {name: value for name, value in said.items() if value is not None}
    async with peer.host.in_order(params.session_id):
        await note_outcome(peer.host, params.session_id, said)
    return {}


async def _source(peer: Peer, session_id: str) -> _Source:
    """Where to read; what a live session has logged until now is there.

    Raises:
        SessionNotFoundError: there is no such session, live or stored.
        LogError: this composition stores no sessions, or the session's folder cannot be read.
    """
    store = peer.host.scope.find(SessionStore)
    live = peer.host.live.get(session_id)
    if live is None:
        if store is None:
            raise SessionNotFoundError(f'session "{session_id}" not found: this composition stores none')
        return _Source(store, await asyncio.to_thread(locate, store.root, session_id), None)
    log = live.session.log
    log.flush()
    if store is None or log.path is None:
        raise LogError(f'session "{session_id}" cannot be read: this composition stores no sessions')
    return _Source(store, log.path, log.next_seq)


def _page(source: _Source, start: int, limit: int) -> EncodedResult:
    page = source.store.pages.read(source.path, start, limit=limit, end=source.end)
    return EncodedResult(b'{"events":[%b],"next":%d}' % (b",".join(page.events), page.next_seq))

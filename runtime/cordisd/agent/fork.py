"""A session that begins as another one's double: its first events, its agent, and a life of its own."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from functools import partial

from cordisd import __version__
from cordisd.agent.host import Host
from cordisd.agent.live import Live
from cordisd.agent.opening import Mounted, go_live, revive
from cordisd.agent.sessions import check_free
from cordisd.agent.settings import SessionSettings
from cordisd.errors import LogError, SessionNotBegunError, SessionNotFoundError
from cordisd.session.file import SessionLogFile
from cordisd.session.fork import Seed, read_seed
from cordisd.session.header import SessionHeader
from cordisd.session.layout import is_locked, locate
from cordisd.session.store import SessionStore


async def fork(
    host: Host, parent_id: str, child_id: str, at_turn: int | None, settings: SessionSettings, owner: object
) -> Live:
    """A new session that goes on where the parent stands, or stood at the end of turn `at_turn`.

    The parent may be anybody's, and is not changed. Of one that is running, or that another process may be
    writing, the turns that have ended count. What waits in its queue does not come along; steering messages
    and the directory do. `settings` are of whoever asks; those of a live parent win, but for the digest that
    is required. Hold `Host.in_order` of the child.

    Raises:
        SessionNotFoundError: there is no parent, live or stored.
        SessionNotBegunError: no turn of it has ended.
        InvalidParamsError: turn `at_turn` has not ended.
        SessionExistsError, SessionBusyError: the child's id is taken.
        LogError: the parent has no log, it cannot be read, or the child's cannot be written.
        PresetError, ProfileError: as `sessions.resume`.
    """
    host.check_serving()
    check_free(host, child_id)
    store = host.scope.find(SessionStore)
    parent = host.live.get(parent_id)
    preset = None
    if parent is not None:
        settings = parent.settings._replace(required_digest=settings.required_digest)
        preset = parent.agent.preset
    seed = await _seed(store, parent_id, parent, at_turn)
    mounted = await revive(host, child_id, seed.header, seed.events, settings, preset)
    assert store is not None  # the seed is from there
    header = _header(seed, mounted)
    file = await _begin(store, header, seed, mounted)
    n_events = seed.n_events + len(seed.marks)
    return await go_live(host, header, file, mounted, owner, [*seed.events, *seed.marks], n_events)


async def _seed(store: SessionStore | None, parent_id: str, parent: Live | None, at_turn: int | None) -> Seed:
    if parent is None:
        if store is None:
            raise SessionNotFoundError(
                f'session "{parent_id}" not found: this composition stores no sessions'
            )
        return await asyncio.to_thread(_stored_seed, store, parent_id, at_turn)
    log = parent.session.log
    log.flush()
    if log.path is None or store is None:
        raise LogError(f'session "{parent_id}" cannot be forked: this composition stores no sessions')
    if log.next_seq == 0:
        raise SessionNotBegunError(f'session "{parent_id}" cannot be forked: it has no event yet')
    return await asyncio.to_thread(read_seed, log.path, at_turn=at_turn, end=log.next_seq)


def _stored_seed(store: SessionStore, parent_id: str, at_turn: int | None) -> Seed:
    path = locate(store.root, parent_id)
    return read_seed(path, at_turn=at_turn, settled=not is_locked(path))


def _header(seed: Seed, mounted: Mounted) -> SessionHeader:
    agent = mounted.agent
    return dataclasses.replace(
        seed.header,
        id=mounted.realm.session_id,
        created_at=time.time_ns() // 1_000_000,
        parent_session=seed.header.id,
        seed_length=seed.n_events,
        agent_preset=agent.preset.name,
        cordisd={**seed.header.cordisd, "version": __version__, **agent.identity()},
    )


async def _begin(store: SessionStore, header: SessionHeader, seed: Seed, mounted: Mounted) -> SessionLogFile:
    """The fork's log, on disk."""
    try:
        file = store.create(header)
        writing = asyncio.ensure_future(
            asyncio.to_thread(file.begin, seed.lines(), seed.n_events, seed.marks)
        )
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            writing.add_done_callback(partial(_let_go, file))
            raise
        except BaseException:
            file.close()
            raise
    except BaseException:
        await mounted.discard()
        raise
    return file


def _let_go(file: SessionLogFile, writing: asyncio.Future[None]) -> None:
    """Close a log that was made for somebody who has gone."""
    if not writing.cancelled():
        writing.exception()
    file.close()

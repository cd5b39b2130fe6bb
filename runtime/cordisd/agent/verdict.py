"""What has become of a session, noted in its log by whoever judges it; the last note counts."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from cordisd.agent.host import Host
from cordisd.errors import SessionNotFoundError
from cordisd.events import Event, JsonObject
from cordisd.session.file import SessionLogFile
from cordisd.session.store import SessionStore

OUTCOME: Final = "session/outcome"


async def note_outcome(host: Host, session_id: str, outcome: JsonObject) -> None:
    """Have the outcome in the session's log, for good. Hold `Host.in_order`.

    The log of a session that is not live is opened for it, and repaired as by `sessions.resume`.

    Raises:
        SessionNotFoundError: there is no such session, live or stored.
        SessionBusyError: another process has it open.
        LogError: its log is damaged or of another format, or cannot be written.
    """
    host.check_serving()
    live = host.live.get(session_id)
    if live is not None:
        log = live.session.log
        log.append(OUTCOME, outcome, ignorable=True)
        log.commit()
        live.session.memory.outcome = outcome
        await log.sync()
        log.commit()
        return
    store = host.scope.find(SessionStore)
    if store is None:
        raise SessionNotFoundError(f'session "{session_id}" not found: this composition stores no sessions')
    writing = asyncio.ensure_future(asyncio.to_thread(_append, store, session_id, outcome))
    try:
        file = await asyncio.shield(writing)
    except asyncio.CancelledError:
        writing.add_done_callback(_let_go)
        raise
    try:
        await file.sync()
    finally:
        file.close()


def _append(store: SessionStore, session_id: str, outcome: JsonObject) -> SessionLogFile:
    stored = store.open(session_id)
    try:
        now = time.time_ns() // 1_000_000
        stored.file.append([Event(OUTCOME, len(stored.events), now, outcome, ignorable=True)])
    except BaseException:
        stored.file.close()
        raise
    return stored.file


def _let_go(writing: asyncio.Future[SessionLogFile]) -> None:
    """Close a log that was opened for somebody who has gone."""
    if not writing.cancelled() and writing.exception() is None:
        writing.result().close()

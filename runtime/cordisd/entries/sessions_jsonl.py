"""Keeps every session as a plain JSONL log under one root folder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from cordisd.agent.settings import EvictionSettings
from cordisd.kernel.entry import Entry
from cordisd.kernel.scope import Scope
from cordisd.session.file import FsyncPolicy
from cordisd.session.root import default_root
from cordisd.session.store import SessionStore
from cordisd.settings import EntryConfig, NonNegativeInt, PositiveSeconds


class SessionsJsonlConfig(EntryConfig):
    """Where logs lie and how hard they are kept."""

    root: Annotated[str, Field(min_length=1)] | None = None
    """Folder of all session logs; made when the first one is written. A relative one is resolved against the
    directory that the daemon was started in. None: DSH_SESSION_ROOT, else the XDG state folder."""
    pack_chunks: bool = True
    """Write runs of three or more streamed deltas as one line. Readers see the same events either way."""
    fsync: FsyncPolicy = "turn"
    """When the disk is waited for: at the end of each `step`, of each `turn`, or `never`. A killed daemon
    loses nothing in any case; this is about power cuts."""
    evict_after_seconds: PositiveSeconds | None = None
    """A session idle for so long gives up its history, which a later prompt reads back from the log; its
    shells live on. Null: never."""
    compression: Literal["none"] = "none"
    """Logs are plain here; `zstd`, the default of the published entry, is refused."""
    write_batch_max_delay_ms: NonNegativeInt | None = None
    """Accepted, without effect: events are written before they are sent, so there is no delay to bound."""
    prepared_session_cache_size: NonNegativeInt | None = None
    """Accepted, without effect: there is no cache of prepared sessions."""

    @field_validator("compression", mode="before")
    @classmethod
    def _explain_plain_logs(cls, value: Any) -> Any:
        if value == "zstd":
            raise ValueError('logs are plain here, zstd is not supported: write "none", or leave the key out')
        return value


class SessionsJsonlEntry(Entry):
    """Provides the `SessionStore`."""

    Config = SessionsJsonlConfig
    lifetime = "host"

    @asynccontextmanager
    async def mount(self, scope: Scope) -> AsyncIterator[None]:
        """Check the root, and provide the store until the daemon ends.

        Raises:
            LogError: the root cannot hold logs.
        """
        config: SessionsJsonlConfig = self.config
        store = SessionStore(
            Path(config.root) if config.root else default_root(),
            pack_chunks=config.pack_chunks,
            fsync=config.fsync,
        )
        store.check()
        scope.provide(SessionStore, store)
        if config.evict_after_seconds is not None:
            scope.provide(EvictionSettings, EvictionSettings(config.evict_after_seconds))
        try:
            yield
        finally:
            store.close()

"""One session's log, a connection that hears it, and the other end of that, in this process."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cordisd.events import Event
from cordisd.rpc import feed, transports
from cordisd.rpc.feeds import Feeds, Turns
from cordisd.rpc.transports import FdTransport
from cordisd.session.disk import DiskCalls
from cordisd.session.log import Notice, SessionLog
from cordisd.session.store import SessionStore
from log_samples import header
from measure import PATIENCE_S

SMALL = {"HIGH_WATER_BYTES": 4000, "FULL_BYTES": 16_000}
SMALL_SLICE = {"SLICE_BYTES": 700, "SLICE_EVENTS": 4}


@contextmanager
def small_bounds() -> Iterator[None]:
    """A connection is behind at once, and catches up in small steps."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SMALL.items():
            patch.setattr(transports, name, value)
        for name, value in SMALL_SLICE.items():
            patch.setattr(feed, name, value)
        yield


class Witness:
    """A subscriber that misses nothing: what a feed beside it has to send."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def take(self, batch: Sequence[Event | Notice]) -> None:
        self.heard += [item.params if isinstance(item, Notice) else json.loads(item.json) for item in batch]

    def drop(self) -> None:
        raise AssertionError

    def end(self) -> None:
        pass


class World:
    """One session's log, a connection that hears it, and the other end of that."""

    def __init__(self, root: Path, *, stores: bool = True) -> None:
        self.is_full = False
        self.store = SessionStore(root, fsync="never", disk=DiskCalls(write=self._write))
        self.witness = Witness()
        self.has_ended = False
        self._received = b""
        self._n_made = 0
        ours, self._theirs = socket.socketpair()
        self._theirs.setblocking(False)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        self.transport = FdTransport(
            ours.dup().detach(),
            ours.detach(),
            on_data=lambda _: None,
            on_eof=self._end,
            on_drained=lambda: self.feeds.catch_up_soon(),
        )
        self.feeds = Feeds(self.transport, Turns())
        sink = self.store.create(header("s")) if stores else None
        self._open(SessionLog(sink, on_failure=lambda _: None))

    def append(self, n: int = 1, size: int = 0) -> None:
        """Log chunks of one answer, or, with a size, events that are no chunks."""
        for _ in range(n):
            self._n_made += 1
            if size:
                self.log.append("todo/write", {"n": self._n_made, "text": "x" * size})
            else:
                chunk = {"type": "text-delta", "index": 0, "text": f"{self._n_made} "}
                self.log.append("assistant/chunk", {"turn": 1, "step": 1, "chunk": chunk})

    def announce(self) -> None:
        self._n_made += 1
        self.log.announce("session.status", {"n": self._n_made})

    def begin_next_life(self) -> None:
        """Close the session and resume it, if there is anything to resume."""
        if self.log.stored_end == 0:
            return
        self.log.close()
        self.feeds.see_off("s")
        self.is_full = False
        stored = self.store.open("s")
        self._open(SessionLog(stored.file, next_seq=len(stored.events), on_failure=lambda _: None))

    async def fall_behind(self) -> None:
        """Log more than the connection takes, and then an event that only the disk has."""
        while not self.transport.is_behind:
            self.append(1, 1000)
            await asyncio.sleep(0)
        self.append(1, 1000)
        self.log.flush()

    async def ended(self) -> None:
        """Read until the connection has ended."""
        end_s = time.monotonic() + PATIENCE_S
        while not self.has_ended:
            assert time.monotonic() < end_s
            self.read(1 << 20)
            await asyncio.sleep(0)

    async def attach(self, from_seq: int) -> None:
        """Once all that is due has come, begin again with that event."""
        await self.settle()
        self._received = b""
        _, events = self.store.read(self.log.path)  # type: ignore[arg-type]
        self.witness.heard = [json.loads(event.json) for event in events[from_seq:]]
        self.feeds.attach(self.live, from_seq)  # type: ignore[arg-type]

    def read(self, n_bytes: int) -> bool:
        """Take at most so much of what has been sent; whether there was any."""
        try:
            data = self._theirs.recv(n_bytes)
        except BlockingIOError:
            return False
        self._received += data
        return bool(data)

    def frames(self) -> list[Any]:
        """The events and notices that have come whole."""
        *lines, _ = self._received.split(b"\n")
        params = [json.loads(line)["params"] for line in lines]
        return [one.get("event", one) for one in params]

    async def settle(self) -> None:
        """Read slowly until everything that is due has come, and then look whether more comes."""
        self.log.flush()
        end_s, quiet = time.monotonic() + PATIENCE_S, 0
        while self._received.count(b"\n") < len(self.witness.heard) or quiet < 5:
            assert time.monotonic() < end_s, (self.frames()[-3:], self.witness.heard[-3:])
            quiet = 0 if self.read(6000) else quiet + 1
            for _ in range(12):  # so the connection fills up, and is behind again
                await asyncio.sleep(0)
        assert self.frames() == self.witness.heard
        assert self._received[-1:] in (b"", b"\n")

    def close(self) -> None:
        self.log.close()
        self.feeds.close()
        self.transport.close()
        self._theirs.close()
        self.store.close()

    def _open(self, log: SessionLog) -> None:
        self.log = log
        self.live = SimpleNamespace(session=SimpleNamespace(id="s", log=log))
        self.feeds.attach(self.live)  # type: ignore[arg-type]
        log.subscribe(self.witness)

    def _write(self, fd: int, data: memoryview) -> int:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.write(fd, data)

    def _end(self) -> None:
        self.has_ended = True


@contextmanager
def world(*, stores: bool = True) -> Iterator[World]:
    with tempfile.TemporaryDirectory() as root, small_bounds():
        made = World(Path(root), stores=stores)
        try:
            yield made
        finally:
            made.close()

"""Feeds: whatever a reader does, it gets every event once, in order, and unchanged."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import resource
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
        """The events and notices that have come."""
        params = [json.loads(line)["params"] for line in self._received.splitlines(keepends=False)]
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


STEPS = st.one_of(
    st.tuples(st.just("chunks"), st.integers(1, 12)),
    st.tuples(st.just("event"), st.integers(1, 3000)),
    st.tuples(st.just("notices"), st.integers(1, 40)),
    st.tuples(st.just("turn"), st.integers(1, 3)),
    st.tuples(st.just("read"), st.integers(1, 6000)),
    st.tuples(st.just("next life"), st.just(0)),
    st.tuples(st.just("full"), st.just(0)),
    st.tuples(st.just("attach"), st.integers(0, 100)),
)


@given(st.lists(STEPS, max_size=60))
@settings(max_examples=150)
def test_a_reader_gets_all_of_it_in_order_whatever_happens(steps: list[tuple[str, int]]) -> None:
    async def scenario() -> None:
        with world() as here:
            for step, number in steps:
                match step:
                    case "chunks":
                        here.append(number)
                    case "event":
                        here.append(1, number)
                    case "notices":
                        for _ in range(number):
                            here.announce()
                    case "turn":
                        for _ in range(number):
                            await asyncio.sleep(0)
                    case "read":
                        here.read(number)
                    case "next life":
                        here.begin_next_life()
                    case "full":
                        here.is_full = True
                    case "attach":
                        here.log.flush()
                        if 0 < here.log.stored_end == here.log.next_seq:
                            await here.attach(here.log.next_seq * number // 100)
            await here.settle()
            assert not here.has_ended

    asyncio.run(scenario())


def test_notices_keep_their_places_among_the_events_though_they_alone_fill_the_connection() -> None:
    async def scenario() -> None:
        with world() as here:
            await here.fall_behind()
            for _ in range(200):
                here.announce()
            here.append(3, 100)
            await here.settle()

    asyncio.run(scenario())


def test_who_detaches_hears_no_more_of_earlier_lives_either() -> None:
    async def scenario() -> None:
        with world() as here:
            await here.fall_behind()
            here.begin_next_life()
            here.append(3, 100)
            here.feeds.detach("s")
            for _ in range(50):
                here.read(1 << 20)
                await asyncio.sleep(0)
            told = here.frames()
            assert told == here.witness.heard[: len(told)]
            assert len(told) < len(here.witness.heard) - 3

    asyncio.run(scenario())


def test_a_log_that_was_cut_ends_the_connection_with_its_events_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(*, grows: bool) -> None:
        with world() as here:
            await here.fall_behind()
            n_kept = 2
            lines = here.log.path.read_bytes().splitlines(keepends=True)  # type: ignore[union-attr]
            os.truncate(here.log.path, sum(map(len, lines[: 1 + n_kept])))  # type: ignore[arg-type]
            n_lost = here.log.next_seq
            if grows:
                here.append(3, 500)
                here.log.flush()
            await here.ended()
            told = here.frames()
            assert told == here.witness.heard[: len(told)]
            path = here.log.path
            assert (
                f"session s: a connection is ended: events {len(told)} to {n_lost - 1} are gone: {path}"
                in (caplog.text)
            )

    asyncio.run(scenario(grows=False))
    asyncio.run(scenario(grows=True))


def test_a_log_that_cannot_be_kept_open_ends_the_connection_of_who_is_behind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        with world() as here:
            await here.fall_behind()
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            lowest_free = os.dup(0)
            os.close(lowest_free)
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
            try:
                here.log.close()
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            here.feeds.see_off("s")
            await here.ended()
            assert "the log cannot be kept open: Too many open files" in caplog.text

    asyncio.run(scenario())


def test_what_is_stored_nowhere_is_kept_for_a_slow_reader_up_to_a_bound(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        with world(stores=False) as here:
            here.append(10, 1000)  # past the high-water mark
            here.announce()
            await here.settle()
            here.append(100, 1000)
            here.log.flush()
            here.append(1, 1000)
            await here.ended()
            assert (
                "session s: a connection is ended: its client does not read, and no event is" in caplog.text
            )

    asyncio.run(scenario())


def test_notices_are_kept_for_a_reader_that_is_behind_up_to_a_bound(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        with world() as here, pytest.MonkeyPatch.context() as patch:
            patch.setattr(feed, "MAX_HELD", 20)
            await here.fall_behind()
            for _ in range(20):
                here.announce()
            await here.settle()
            await here.fall_behind()
            for _ in range(21):
                here.announce()
            await here.ended()
            assert "session s: a connection is ended: its client has left 20 notices unread" in caplog.text

    asyncio.run(scenario())


def test_events_after_a_failed_write_are_sent_once() -> None:
    async def scenario() -> None:
        with world() as here:
            await here.fall_behind()
            here.is_full = True
            here.append(1)
            here.log.flush()
            assert here.log.failure is not None
            here.append(2, 100)
            here.announce()
            await here.settle()
            assert here.log.next_seq == here.log.stored_end + 2

    asyncio.run(scenario())

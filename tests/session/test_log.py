"""A session's log numbers, writes and delivers, in that order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import pytest

from cordisd.errors import LogWriteError
from cordisd.events import Event
from cordisd.session.log import Notice, SessionLog


class Disk:
    """An event sink that remembers its writes and can be told to fail."""

    path = Path("/nowhere")
    fsync: Literal["step", "turn", "never"] = "turn"
    size_bytes = 0

    def __init__(self) -> None:
        self.writes: list[list[int]] = []
        self.full = False

    def append(self, events: Sequence[Event]) -> None:
        if self.full:
            raise LogWriteError("no space left")
        self.writes.append([event.seq for event in events])

    async def sync(self) -> None:
        pass

    def read(self, n_bytes: int, offset: int) -> bytes:
        raise NotImplementedError

    def reopen(self) -> int | None:
        raise NotImplementedError

    def close(self) -> None:
        pass


class Listener:
    """A subscriber that calls `hear`, and remembers how it was let go."""

    def __init__(self, hear: Callable[[Sequence[Event | Notice]], object]) -> None:
        self.take = hear
        self.told: list[str] = []

    def drop(self) -> None:
        self.told.append("dropped")

    def end(self) -> None:
        self.told.append("ended")


def test_events_of_one_loop_turn_are_one_write_and_delivered_after_it() -> None:
    async def scenario() -> None:
        disk, seen = Disk(), []
        log = SessionLog(disk, on_failure=pytest.fail)
        log.subscribe(Listener(lambda batch: seen.append((len(disk.writes), batch))))
        log.append("turn/start", {"turn": 1})
        log.announce("session.status", {"status": "running"})
        log.append("turn/end", {"turn": 1})
        assert seen == []
        await asyncio.sleep(0)
        assert disk.writes == [[0, 1]]
        [(writes_before, batch)] = seen
        assert writes_before == 1
        assert [type(item) for item in batch] == [Event, Notice, Event]

    asyncio.run(scenario())


@pytest.mark.parametrize("n_written", [0, 1])
def test_a_log_has_begun_when_something_of_it_stays(n_written: int) -> None:
    async def scenario() -> None:
        disk = Disk()
        log = SessionLog(disk, on_failure=lambda _: None)
        assert not log.has_begun
        for _ in range(n_written):
            log.append("turn/start", {"turn": 1})
        log.flush()
        disk.full = True
        for _ in range(2):
            log.append("turn/end", {"turn": 1})
            log.flush()
        assert log.has_begun == (n_written > 0)
        assert log.next_seq == n_written + 1

    asyncio.run(scenario())


def test_a_failed_write_is_told_once_and_its_events_reach_nobody() -> None:
    async def scenario() -> None:
        disk, seen, failures = Disk(), [], []
        log = SessionLog(disk, on_failure=failures.append)
        log.subscribe(Listener(seen.extend))
        log.append("turn/start", {"turn": 1})
        log.flush()
        disk.full = True
        log.append("step/start", {})
        log.append("step/end", {})
        log.flush()
        assert len(failures) == 1
        assert [event.seq for event in seen] == [0]
        log.append("turn/end", {})
        log.flush()
        assert [(event.type, event.seq) for event in seen] == [("turn/start", 0), ("turn/end", 1)]
        assert disk.writes == [[0]]

    asyncio.run(scenario())


def test_a_subscriber_that_fails_is_told_and_the_others_hear_on_until_the_log_closes() -> None:
    async def scenario() -> None:
        seen: list[Event | Notice] = []
        log = SessionLog(Disk(), on_failure=pytest.fail)
        failing, hearing = Listener(lambda _: 1 / 0), Listener(seen.extend)
        log.subscribe(failing)
        log.subscribe(hearing)
        for number in range(2):
            log.append("turn/start", {"turn": number})
            log.flush()
        log.close()
        assert failing.told == ["dropped"]
        assert len(seen) == 2
        assert hearing.told == ["ended"]

    asyncio.run(scenario())


def test_an_event_that_is_no_json_is_refused_when_it_is_encoded() -> None:
    event = Event("tool/call", 0, 0, {"x": float("nan")})
    with pytest.raises(ValueError, match="not JSON compliant"):
        _ = event.json

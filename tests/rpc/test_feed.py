"""Feeds: whatever a reader does, it gets every event once, in order, and unchanged."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cordisd.rpc import feed
from feed_world import world

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


def test_who_falls_behind_late_is_served_from_there_and_not_from_the_start_of_the_log() -> None:
    async def scenario() -> None:
        with world() as here:
            here.append(50, 100)
            await here.settle()
            await here.fall_behind()
            [heard] = here.feeds._feeds.values()
            assert here.log.sink is not None
            lines = here.log.sink.read(1 << 20, heard._offset).splitlines()
            assert 50 < json.loads(lines[0])["seq"] + 1 <= heard.next_seq + 1
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
            [first] = re.findall(
                rf"session s: a connection is ended: events (\d+) to {n_lost - 1} are gone: {here.log.path}",
                caplog.text,
            )
            assert len(told) <= int(first) < n_lost  # what was on its way then is not sent either
            caplog.clear()

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

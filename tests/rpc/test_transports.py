"""The end of a connection, seen from its transport."""

from __future__ import annotations

import asyncio
import os

from cordisd.rpc.transports import FULL_BYTES, HIGH_WATER_BYTES, FdTransport
from measure import SOON_S, comes_meanwhile


def test_a_reader_that_goes_away_while_behind_is_an_end_and_asks_for_nothing_more() -> None:
    async def scenario() -> None:
        told: list[str] = []
        (requests, asking), (answers, answering) = os.pipe(), os.pipe()
        transport = FdTransport(
            requests,
            answering,
            on_data=lambda _: told.append("data"),
            on_eof=lambda: told.append("eof"),
            on_drained=lambda: told.append("drained"),
        )
        transport.start()
        transport.write(b"x" * (2 * HIGH_WATER_BYTES))
        await asyncio.sleep(0.02)
        assert transport.is_behind
        os.close(answers)
        assert await comes_meanwhile(lambda: told)
        await asyncio.sleep(0.02)
        transport.close()
        os.close(asking)
        assert told == ["eof"]

    asyncio.run(scenario())


def test_a_reader_that_catches_up_is_told_of_once() -> None:
    async def scenario() -> None:
        told: list[str] = []
        (requests, asking), (answers, answering) = os.pipe(), os.pipe()
        transport = FdTransport(
            requests,
            answering,
            on_data=lambda _: told.append("data"),
            on_eof=lambda: told.append("eof"),
            on_drained=lambda: told.append("drained"),
        )
        transport.start()
        n_bytes = 2 * HIGH_WATER_BYTES
        transport.write(b"x" * n_bytes)
        while n_bytes:
            n_bytes -= len(await asyncio.to_thread(os.read, answers, 1 << 20))
        assert await comes_meanwhile(lambda: told)
        await asyncio.sleep(0.02)
        assert told == ["drained"]
        transport.close()
        os.close(asking)
        os.close(answers)

    asyncio.run(scenario())


def test_two_that_wait_for_a_transport_to_be_drained_both_hear_that_it_was_closed() -> None:
    async def scenario() -> None:
        (requests, asking), (answers, answering) = os.pipe(), os.pipe()
        nothing = {"on_data": lambda _: None, "on_eof": lambda: None, "on_drained": lambda: None}
        transport = FdTransport(requests, answering, **nothing)  # type: ignore[arg-type]
        transport.start()
        transport.write(b"x" * HIGH_WATER_BYTES)
        first = asyncio.ensure_future(transport.drain(1000))
        second = asyncio.ensure_future(transport.drain(0.01))
        await second
        assert not first.done()
        transport.close()
        await asyncio.wait_for(first, SOON_S)
        os.close(asking)
        os.close(answers)

    asyncio.run(scenario())


def test_what_waits_for_room_goes_on_in_order_and_when_the_connection_is_closed() -> None:
    async def scenario() -> None:
        (requests, asking), (answers, answering) = os.pipe(), os.pipe()
        nothing = {"on_data": lambda _: None, "on_eof": lambda: None, "on_drained": lambda: None}
        transport = FdTransport(requests, answering, **nothing)  # type: ignore[arg-type]
        transport.start()
        order: list[int] = []

        async def say(number: int) -> None:
            await transport.room()
            order.append(number)
            transport.write(b"x" * (FULL_BYTES // 3))

        tasks = [asyncio.ensure_future(say(number)) for number in range(12)]
        await asyncio.sleep(0.02)
        assert order == [0, 1, 2, 3], "as many as pass the mark"
        while len(order) < 8:
            await asyncio.to_thread(os.read, answers, 1 << 20)
        transport.close()
        await asyncio.wait_for(asyncio.gather(*tasks), SOON_S)
        assert order == list(range(12))
        os.close(asking)
        os.close(answers)

    asyncio.run(scenario())

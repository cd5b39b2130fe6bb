"""The end of a connection, seen from its transport."""

from __future__ import annotations

import asyncio
import os

from cordisd.rpc.transports import HIGH_WATER_BYTES, FdTransport
from measure import comes_meanwhile


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

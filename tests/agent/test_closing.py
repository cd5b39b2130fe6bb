"""The end of a session: whoever asked for it may go, and it ends all the same."""

from __future__ import annotations

import asyncio
from pathlib import Path

from hosts import host_here, open_session, until


def test_a_close_that_nobody_waits_for_any_more_is_finished(tmp_path: Path) -> None:
    async def steps() -> None:
        async with host_here(tmp_path, []) as host:
            live = await open_session(host, tmp_path)
            reached, go_on = asyncio.Event(), asyncio.Event()
            undone: list[str] = []

            async def slow() -> None:
                reached.set()
                await go_on.wait()

            live.session.scope.defer(lambda: undone.append("what was begun before"))
            live.session.scope.defer(slow)
            closing = asyncio.ensure_future(host.close_session("s", for_good=True))
            await reached.wait()
            closing.cancel()
            await asyncio.wait([closing])
            assert closing.cancelled()
            assert "s" in host.live
            again = asyncio.ensure_future(host.close_session("s", for_good=True))
            go_on.set()
            await again
            await until(lambda: "s" not in host.live)
            assert undone == ["what was begun before"]

    asyncio.run(steps())

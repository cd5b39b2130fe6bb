"""The SDK on what sessions have logged: forks, events, outcomes, numbers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cordisd import mock as model
from cordisd_sdk import AsyncClient, Client, RpcError


def options(root: Path, url: str) -> dict[str, Any]:
    (root / "w").mkdir()
    return {"cwd": root / "w", "session_root": root / "sessions", "base_url": url}


def test_a_fork_is_a_session_of_its_own(tmp_path: Path) -> None:
    async def main() -> None:
        async with model.MockModel([model.text(word) for word in ("one", "two", "left", "right")]) as mock:
            async with AsyncClient(**options(tmp_path, mock.url)) as client:
                session = client.session()
                with pytest.raises(RpcError, match="is stored under"):
                    await session.fork()
                await session.run("first")
                await session.run("second")
                left, right = await session.fork("left"), await session.fork(at_turn=1)
                assert left is client.session("left")
                assert (await left.run("on")).final_response == "left"
                assert (await right.run("on")).final_response == "right"
                contents = [[one["content"] for one in request.messages[1:]] for request in mock.requests[2:]]
                assert contents == [["first", "one", "second", "two", "on"], ["first", "one", "on"]]
                seed = (await right.metrics())["seed"]
                assert seed is not None
                assert (seed["parentSession"], seed["turns"]) == (session.id, 1)

    asyncio.run(main())


def test_a_session_that_is_not_live_is_told_from_one_that_is_stored(tmp_path: Path) -> None:
    with model.MockModelThread([model.text("one")]) as mock, Client(**options(tmp_path, mock.url)) as client:
        session = client.session("s")
        session.run("first")
        session.close()
        with pytest.raises(RpcError, match="live sessions: 0; session/resume opens a stored one"):
            client.attach("s")
        assert client.resume("s").get()["turns"] == 1


def test_a_printed_result_fits_a_terminal(tmp_path: Path) -> None:
    with model.MockModelThread([model.text("one")]) as mock, Client(**options(tmp_path, mock.url)) as client:
        result = client.session("s").run("first")
    assert result.events and result.notifications
    assert "final_response='one'" in repr(result)
    assert len(repr(result)) < 500


def test_the_synchronous_client_reads_judges_and_forks(tmp_path: Path) -> None:
    with (
        model.MockModelThread([model.text("one"), model.text("two")]) as mock,
        Client(**options(tmp_path, mock.url)) as client,
    ):
        session = client.session("s")
        sent: list[dict[str, Any]] = []
        session.run("first", on_event=sent.append)
        events = list(session.events())
        assert [event for event in events if event in sent] == sent
        assert list(session.events(len(events))) == []
        page = session.page(2, limit=3)
        assert (page["events"], page["next"]) == (events[2:5], 5)
        assert session.fork("t").run("on").final_response == "two"
        session.close()
        session.outcome("success", 0.25, {"tests": 3})
        assert session.metrics()["outcome"] == {"class": "success", "reward": 0.25, "data": {"tests": 3}}
        assert [event["type"] for event in session.events(len(events))] == [
            "session/end-seed",
            "session/outcome",
        ]

"""Limits through the SDK."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cordisd.mock import Hang, MockModel, MockModelThread, RawReply, call, delta, text
from cordisd_sdk import AsyncClient, Client, RpcError

STEPS = [call(f"c{n}", "bash", {"command": "true"}) for n in range(6)]


def options(tmp_path: Path, url: str) -> dict[str, Any]:
    (tmp_path / "work").mkdir(exist_ok=True)
    return {"cwd": tmp_path / "work", "session_root": tmp_path / "logs", "base_url": url}


def test_a_result_tells_which_limit_ended_its_run(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            MockModel([*STEPS[:3], text("done"), *STEPS[3:]]) as mock,
            AsyncClient(**options(tmp_path, mock.url)) as client,
        ):
            session = client.session("s", limits={"maxTurns": 2, "maxSessionTurns": 4})
            first = await session.run("one")
            assert (first.stop_reason, first.finish_reason, first.error) == ("turn_limit", "aborted", None)
            assert first.limit == {"name": "maxTurns", "allowed": 2, "used": 2}
            second = await session.run("two", run_timeout_s=600)
            assert (second.stop_reason, second.limit) == ("completed", None)
            third = await session.run("three", max_turns=1)
            assert third.limit == {"name": "maxTurns", "allowed": 1, "used": 1}
            assert (await session.get())["limits"] == {"maxTurns": 2, "maxSessionTurns": 4}
            fourth = await session.prompt("four", max_turns=1)
            assert (await fourth.result()).stop_reason == "turn_limit"
            fifth = await session.run("five")
            assert (fifth.stop_reason, fifth.final_response) == ("session_turn_limit", "")
            with pytest.raises(RpcError, match=r"unknown field limits\.maxTurn") as refused:
                await client.session("t", limits={"maxTurn": 1}).run("one")  # type: ignore[typeddict-unknown-key]
            assert refused.value.code == -32602
            with pytest.raises(
                TypeError, match="unknown prompt option 'max_turn'; allowed: idempotency_key, "
            ):
                await session.run("six", max_turn=1)  # type: ignore[call-arg]

    asyncio.run(main())


def test_the_synchronous_client_takes_the_same_options(tmp_path: Path) -> None:
    script = [*STEPS[:2], RawReply([delta({"content": "so far"}), Hang()])]
    with MockModelThread(script) as mock, Client(**options(tmp_path, mock.url)) as client:
        session = client.session(limits={"maxTurns": 5})
        assert session.run("one", max_turns=1).stop_reason == "turn_limit"
        assert session.prompt("two", max_turns=1).result().stop_reason == "turn_limit"
        events: list[str] = []
        result = session.run("three", on_event=lambda event: events.append(event["type"]), run_timeout_s=1)
        assert (result.stop_reason, events[-1]) == ("timeout", "turn/end")
        assert result.limit is not None and result.limit["name"] == "timeoutSeconds"

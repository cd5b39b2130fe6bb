"""A session of the SDK through the real daemon: made, closed, resumed, steered, moved."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cordisd import mock as model
from cordisd_sdk import AsyncClient, RpcError, RunResult
from measure import SOON_S
from sdk_place import SLEEP, Place, result_texts, with_client


def test_a_session_with_options_is_created_with_them(place: Place, tmp_path: Path) -> None:
    async def work(client: AsyncClient) -> None:
        session = client.session("mine", cwd=str(tmp_path), model="other-model", rollout_id="r1", attempt=2)
        result = await session.run("where?")
        assert result_texts(result) == [str(tmp_path)]
        assert (await session.create())["cwd"] == str(tmp_path)
        known = await session.get()
        assert (known["model"], known["cwd"], known["rolloutId"]) == ("other-model", str(tmp_path), "r1")
        assert [row["sessionId"] for row in await client.list()] == ["mine"]
        assert client.session("mine") is session

    with_client(place, [model.call("c1", "bash", {"command": "pwd"}), model.text("there")], work)


def test_a_repeated_idempotency_key_gives_the_first_prompt_back(place: Place) -> None:
    async def work(client: AsyncClient) -> list[RunResult]:
        session = client.session("s")
        first = await session.run("once", idempotency_key="k")
        return [first, await session.run("twice", idempotency_key="k"), await session.run("thrice")]

    first, again, third = with_client(place, [model.text("one"), model.text("two")], work)
    assert again == first
    assert (third.turn, third.final_response) == (2, "two")


def test_a_session_is_closed_and_resumed_with_its_history(place: Place) -> None:
    bodies: list[Any] = []

    def reply(request: model.Received) -> model.Reply:
        bodies.append(request.json)
        return model.text(f"answer {len(bodies)}")

    async def work(client: AsyncClient) -> RunResult:
        await client.session("s").run("first")
        await client.session("s").close()
        assert await client.list() == []
        with pytest.raises(RpcError):
            await client.resume("nobody")
        return await (await client.resume("s")).run("second")

    result = with_client(place, reply, work)
    assert (result.turn, result.final_response) == (2, "answer 2")
    said = [m["content"] for m in bodies[1]["messages"] if m["role"] != "system"]
    assert said == ["first", "answer 1", "second"]


def test_closing_a_session_ends_its_prompts(place: Place) -> None:
    async def work(client: AsyncClient) -> None:
        session = client.session("s")
        prompt = await session.prompt("sleep")
        async for event in prompt:
            if event["type"] == "tool/call":
                break
        await session.close()
        result = await asyncio.wait_for(prompt.result(), SOON_S)
        assert result.finish_reason == "aborted"

    with_client(place, [SLEEP], work)


def test_steer_and_working_directory_reach_the_session(place: Place) -> None:
    (place.workspace / "sub").mkdir()
    seen: list[Any] = []

    def reply(request: model.Received) -> model.Reply:
        seen.append([m["content"] for m in request.json["messages"] if m["role"] == "user"])
        return model.call("c1", "bash", {"command": "pwd"}) if len(seen) == 1 else model.text("ok")

    async def work(client: AsyncClient) -> RunResult:
        session = client.session("s")
        assert await session.get_working_directory() == str(place.workspace)
        assert await session.set_working_directory("sub") == str(place.workspace / "sub")
        await session.steer("and be brief")
        return await session.run("go")

    result = with_client(place, reply, work)
    assert result_texts(result) == [str(place.workspace / "sub")]
    assert any("and be brief" in text for text in seen[0]) and "go" in seen[0]

"""The SDK against the real daemon, with a scripted model on loopback."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from cordisd import mock as model
from cordisd_sdk import AsyncClient, Client, ConnectionClosedError, RequestTimeoutError, RpcError, RunResult
from measure import SOON_S
from sdk_place import SLEEP, Place, result_texts, with_client


def test_a_text_turn_gives_answer_reasons_turn_and_usage(place: Place) -> None:
    result = with_client(place, [model.text("Hel", "lo")], lambda client: client.session("s").run("hi"))
    assert result.final_response == "Hello"
    assert (result.finish_reason, result.stop_reason, result.turn) == ("completed", "completed", 1)
    assert result.usage == {"inputTokens": 20, "outputTokens": 4}
    assert result.error is None
    kinds = [event["type"] for event in result.events]
    assert kinds[:3] == ["agent/inbox/spliced", "turn/start", "agent/inbox/spliced"]
    assert kinds[-1] == "turn/end"
    assert result.events[0]["data"]["inserted"][0]["id"] == result.message_id
    numbers = [event["seq"] for event in result.events]
    assert numbers == list(range(numbers[-1] + 1))


def test_a_tool_turn_runs_in_the_workspace_and_streams_its_events(place: Place) -> None:
    async def work(client: AsyncClient) -> tuple[RunResult, list[Any]]:
        seen: list[Any] = []
        return await client.session().run("where?", on_event=seen.append), seen

    script = [model.call("c1", "bash", {"command": "pwd"}), model.text("there")]
    result, seen = with_client(place, script, work)
    assert result_texts(result) == [str(place.workspace)]
    assert result.final_response == "there"
    assert seen == result.events


def test_three_queued_prompts_get_their_own_results_though_the_second_fails(place: Place) -> None:
    async def work(client: AsyncClient) -> list[RunResult]:
        session = client.session("s")
        return await asyncio.gather(*(session.run(text) for text in ("a", "b", "c")))

    script = [model.text("first"), model.error(400, "no such thing"), model.text("third")]
    first, second, third = with_client(place, script, work)
    assert (first.turn, first.final_response, first.stop_reason) == (1, "first", "completed")
    assert (second.turn, second.final_response, second.stop_reason) == (2, "", "error")
    assert second.error is not None and "no such thing" in second.error["message"]
    assert (third.turn, third.final_response, third.stop_reason) == (3, "third", "completed")


def test_prompts_to_a_new_session_run_in_the_order_in_which_they_were_sent(place: Place) -> None:
    async def work(client: AsyncClient) -> list[RunResult]:
        session = client.session("s")
        runs = []
        for text in ("a", "b", "c"):
            runs.append(asyncio.create_task(session.run(text)))
            await asyncio.sleep(0.001)
        return await asyncio.gather(*runs)

    def reply(request: model.Received) -> model.Reply:
        return model.text("to " + request.json["messages"][-1]["content"])

    results = with_client(place, reply, work)
    assert [(r.turn, r.final_response) for r in results] == [(1, "to a"), (2, "to b"), (3, "to c")]


def test_cancel_while_bash_runs_ends_the_turn_and_drops_the_queue(place: Place) -> None:
    async def work(client: AsyncClient) -> tuple[RunResult, RunResult, RunResult, float]:
        session = client.session("s")
        running = await session.prompt("sleep")
        waiting = await session.prompt("never")
        async for event in running:
            if event["type"] == "tool/call":
                break
        started = time.monotonic()
        answer = await session.cancel()
        assert answer == {"cancelled": True, "turn": 1, "dropped": [waiting.message_id]}
        cancelled, dropped = await running.result(), await waiting.result()
        elapsed_s = time.monotonic() - started
        assert (await session.cancel())["cancelled"] is False
        return cancelled, dropped, await session.run("go on"), elapsed_s

    cancelled, dropped, after, elapsed_s = with_client(place, [SLEEP, model.text("fine")], work)
    assert (cancelled.finish_reason, cancelled.stop_reason, cancelled.turn) == ("aborted", "cancelled", 1)
    assert (dropped.finish_reason, dropped.stop_reason, dropped.turn) == ("aborted", "cancelled", None)
    assert (after.stop_reason, after.final_response) == ("completed", "fine")
    assert elapsed_s < SOON_S


def test_cancelling_a_run_ends_its_turn_but_keeps_the_queue_and_other_sessions(place: Place) -> None:
    async def work(client: AsyncClient) -> tuple[RunResult, RunResult]:
        session = client.session("s")
        await session.create()
        begun = asyncio.Event()
        run = asyncio.create_task(
            session.run("sleep", on_event=lambda event: event["type"] == "tool/call" and begun.set())
        )
        await begun.wait()
        queued = asyncio.create_task(session.run("next"))
        other = asyncio.create_task(client.session("other").run("hello"))
        await asyncio.sleep(0.1)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        return await queued, await other

    def reply(request: model.Received) -> model.Reply:
        last = request.json["messages"][-1]["content"]
        return SLEEP if last == "sleep" else model.text(f"answer to {last}")

    queued, other = with_client(place, reply, work)
    assert (queued.turn, queued.final_response) == (2, "answer to next")
    assert other.final_response == "answer to hello"


def test_a_run_over_its_time_limit_is_a_timeout_and_its_turn_is_cancelled(place: Place) -> None:
    async def work(client: AsyncClient) -> RunResult:
        session = client.session("s")
        with pytest.raises(RequestTimeoutError, match=r"did not finish within 0\.3 s"):
            await session.run("sleep", timeout_s=0.3)
        return await session.run("again")

    assert with_client(place, [SLEEP, model.text("fine")], work).final_response == "fine"


def test_a_daemon_killed_in_a_turn_is_an_error_and_leaves_no_process(place: Place) -> None:
    async def work(client: AsyncClient) -> None:
        prompt = await client.session("s").prompt("sleep")
        async for event in prompt:
            if event["type"] == "tool/call":
                break
        assert client.pid is not None
        os.kill(client.pid, signal.SIGKILL)
        with pytest.raises(ConnectionClosedError, match="was killed") as caught:
            await prompt.result()
        assert caught.value.exit_code == -signal.SIGKILL

    with_client(place, [SLEEP], work)


def test_a_faulty_composition_is_told_with_its_line_and_the_exit_code(place: Place, tmp_path: Path) -> None:
    broken = tmp_path / "broken.cordis.yml"
    broken.write_text("- {id: x, name: bassh}\n")
    with pytest.raises(ConnectionClosedError) as caught:
        Client(**place.options("http://127.0.0.1:9", composition=broken)).start()
    assert caught.value.exit_code == 2
    assert "broken.cordis.yml:1" in caught.value.stderr_tail
    assert "bassh" in str(caught.value)
    assert place.clean()


def test_an_unknown_provider_is_refused_and_the_daemon_ends(place: Place) -> None:
    with pytest.raises(RpcError, match="no adapter registered"):
        Client(**place.options("http://127.0.0.1:9", provider="nobody")).start()
    assert place.clean()


def test_a_prompt_of_five_megabytes_arrives_whole(place: Place) -> None:
    text = "\u00e9x" * 750_000  # seven bytes each on the wire
    sizes: list[int] = []

    def reply(request: model.Received) -> model.Reply:
        sizes.append(len(request.json["messages"][-1]["content"]))
        return model.text("ok")

    assert with_client(place, reply, lambda client: client.session("s").run(text)).final_response == "ok"
    assert sizes == [len(text)]


def test_an_event_of_eight_megabytes_arrives_whole(place: Place) -> None:
    text = "y" * (8 * 2**20)
    result = with_client(place, [model.text(text)], lambda client: client.session("s").run("go"))
    assert result.final_response == text


def test_the_synchronous_client_has_the_same_surface(place: Place) -> None:
    script = [model.text("one"), model.call("c1", "bash", {"command": "echo hi"}), model.text("two")]
    with model.MockModelThread(script) as mock:
        with Client(**place.options(mock.url)) as client:
            client.ping()
            assert client.server["serverInfo"]["name"] == "cordisd"
            session = client.session("s")
            assert session.run("a").final_response == "one"
            kinds = [event["type"] for event in session.stream("b")]
            assert kinds.count("tool/result") == 1 and kinds[-1] == "turn/end"
            assert session.get()["turns"] == 2
            assert client.request("session/list", {})["sessions"][0]["sessionId"] == "s"
        client.close()
    assert place.clean()


def test_the_daemon_runs_outside_the_terminals_process_group_and_imports_nothing_from_the_workspace(
    place: Place,
) -> None:
    (place.workspace / "json.py").write_text("raise SystemExit('imported from the workspace')")

    async def work(client: AsyncClient) -> tuple[int, int]:
        assert client.pid is not None
        return os.getpgid(client.pid), client.pid

    before = os.getcwd()
    os.chdir(place.workspace)
    try:
        group, pid = with_client(place, [], work)
    finally:
        os.chdir(before)
    assert group == pid

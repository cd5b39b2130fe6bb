"""What the SDK does with a daemon that misbehaves. The fake daemon does what the real one never would."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

import fake_daemon
import processes
from cordisd_sdk import (
    AsyncClient,
    ConnectionClosedError,
    ProtocolError,
    RequestTimeoutError,
    RpcError,
    RunResult,
    SdkError,
)
from measure import SOON_S, least_cpu_s

T = TypeVar("T")


def with_client(scenario: str, work: Callable[[AsyncClient], Awaitable[T]], *words: str, **options: Any) -> T:
    async def main() -> T:
        async with AsyncClient(command=fake_daemon.command(scenario, *words), **options) as client:
            return await work(client)

    return asyncio.run(main())


def prompt_once(scenario: str, *words: str, **options: Any) -> RunResult:
    return with_client(scenario, lambda client: client.session("s").run("hi"), *words, **options)


def test_noise_on_stdout_and_bad_bytes_on_stderr_are_skipped_and_kept_as_diagnosis() -> None:
    async def work(client: AsyncClient) -> tuple[RunResult, str]:
        return await client.session("s").run("hi"), client.stderr_tail

    result, tail = with_client("noise", work)
    assert (result.final_response, result.finish_reason, result.turn) == ("heard you", "completed", 1)
    assert "stdout: Welcome to the wrapper!" in tail
    assert "warn \ufffd" in tail


def test_each_of_three_queued_prompts_gets_the_outcome_of_its_own_turn() -> None:
    async def work(client: AsyncClient) -> list[RunResult]:
        session = client.session("s")
        return await asyncio.gather(*(session.run(text) for text in "abc"))

    results = with_client("queue", work)
    assert [(r.turn, r.final_response, r.finish_reason) for r in results] == [
        (1, "answer 1", "completed"),
        (2, "answer 2", "error"),
        (3, "answer 3", "completed"),
    ]
    for number, result in enumerate(results, 1):
        assert result.events[0]["data"]["inserted"] == [{"id": result.message_id}]
        assert [e["data"]["turn"] for e in result.events if "turn" in e["data"]] == [number, number]


def test_a_prompt_that_the_daemon_leaves_in_its_queue_is_an_error_not_another_prompts_outcome() -> None:
    async def work(client: AsyncClient) -> list[RunResult | BaseException]:
        session = client.session("s")
        return await asyncio.gather(session.run("a"), session.run("b"), return_exceptions=True)

    first, second = with_client("park", work)
    assert isinstance(first, RunResult) and first.finish_reason == "error"
    assert isinstance(second, SdkError) and "left prompt m1 in the queue" in str(second)


def test_a_daemon_killed_in_a_turn_is_an_error_with_exit_code_and_last_words() -> None:
    with pytest.raises(ConnectionClosedError, match="was killed") as caught:
        prompt_once("die")
    assert caught.value.exit_code == -9
    lines = caught.value.stderr_tail.splitlines()
    assert len(lines) == 400 and lines[-1] == "last word 499"
    assert "last word 499" in str(caught.value) and "last word 100" not in str(caught.value)


def test_events_that_came_before_the_daemon_died_are_iterated_before_the_error() -> None:
    async def work(client: AsyncClient) -> list[str]:
        kinds = []
        with pytest.raises(ConnectionClosedError):
            async for event in client.session("s").stream("hi"):
                kinds.append(event["type"])
        return kinds

    assert with_client("die", work) == ["agent/inbox/spliced", "turn/start", "agent/inbox/spliced"]


def test_the_death_of_the_daemon_is_noticed_although_a_child_of_it_holds_its_pipes_open() -> None:
    marker = f"CORDISD_TEST_{os.urandom(8).hex()}"
    with pytest.raises(ConnectionClosedError) as caught:
        prompt_once("orphan", "escape", env={marker: "1"})
    assert caught.value.exit_code == 7
    [child] = processes.with_environment(marker)  # it lives, so nobody has waited for it
    os.kill(child, signal.SIGKILL)


def test_what_outlives_the_daemon_in_its_process_group_is_killed() -> None:
    marker = f"CORDISD_TEST_{os.urandom(8).hex()}"
    with pytest.raises(ConnectionClosedError):
        prompt_once("orphan", env={marker: "1"})
    assert processes.gone_within(marker)


@pytest.mark.parametrize("scenario", ["broken", "bad_text", "shapeless"])
def test_a_broken_frame_ends_the_connection_with_a_typed_error_that_shows_it(scenario: str) -> None:
    with pytest.raises(ProtocolError, match=r"broken frame .*: \{"):
        prompt_once(scenario)


def test_after_a_broken_frame_every_request_fails_the_same_way() -> None:
    async def work(client: AsyncClient) -> None:
        for _ in range(2):
            with pytest.raises(ProtocolError, match="broken frame"):
                await client.session("s").run("hi")
        with pytest.raises(ProtocolError, match="broken frame"):
            await client.ping()

    with_client("broken", work)


def test_noise_without_end_is_a_typed_error() -> None:
    with pytest.raises(ProtocolError, match="more than 1000 lines on stdout are not frames"):
        prompt_once("babble")


def test_a_frame_of_eight_megabytes_arrives_whole() -> None:
    result = prompt_once("big", str(8 * 2**20))
    assert result.final_response == "x" * (8 * 2**20)


def test_a_frame_over_the_limit_is_a_typed_error() -> None:
    assert prompt_once("big", "1000", max_frame_bytes=2000).final_response == "x" * 1000
    with pytest.raises(ProtocolError, match="a line of more than 2000 bytes"):
        prompt_once("big", "2000", max_frame_bytes=2000)


def test_a_request_over_the_daemons_limit_is_refused_before_it_is_sent() -> None:
    async def work(client: AsyncClient) -> None:
        client.connection.max_request_bytes = 1000
        with pytest.raises(SdkError, match="the daemon accepts 1000"):
            await client.session("s").run("x" * 1000)

    with_client("noise", work)


def test_a_silent_daemon_is_a_timeout_with_its_stderr_and_is_gone_afterwards() -> None:
    marker = f"CORDISD_TEST_{os.urandom(8).hex()}"
    silent = "trap '' TERM; echo 'I shall not answer' >&2; while :; do sleep 1; done"
    client = AsyncClient(
        command=["/bin/sh", "-c", silent],  # which is there long before the timeout
        env={marker: "1"},
        start_timeout_s=1.5,
        shutdown_timeout_s=0.1,
    )
    with pytest.raises(RequestTimeoutError, match=r"no answer to initialize within 1\.5 s") as caught:
        asyncio.run(client.start())
    assert caught.value.stderr_tail == "I shall not answer"
    assert processes.gone_within(marker)


def test_a_daemon_that_reads_nothing_does_not_hold_up_close() -> None:
    async def work(client: AsyncClient) -> float:
        session = client.session("s")
        tasks = [asyncio.create_task(session.run("x" * 2**20)) for _ in range(8)]
        await asyncio.sleep(0.3)
        with pytest.raises(RequestTimeoutError):
            await client.request("rpc.ping", {}, timeout_s=0.1)
        started = time.monotonic()
        await client.close()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(outcome, ConnectionClosedError)
        return time.monotonic() - started

    assert with_client("deaf", work, shutdown_timeout_s=0.2) < SOON_S


def test_answers_that_are_no_answers_fail_that_request_only() -> None:
    async def work(client: AsyncClient) -> None:
        with pytest.raises(ProtocolError, match="the result is not an object"):
            await client.request("list")
        with pytest.raises(ProtocolError, match="error has no code"):
            await client.request("codeless")
        with pytest.raises(RpcError) as caught:
            await client.request("refused")
        error = caught.value
        assert (error.code, error.message, error.data) == (-32601, "unknown", {"near": "x"})
        assert await client.request("ask-back") == {"told": -32601}

    with_client("odd_answers", work)


def test_a_request_that_timed_out_or_was_cancelled_disturbs_no_other() -> None:
    async def work(client: AsyncClient) -> None:
        with pytest.raises(RequestTimeoutError, match="no answer to nothing"):
            await client.request("nothing", timeout_s=0.05)
        task = asyncio.create_task(client.request("nothing"))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await client.request("ask-back") == {"told": -32601}

    with_client("odd_answers", work)


def test_the_notifications_of_a_delegated_session_are_told_but_are_not_the_sessions_events() -> None:
    result = prompt_once("subagent")
    assert result.final_response == "done"
    assert [n.method for n in result.notifications].count("subagent.started") == 1
    assert any(n.params.get("sessionId") == "child" for n in result.notifications)
    assert sum(event["type"] == "turn/start" for event in result.events) == 1


def test_twenty_thousand_events_cost_little_and_arrive_in_order() -> None:
    async def work(client: AsyncClient) -> RunResult:
        return await client.session("s").run("go")

    def run() -> None:
        result = with_client("many", work, "20000")
        numbers = [e["seq"] for e in result.events if e["type"] == "assistant/chunk"]
        assert numbers == list(range(20000))

    assert least_cpu_s(run, 3) < 3  # 0.25 s on an idle machine


def test_a_program_that_does_not_exist_is_a_clear_error() -> None:
    with pytest.raises(SdkError, match=r"cannot start '/no/such/daemon': No such file or directory"):
        asyncio.run(AsyncClient(command=["/no/such/daemon"]).start())


def test_options_with_a_typo_are_refused_with_the_nearest_name() -> None:
    with pytest.raises(TypeError, match=r"unknown option 'modle' \(did you mean \"model\"\?\)"):
        AsyncClient(modle="x")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="api_key needs base_url"):
        AsyncClient(api_key="x")

"""The end of a client, and of what it runs on: nothing is left, whoever ends it and when."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

import pytest

import fake_daemon
import processes
from cordisd_sdk import (
    AsyncClient,
    Client,
    ConnectionClosedError,
)
from measure import SOON_S, comes


def ended_threads(before: set[threading.Thread]) -> bool:
    """Whether there are soon no other threads than `before`.

    On Python 3.11 asyncio waits for a process in a thread, which tells the loop and ends a moment later.
    """
    return comes(lambda: set(threading.enumerate()) <= before, SOON_S)


def test_the_synchronous_client_leaves_no_thread_and_no_process_and_closes_twice() -> None:
    marker = f"CORDISD_TEST_{os.urandom(8).hex()}"
    threads = set(threading.enumerate())
    client = Client(command=fake_daemon.command("noise"), env={marker: "1"})
    with client:
        assert client.session("s").run("hi").final_response == "heard you"
        assert processes.with_environment(marker)
    client.close()
    assert processes.gone_within(marker)
    assert ended_threads(threads), threading.enumerate()
    with pytest.raises(ConnectionClosedError, match="the client was closed"):
        client.ping()


def test_a_client_whose_start_failed_leaves_no_thread() -> None:
    threads = set(threading.enumerate())
    with pytest.raises(ConnectionClosedError):
        Client(command=["/bin/false"]).start()
    assert ended_threads(threads), threading.enumerate()


def test_using_a_client_before_its_start_says_what_to_do() -> None:
    with pytest.raises(ConnectionClosedError, match="not started"):
        Client().ping()
    with pytest.raises(ConnectionClosedError, match="not started"):
        asyncio.run(AsyncClient().ping())


def test_the_synchronous_client_streams_every_event_in_order() -> None:
    with Client(command=fake_daemon.command("many", "3000")) as client:
        numbers = [e["seq"] for e in client.session("s").stream("x") if e["type"] == "assistant/chunk"]
    assert numbers == list(range(3000))


def test_a_synchronous_on_event_runs_on_the_callers_thread_and_its_exception_ends_the_run() -> None:
    callers = set()

    def note(event: dict[str, Any]) -> None:
        callers.add(threading.current_thread())
        if event["type"] == "turn/start":
            raise RuntimeError("enough")

    with (
        Client(command=fake_daemon.command("many", "100")) as client,
        pytest.raises(RuntimeError, match="enough"),
    ):
        client.session("s").run("x", on_event=note)
    assert callers == {threading.current_thread()}


def test_closing_from_several_tasks_ends_the_daemon_once() -> None:
    async def main() -> None:
        async with AsyncClient(command=fake_daemon.command("noise")) as client:
            await asyncio.gather(*(client.close() for _ in range(5)))
            assert client.exit_code == 0

    asyncio.run(main())


def test_a_start_that_is_cancelled_at_any_moment_leaves_no_process_and_raises_nothing_else() -> None:
    marker = f"CORDISD_TEST_{os.urandom(8).hex()}"
    problems: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: problems.append(context))
        for n_loop_turns in range(6):
            client = AsyncClient(command=fake_daemon.command("deaf"), env={marker: "1"}, shutdown_timeout_s=0)
            starting = asyncio.create_task(client.start())
            for _ in range(n_loop_turns):
                await asyncio.sleep(0)
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting
            await client.close()

    asyncio.run(main())
    assert problems == []
    assert processes.gone_within(marker)


def test_a_cancelled_close_kills_the_daemon() -> None:
    marker = f"CORDISD_TEST_{os.urandom(8).hex()}"

    async def main() -> None:
        client = AsyncClient(command=fake_daemon.command("deaf"), env={marker: "1"}, shutdown_timeout_s=30)
        await client.start()
        client.connection.request_soon("session/prompt", {"sessionId": "s"})
        closing = asyncio.create_task(client.close())
        await asyncio.sleep(0.2)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await client.close()

    asyncio.run(main())
    assert processes.gone_within(marker)

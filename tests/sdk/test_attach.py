"""Clients that hear sessions of others, and go on with their own after their connection was lost."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cordisd import mock as model
from cordisd_sdk import AsyncAttachment, AsyncClient, Client, RpcError, RunResult
from measure import PATIENCE_S, comes, comes_meanwhile
from served import Served, obey

WORKER = """
import json, sys
from cordisd_sdk import Client

client = Client(**json.loads(sys.argv[1])).start()
for event in client.session("worked").prompt(sys.argv[2], idempotency_key="once"):
    print(json.dumps(event), flush=True)
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with model.MockModelThread(obey) as mock:
        with Served(tmp_path_factory.mktemp("served"), mock.url) as daemon:
            yield daemon


def waits_for(file: Path) -> str:
    """A prompt whose turn goes on until the file is there, and that says when it has begun."""
    return f"$ touch {file}.begun; while [ ! -e {file} ]; do sleep 0.02; done; echo gone on"


async def up_to(attachment: AsyncAttachment, kind: str) -> list[dict[str, Any]]:
    """The events up to one of that type."""
    found = []
    async with asyncio.timeout(PATIENCE_S):
        async for event in attachment:
            found.append(event)
            if event["type"] == kind:
                return found
    raise AssertionError(found)


def numbers(events: list[Any]) -> list[int]:
    return [event["seq"] for event in events]


def test_a_monitor_hears_what_was_and_what_comes_once_and_in_order_and_cannot_act(
    served: Served, tmp_path: Path
) -> None:
    async def main() -> None:
        async with AsyncClient(**served.options()) as owner, AsyncClient(**served.options("tcp")) as monitor:
            session = owner.session("watched")
            before = await session.run("hello")
            assert before.events[-1]["type"] == "turn/end"
            last = before.events[-1]["seq"]
            running = asyncio.create_task(session.run(waits_for(tmp_path / "go")))
            assert await comes_meanwhile((tmp_path / "go.begun").exists)
            async with await monitor.attach("watched", from_seq=0) as all_of_it:
                assert numbers(await up_to(all_of_it, "turn/end")) == list(range(last + 1))
                assert all_of_it.last_seq > last
                with pytest.raises(RpcError, match="owned by another connection") as caught:
                    await monitor.session("watched").run("mine?")
                assert caught.value.code == -32003
                (tmp_path / "go").touch()
                rest = await up_to(all_of_it, "turn/end")
                result = await running
                assert rest == result.events
                late = await monitor.attach("watched", from_seq=result.events[1]["seq"])
                assert await up_to(late, "turn/end") == result.events[1:]
                future = await owner.attach("watched", from_seq=None)
                third = await session.run("and more")
                assert await up_to(future, "turn/end") == third.events
                assert await up_to(all_of_it, "turn/end") == third.events
            assert [event async for event in all_of_it] == []

    asyncio.run(main())


def test_what_cannot_be_attached_to_is_refused_and_leaves_nothing(served: Served) -> None:
    with Client(**served.options()) as client:
        with pytest.raises(RpcError) as caught:
            client.attach("nobody")
        assert caught.value.code == -32002
        client.session("short").create()
        with pytest.raises(RpcError, match="from must be at most 0") as caught:
            client.attach("short", from_seq=1)
        assert caught.value.code == -32602
        assert client.session("short").run("hello").final_response == "answer to hello"


def test_after_detach_nothing_is_sent_any_more_until_the_client_prompts_again(served: Served) -> None:
    async def main() -> None:
        async with AsyncClient(**served.options()) as owner, AsyncClient(**served.options()) as monitor:
            session = owner.session("left")
            await session.run("one")
            attachment = await monitor.attach("left")
            await up_to(attachment, "turn/end")
            await attachment.detach()
            own = await session.attach()
            await own.detach()
            heard: list[bytes] = []
            receive = monitor.connection.receive
            monitor.connection.receive = lambda piece: (heard.append(piece), receive(piece))[1]  # type: ignore
            result = await session.run("two")
            assert (result.final_response, result.turn) == ("answer to two", 2)
            await monitor.ping()
            assert b"".join(heard).count(b"\n") == 1

    asyncio.run(main())


def test_a_session_that_is_heard_again_repeats_nothing_to_the_prompts_that_run(
    served: Served, tmp_path: Path
) -> None:
    async def main() -> tuple[list[RunResult], list[list[Any]]]:
        async with AsyncClient(**served.options()) as client:
            session = client.session("again")
            first = await session.run("hello")
            running = await session.prompt(waits_for(tmp_path / "go"))
            queued = await session.prompt("behind it")
            assert await comes_meanwhile((tmp_path / "go.begun").exists)
            attachments = [await session.attach(number) for number in (0, 5, 0)]
            (tmp_path / "go").touch()
            results = [first, await running.result(), await queued.result()]
            heard = [
                [event for _ in range(3 - (number == 1)) for event in await up_to(one, "turn/end")]
                for number, one in enumerate(attachments)
            ]
            return results, heard

    results, (whole, part, same) = asyncio.run(main())
    assert [result.final_response for result in results] == ["answer to hello", "done", "answer to behind it"]
    assert numbers(whole) == list(range(len(whole)))
    for result in results:
        assert numbers(result.events) == sorted(set(numbers(result.events)))
        assert all(event in whole for event in result.events)
    assert same == whole
    assert part == whole[5 : 5 + len(part)]


def test_what_one_listener_asks_for_skips_nothing_that_another_one_still_waits_for() -> None:
    async def main() -> list[Any]:
        asked = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            async for line in reader:
                request = json.loads(line)
                asked.append(request["params"].get("from"))
                result = {"lastSeq": 9, "capabilities": {"notifications": ["session.completed"]}}
                writer.write(json.dumps({"id": request["id"], "result": result}).encode() + b"\n")
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            host, port = server.sockets[0].getsockname()
            async with AsyncClient(url=f"tcp://{host}:{port}") as client:
                for from_seq in (7, 9, 3, None, 5):
                    await client.attach("s", from_seq)
        return asked[1:6]

    assert asyncio.run(main()) == [7, 7, 3, None, 3]


def test_a_worker_that_was_killed_is_followed_by_one_that_misses_nothing_and_owns_its_session(
    served: Served, tmp_path: Path
) -> None:
    told = json.dumps(served.options(cwd=str(served.cwd)))
    prompt = waits_for(tmp_path / "go")
    seen = []
    with subprocess.Popen([sys.executable, "-c", WORKER, told, prompt], stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        for line in worker.stdout:
            seen.append(json.loads(line))
            if seen[-1]["type"] == "tool/call":
                break
        worker.send_signal(signal.SIGKILL)
    with Client(**served.options()) as client:
        with client.attach("worked", from_seq=seen[-1]["seq"] + 1) as attachment:
            (tmp_path / "go").touch()
            for event in attachment:
                seen.append(event)
                if event["type"] == "turn/end":
                    break
            assert numbers(seen) == list(range(len(seen)))
            assert seen[-1]["data"]["stopReason"] == "completed"
            # The same prompt with the same key is the one that has run, with all that it was.
            again = client.session("worked").run(prompt, idempotency_key="once")
            assert (again.events, again.final_response, again.turn) == (seen, "done", 1)
            assert again.stop_reason == "completed" and again.usage["outputTokens"] > 0
            after = client.session("worked").run("go on")
            assert (after.turn, after.final_response) == (2, "answer to go on")
            assert [next(iter(attachment)) for _ in after.events] == after.events


def test_a_prompt_of_an_earlier_connection_that_still_runs_is_waited_for(
    served: Served, tmp_path: Path
) -> None:
    prompt = waits_for(tmp_path / "go")
    with Client(**served.options()) as first:
        first.session("kept").run("before")
        sent = first.session("kept").prompt(prompt, idempotency_key="k")
        first.session("kept").prompt("queued", idempotency_key="q")
        assert comes((tmp_path / "go.begun").exists)
    with Client(**served.options()) as second:
        session = second.session("kept")
        queued = session.prompt("queued", idempotency_key="q")
        handle = session.prompt(prompt, idempotency_key="k")
        assert handle.message_id == sent.message_id
        (tmp_path / "go").touch()
        for result, turn, answer in (
            (handle.result(), 2, "done"),
            (queued.result(), 3, "answer to queued"),
        ):
            assert (result.turn, result.final_response, result.stop_reason) == (turn, answer, "completed")
            assert [e["data"]["turn"] for e in result.events if e["type"] == "turn/end"] == [turn]
            assert result.events[0]["data"]["inserted"][0]["id"] == result.message_id
            assert numbers(result.events) == sorted(set(numbers(result.events)))


def test_closing_a_session_ends_its_attachments_whoever_closes_it(served: Served) -> None:
    with Client(**served.options()) as client, Client(**served.options()) as monitor:
        session = client.session("over")
        result = session.run("hello")
        attachments = session.attach(), monitor.attach("over")
        session.close()
        for attachment in attachments:
            assert list(attachment)[: len(result.events)] == result.events

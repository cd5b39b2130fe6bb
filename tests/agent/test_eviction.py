"""A session that gives up its past gets the same one back from its log."""

from __future__ import annotations

import asyncio
import copy
import threading
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cordisd.agent.live import Live
from cordisd.errors import LogCorruptError, LogError
from cordisd.mock import Answer, call, error, text
from cordisd.mock.server import Reply
from cordisd.session.restore import read_past
from hosts import host_here, idle, open_session, until


def echo(words: str) -> Answer:
    return call("c", "echo", {"text": words})


REPLIES: dict[str, Reply] = {
    "text": text("fine"),
    "odd text": text("\ud800 ü\u2028"),
    "call": echo("said"),
    "failing call": echo(""),
    "calls": replace(echo("a"), calls=[*echo("a").calls, *echo("").calls]),
    "broken call": call("b", "echo", '{"text": '),
    "no tokens": replace(echo("x"), usage=None),
    "retried": replace(text(), text=()),
    "failed": error(400, "no"),
    "cut": text("cut", finish="length"),
    "cut call": replace(echo("cut"), finish="length"),
}
IMAGE = [{"type": "image", "mediaType": "image/png", "data": "AAAA"}]


def blocks(words: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": words}]


steps = st.one_of(
    st.tuples(st.just("prompt"), st.sampled_from([None, "k1", "k2"])),
    st.tuples(st.sampled_from(["steer", "move", "image", "cancel", "cancel, keep", "wait"]), st.none()),
)


async def play(live: Live, script: list[tuple[str, str | None]]) -> None:
    """Do what the script says to a session, some of it while turns run."""
    for number, (what, key) in enumerate(script):
        match what:
            case "prompt":
                live.runner.prompt(blocks(f"prompt {number}"), key, {"maxTurns": 3} if number % 2 else None)
            case "image":
                live.runner.prompt(IMAGE)
            case "steer":
                live.runner.steer({**MESSAGE, "id": str(number)})
            case "move":
                live.move(f"/tmp/{number}")
            case "wait":
                await idle(live)
            case _:
                live.runner.cancel(keep_queue=what == "cancel, keep")
        await asyncio.sleep(0)
    await idle(live)


MESSAGE = {"content": blocks("steered"), "source": {"kind": "user"}, "role": "user"}


def past(live: Live) -> tuple[Any, dict[str, Any]]:
    """All that a session remembers, comparable."""
    history = {name: value for name, value in vars(live.session.history).items() if name != "_encode"}
    return copy.deepcopy((live.session.memory, history))


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(steps, max_size=12), st.lists(st.sampled_from(sorted(REPLIES)), max_size=12))
def test_the_log_gives_back_all_that_a_session_remembers(
    script: list[tuple[str, str | None]], replies: list[str]
) -> None:
    planned = iter(replies)

    async def scenario(folder: Path) -> None:
        async with host_here(folder, lambda _: REPLIES[next(planned, "text")]) as host:
            live = await open_session(host, folder)
            live.runner.limits |= {"maxTurns": 4, "noticeTurns": 2}
            await play(live, script)
            before = past(live)
            session = live.session
            session.log.flush()
            if session.log.next_seq == 0:
                return
            assert session.log.path is not None
            encode = session.adapter.encode_message
            memory, _ = read_past(session.log.path, "s", session.log.next_seq, encode)
            assert memory == before[0], "the log alone tells it"
            session.evict()
            assert session.history.messages() == []
            assert session.memory.spent == before[0].spent
            await live.eviction.recall()
            assert past(live) == before
            live.runner.prompt(blocks("and on"))
            await idle(live)

    with TemporaryDirectory() as folder:
        asyncio.run(scenario(Path(folder)))


def test_a_session_without_a_turn_for_so_long_gives_up_its_past_and_one_that_works_does_not(
    tmp_path: Path,
) -> None:
    waiting = asyncio.Event()

    async def script(request: Any) -> Reply:
        if request.json["messages"][-1]["content"] == "wait":
            await waiting.wait()
        return text("ok")

    async def scenario() -> None:
        async with host_here(tmp_path, script, {"evictAfterSeconds": 0.05}) as host:
            live, blank = await open_session(host, tmp_path), await open_session(host, tmp_path, "blank")
            live.runner.prompt(blocks("wait"))
            await asyncio.sleep(0.2)
            assert not live.session.is_evicted, "it works"
            waiting.set()
            await until(lambda: live.session.is_evicted)
            assert live.session.status == "idle"
            assert not blank.session.is_evicted, "there is no log to come back from"
            await live.eviction.recall()
            assert not live.session.is_evicted
            await until(lambda: live.session.is_evicted)

    asyncio.run(scenario())


def test_without_a_log_or_unasked_nothing_is_given_up(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with host_here(tmp_path, lambda _: text("ok")) as host:
            live = await open_session(host, tmp_path)
            live.runner.prompt(blocks("go"))
            await idle(live)
            assert live.eviction.after_s is None
            live.eviction.wait()
            assert live.eviction._timer is None

    asyncio.run(scenario())


def test_what_comes_while_the_past_is_gone_waits_in_the_inbox_as_ever(tmp_path: Path) -> None:
    """A steer, a move and a cancel need no past; what they did is part of it when it comes back."""

    async def scenario() -> None:
        async with host_here(tmp_path, lambda _: text("ok")) as host:
            live = await open_session(host, tmp_path)
            live.runner.prompt(blocks("one"))
            await idle(live)
            live.session.evict()
            live.runner.steer({**MESSAGE, "id": "dropped"})
            assert live.runner.cancel(keep_queue=False).dropped == ["dropped"]
            live.runner.steer({**MESSAGE, "id": "kept"})
            live.move("/tmp")
            assert live.session.is_evicted
            recalling = asyncio.create_task(live.eviction.recall())
            await asyncio.sleep(0)
            live.runner.steer({**MESSAGE, "id": "late"})
            await recalling
            assert [one["id"] for one in live.session.memory.inbox["next-step"]][::2] == ["kept", "late"]
            before = past(live)
            live.session.evict()
            await live.eviction.recall()
            assert past(live) == before
            live.runner.prompt(blocks("two"))
            await idle(live)
            told = [one for one in live.session.history.messages() if b"steered" in one]
            assert len(told) == 2

    asyncio.run(scenario())


def test_the_log_is_read_back_beside_the_event_loop(tmp_path: Path) -> None:
    threads: set[int] = set()

    async def scenario() -> None:
        async with host_here(tmp_path, lambda _: text("ok")) as host:
            live = await open_session(host, tmp_path)
            live.runner.prompt(blocks("one"))
            await idle(live)
            live.session.evict()
            encode = live.session.adapter.encode_message

            def noted(message: dict[str, Any]) -> bytes | None:
                threads.add(threading.get_ident())
                return encode(message)

            live.session.adapter.encode_message = noted  # type: ignore[method-assign]
            await live.eviction.recall()
            assert len(live.session.history.messages()) == 2

    asyncio.run(scenario())
    assert len(threads) == 1
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("damage", ["cut", "garbled", "gone", "another", "emptied", "malformed"])
def test_a_past_that_cannot_be_read_back_is_an_error_and_nothing_is_lost(damage: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with host_here(tmp_path, lambda _: echo("x") if not replies else replies.pop()) as host:
            live = await open_session(host, tmp_path)
            replies.extend([text("done"), echo("y")])
            live.runner.prompt(blocks("one"))
            await idle(live)
            before, path = past(live), live.session.log.path
            assert path is not None
            live.session.evict()
            log = path.read_bytes()
            n_events = live.session.log.next_seq
            match damage:
                case "cut":
                    path.write_bytes(log[:-30])
                case "garbled":
                    path.write_bytes(log.replace(b'"assistant/message"', b'"assistant/message', 1))
                case "gone":
                    path.rename(path.with_name("elsewhere"))
                case "another":
                    path.write_bytes(log.replace(b'"id":"s"', b'"id":"t"', 1))
                case "emptied":
                    path.write_bytes(b"")
                case "malformed":
                    path.write_bytes(log.replace(b'"content"', b'"contend"'))
            with pytest.raises(LogError if damage == "gone" else LogCorruptError, match=str(path)):
                await live.eviction.recall()
            assert live.session.is_evicted
            assert live.session.log.next_seq == n_events
            path.write_bytes(log)
            await live.eviction.recall()
            assert past(live) == before

    replies: list[Reply] = []
    asyncio.run(scenario())

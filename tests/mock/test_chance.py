"""Faults at random: the same again for the same seed, told in the log, and nothing is lost by them."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from chat_requests import adapter_for, chunks_of, text_of
from cordisd.mock import Answer, MockModel, MockModelThread, error, text
from mock_requests import STREAMED, exchange, post, split, with_faults

FAULTS = {"crlf": 0.5, "server-error": 0.3, "split-random": 0.5, "cut-fin": 0.2}


def asked(user: str, n_steps: int = 0) -> dict[str, Any]:
    steps = [{"role": "assistant", "content": f"step {n}"} for n in range(n_steps)]
    return {**STREAMED, "messages": [{"role": "user", "content": user}, *steps]}


def logged(users: list[str], seed: int | None, n_threads: int = 1) -> tuple[int, dict[str, list[Any]]]:
    """The seed, and the faults that 20 requests of each conversation met."""
    log: list[dict[str, Any]] = []

    def converse(user: str) -> None:
        for step in range(20):
            exchange(mock.url, post(asked(user, step)))

    with MockModelThread(lambda _: text("ok"), seed=seed, faults=FAULTS, log=log.append) as mock:
        with ThreadPoolExecutor(n_threads) as threads:
            list(threads.map(converse, users))
    return mock.seed, {
        user: [line["faults"] for line in log if line["body"]["messages"][0]["content"] == user]
        for user in users
    }


def test_a_seed_gives_the_same_faults_in_whatever_order_conversations_run() -> None:
    users = ["a", "b", "c"]
    seed, first = logged(users, 7)
    assert (seed, first) == logged([*reversed(users)], 7)
    assert (seed, first) == logged(users, 7, n_threads=3)
    assert first != logged(users, 8)[1]
    assert first["a"] != first["b"]


def test_without_a_seed_one_is_drawn_and_told() -> None:
    seed, first = logged(["a"], None)
    assert logged(["a"], seed) == (seed, first)


def test_faults_strike_about_as_often_as_asked_and_all_are_told() -> None:
    _, found = logged([str(n) for n in range(10)], 1)
    told = [faults for conversation in found.values() for faults in conversation]
    refused = sum("server-error" in faults for faults in told)
    assert len(told) == 200 and 35 < refused < 85
    cut = [faults for faults in told if "cut-fin" in faults]
    assert cut and all(faults["cut-fin"] == 0.5 for faults in cut)


def test_a_fault_that_made_no_difference_is_not_told() -> None:
    log: list[dict[str, Any]] = []
    spoilt = with_faults(text("ok"), "call-id-missing", "crlf", pace=0)
    with MockModelThread(
        [spoilt, error(400), error(400)], faults={"server-error": 1, "crlf": 1}, log=log.append
    ):
        pass
    with MockModelThread([spoilt, error(400)], log=log.append) as mock:
        exchange(mock.url, post(asked("a")))
        exchange(mock.url, post(asked("a")))
    assert [line["faults"] for line in log] == [{"crlf": None, "pace": 0}, {}]


def test_the_same_request_gets_its_reply_once_it_is_not_struck() -> None:
    async def scenario() -> tuple[list[str], int]:
        replies = [text(f"answer {n}") for n in range(8)]
        faults = {"server-error": 0.25, "cut-rst": 0.25, "broken-json": 0.25, "error-in-stream": 0.25}
        async with MockModel(replies, seed=3, faults=faults) as mock:
            adapter = adapter_for(mock.url)
            told = []
            while len(told) < len(replies):
                chunks = await chunks_of(adapter)
                if chunks[-1]["reason"]["kind"] == "stop":
                    told.append(text_of(chunks))
            await adapter.close()
            return told, len(mock.requests)

    told, n_requests = asyncio.run(scenario())
    assert told == [f"answer {n}" for n in range(8)]
    assert n_requests > 8


def test_a_scripted_failure_takes_its_reply_along() -> None:
    with MockModelThread([with_faults(text("a"), "server-error"), text("b")]) as mock:
        answers = [split(exchange(mock.url, post(asked("x")))) for _ in range(2)]
    assert [status for status, _, _ in answers] == [500, 200]
    assert b'"content": "b"' in answers[1][2]


def test_a_scripted_fault_keeps_its_parameter_when_chance_strikes_too() -> None:
    log: list[dict[str, Any]] = []
    answer = with_faults(text("a"), cut_fin=0.1)
    with MockModelThread([answer, text("b")], faults={"cut-fin": 1}, log=log.append) as mock:
        exchange(mock.url, post(asked("x")))
        exchange(mock.url, post(asked("x")))
    assert [line["faults"] for line in log] == [{"cut-fin": 0.1}, {"cut-fin": 0.5}]
    assert json.loads(json.dumps(log)) == log


def test_random_places_are_the_same_for_the_same_seed() -> None:
    def body(seed: int) -> bytes:
        answer: Answer = with_faults(text("x" * 200), "split-random", "broken-json")
        with MockModelThread([answer], seed=seed) as mock:
            return exchange(mock.url, post(asked("x")))

    assert body(1) == body(1) != body(2)

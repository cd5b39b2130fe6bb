"""Every fault, as our own chat adapter takes it: what the session sees of it."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from chat_requests import adapter_for, ask, chunks_of, failure, text_of
from cordisd.mock import FAULTS, Answer, Call, MockModel, text
from mock_requests import with_faults

WORDS = text("Hé", "llo 😀")
CALLS = Answer(
    reasoning=["so"],
    calls=[
        Call("bash", ['{"command"', ': "ls"}'], "c1"),
        Call("bash", ['{"command": "pwd"}'], "c2"),
    ],
)

FAILURES = {
    "rate-limit": ("RATE_LIMIT", 429),
    "rate-limit-seconds": ("RATE_LIMIT", 429),
    "rate-limit-date": ("RATE_LIMIT", 429),
    "server-error": ("SERVER", 500),
    "html-error": ("SERVER", 502),
    "error-in-stream": ("SERVER", 500),
    "empty": ("EMPTY_RESPONSE", None),
    "content-filter": ("CONTENT_FILTER", None),
    "broken-json": ("MALFORMED_RESPONSE", None),
    "cut-fin": ("STREAM_CLOSED", None),
    "cut-rst": ("STREAM_CLOSED", None),
    "silence": ("TIMEOUT", None),
    "bad-chunk": ("TRANSPORT", None),
}

SEEN = {
    "reasoning-only",
    "reasoning-name",
    "refusal",
    "truncated",
    "broken-arguments",
    "call-id-missing",
    "call-id-empty",
    "call-id-duplicate",
    "wrong-finish",
    "no-finish",
    "no-usage",
    "no-done",
}
"""What is an answer still, and has a test of its own below."""

UNSEEN = sorted(FAULTS.keys() - FAILURES.keys() - SEEN)
"""What a client must not notice."""


def blocks_of(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [chunk["block"] for chunk in chunks if chunk["type"] == "block-end"]


def outcome(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Blocks, usage and finish: all but the pieces in which the blocks came."""
    return [chunk for chunk in chunks if not chunk["type"].endswith(("-start", "-delta"))]


def taken(answer: Answer, *names: str, **parameters: Any) -> list[dict[str, Any]]:
    return ask(with_faults(answer, *names, **parameters))[0]


def calls_of(*names: str, **parameters: Any) -> list[tuple[str, str, object]]:
    """Id, raw arguments and the id that was sent, of each call."""
    blocks = [one for one in blocks_of(taken(CALLS, *names, **parameters)) if one["type"] == "tool-call"]
    return [(one["id"], one["arguments"], one.get("originalId", one["id"])) for one in blocks]


def test_what_a_client_must_not_notice_changes_nothing() -> None:
    async def scenario() -> None:
        answers = [with_faults(answer, name) for name in UNSEEN for answer in (WORDS, CALLS)]
        assert len(UNSEEN) > 20
        async with MockModel([WORDS, CALLS, *answers]) as mock:
            adapter = adapter_for(mock.url)
            plain = [outcome(await chunks_of(adapter)) for _ in range(2)]
            for name in UNSEEN:
                assert [outcome(await chunks_of(adapter)) for _ in range(2)] == plain, name
            await adapter.close()

    asyncio.run(scenario())


def test_no_mixture_of_those_changes_anything_either() -> None:
    random = Random(1)
    names = [name for name in UNSEEN if name not in ("pace", "latency", "calls-interleaved")]
    mixed = [with_faults(CALLS, *random.sample(names, random.randint(2, len(names)))) for _ in range(40)]

    async def scenario() -> None:
        async with MockModel([CALLS, *mixed], seed=1) as mock:
            adapter = adapter_for(mock.url)
            plain = blocks_of(await chunks_of(adapter))
            for answer in mixed:
                assert blocks_of(await chunks_of(adapter)) == plain, answer.faults
            await adapter.close()

    asyncio.run(scenario())


def test_any_mixture_of_all_faults_ends_in_an_answer_or_a_failure() -> None:
    random = Random(2)
    # aiohttp may wait for ever after a wrong chunk size that does not come with the head.
    names = [name for name in FAULTS if name not in ("pace", "latency", "silence", "bad-chunk")]
    later = [name for name in names if FAULTS[name].stage != "refusal"]
    mixed = [
        with_faults(random.choice((WORDS, CALLS)), *random.sample(chosen, random.randint(2, 12)))
        for chosen in (names, later, later)
        for _ in range(25)
    ]

    async def scenario() -> set[str]:
        async with MockModel(mixed, seed=2) as mock:
            adapter = adapter_for(mock.url, idle_timeout_s=20)
            ends = [await chunks_of(adapter) for _ in mixed]
            await adapter.close()
        assert len(mock.requests) == len(mixed)
        return {chunks[-1]["reason"]["kind"] for chunks in ends if chunks[-1]["type"] == "finish"}

    assert asyncio.run(scenario()) == {"error", "stop", "tool-calls", "max-tokens"}


@pytest.mark.parametrize("name", FAILURES)
def test_what_fails_is_a_failure_of_its_own_kind(name: str) -> None:
    told = failure(ask(with_faults(WORDS, name), idle_timeout_s=0.3 if name == "silence" else 60)[0])
    assert (told["code"], told.get("status")) == FAILURES[name]


def test_the_delay_that_a_server_asks_for_is_told() -> None:
    assert failure(taken(WORDS, rate_limit_seconds=2.5))["providerRetryAfterMs"] == 2500
    assert 50_000 < failure(taken(WORDS, rate_limit_date=100))["providerRetryAfterMs"] <= 100_000
    assert "providerRetryAfterMs" not in failure(taken(WORDS, "rate-limit"))


def test_text_that_came_before_a_failure_is_kept() -> None:
    for name in ("cut-fin", "error-in-stream"):
        assert text_of(taken(WORDS, name)).startswith("Hé")


def test_ids_are_made_up_and_the_original_kept() -> None:
    first, second = '{"command": "ls"}', '{"command": "pwd"}'
    assert calls_of("call-id-missing") == [("call00002", first, None), ("call00003", second, None)]
    assert calls_of("call-id-empty") == [("call00002", first, ""), ("call00003", second, "")]
    assert calls_of("call-id-duplicate") == [("c1", first, "c1"), ("call00002", second, "c1")]


def test_arguments_stay_as_the_model_wrote_them() -> None:
    assert calls_of(broken_arguments="newline")[1][1] == '{"command": "\npwd"}'
    assert calls_of(broken_arguments="empty")[1][1] == ""
    assert calls_of("truncated")[1][1] == '{"command'
    assert taken(CALLS, "truncated")[-1]["reason"] == {"kind": "max-tokens"}


def test_thoughts_and_refusals_are_blocks_of_their_own_kind() -> None:
    assert blocks_of(taken(WORDS, "reasoning-only")) == [{"type": "reasoning", "text": "Héllo 😀"}]
    assert blocks_of(taken(CALLS, "reasoning-name"))[0] == {
        "type": "reasoning",
        "text": "so",
        "field": "reasoning",
    }
    assert blocks_of(taken(WORDS, "refusal")) == [{"type": "text", "text": "Héllo 😀", "refusal": True}]


def test_a_missing_or_wrong_end_is_told() -> None:
    assert taken(WORDS, "no-finish")[-1] == {
        "type": "finish",
        "reason": {"kind": "stop"},
        "finishReason": None,
    }
    assert taken(WORDS, "no-done")[-1] == {"type": "finish", "reason": {"kind": "stop"}, "done": False}
    assert taken(CALLS, "wrong-finish")[-1]["reason"] == {"kind": "stop"}
    assert [chunk for chunk in taken(WORDS, "no-usage") if chunk["type"] == "usage"] == []

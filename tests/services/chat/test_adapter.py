"""The adapter against a real server on loopback: requests as composed, answers and refusals as told."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any, cast

import pytest

from chat_requests import KEY, PING, Chunk, adapter_for, ask, chunks_of, failure, request, text_of
from cordisd import mock as mc
from cordisd.entries.openai import OpenAIConfig
from cordisd.errors import InvalidParamsError
from cordisd.mock import DONE, Cut, Hang, MockModel, Pause, RawReply, delta, event
from cordisd.services.chat.adapter import CatalogModel, ChatAdapter, ChatSettings
from cordisd.services.models import ModelInfo
from measure import PATIENCE_S, least_cpu_s


def test_a_request_has_exactly_these_headers_and_this_body() -> None:
    _, mock = ask(
        mc.text("hi"),
        headers={"X-Title": "t", "User-Agent": "mine"},
        parameters=lambda config: ({}, {"seed": 1}),
    )
    (sent,) = mock.requests
    assert (sent.method, sent.path) == ("POST", "/chat/completions")
    named = {name.lower(): value for name, value in sent.headers}
    assert named == {
        "host": mock.url.removeprefix("http://"),
        "authorization": f"Bearer {KEY}",
        "content-type": "application/json",
        "accept": "text/event-stream",
        "user-agent": "mine",
        "x-title": "t",
        "content-length": str(len(sent.body)),
    }
    assert len(named) == len(sent.headers)
    assert sent.body == (
        b'{"model":"m","messages":[{"role":"user","content":"ping"}],"stream":true,'
        b'"stream_options":{"include_usage":true},"seed":1}'
    )


def test_chunks_arrive_while_the_answer_is_still_running() -> None:
    async def scenario() -> None:
        more = asyncio.Event()
        async with MockModel([RawReply([delta({"content": "a"}), Hang()])]) as mock:
            adapter = adapter_for(mock.url)
            batches = cast(Any, adapter.stream(request()))
            first = await anext(batches)
            assert text_of(first) == "a"
            assert not more.is_set()
            await batches.aclose()
            await adapter.close()

    asyncio.run(asyncio.wait_for(scenario(), PATIENCE_S))


def test_a_body_of_many_megabytes_goes_out_whole_and_without_a_warning() -> None:
    big = json.dumps({"role": "user", "content": "x" * 5_000_000}).encode()

    async def scenario() -> None:
        async with MockModel([mc.text("ok")]) as mock:
            adapter = adapter_for(mock.url)
            assert text_of(await chunks_of(adapter, request(big))) == "ok"
            await adapter.close()
        assert len(mock.requests[0].json["messages"][0]["content"]) == 5_000_000

    asyncio.run(scenario())


def test_a_rate_limit_tells_how_long_to_wait() -> None:
    chunks, _ = ask(mc.error(429, "slow down", retry_after="1", x_request_id="r1"))
    assert chunks == [
        {
            "type": "finish",
            "reason": {
                "kind": "error",
                "failure": {
                    "message": "slow down",
                    "code": "RATE_LIMIT",
                    "status": 429,
                    "providerRetryAfterMs": 1000,
                    "requestId": "r1",
                },
            },
        }
    ]


def test_an_error_body_that_is_cut_still_tells_the_status() -> None:
    reply = RawReply([b'{"error":{"mess', Cut()], 503, {"Content-Type": "application/json"})
    assert failure(ask(reply)[0]) == {"message": '{"error":{"mess', "code": "SERVER", "status": 503}


def test_a_key_quoted_by_the_provider_is_not_repeated() -> None:
    for reply in (
        mc.error(401, f"Incorrect API key provided: {KEY}"),
        RawReply([event({"error": f"bad key {KEY}"})]),
    ):
        chunks, _ = ask(reply)
        assert KEY not in json.dumps(chunks)
        assert "[redacted]" in failure(chunks)["message"]


def test_a_refusal_for_want_of_a_key_says_that_none_was_sent() -> None:
    chunks, _ = ask(mc.error(401, "who are you"), key=None)
    assert failure(chunks)["message"].startswith("who are you (")
    assert "none was sent" in failure(chunks)["message"]


def test_a_json_answer_is_accepted_where_a_stream_was_asked_for() -> None:
    body = {"choices": [{"message": {"content": "whole"}, "finish_reason": "stop"}]}
    assert text_of(ask(mc.json_body(body))[0]) == "whole"


def test_an_id_that_the_session_has_used_is_replaced() -> None:
    async def scenario() -> list[Chunk]:
        async with MockModel([mc.call("c1", "bash", {"a": 1})]) as mock:
            adapter = adapter_for(mock.url)
            chunks = await chunks_of(adapter, request(PING, PING)._replace(call_ids={"c1"}))
            await adapter.close()
            return chunks

    (block,) = (chunk["block"] for chunk in asyncio.run(scenario()) if chunk["type"] == "block-end")
    assert block["originalId"] == "c1"
    assert block["id"] == "call00003"


def test_max_in_flight_makes_requests_wait_their_turn() -> None:
    async def scenario() -> float:
        slow = RawReply([Pause(0.1), delta({"content": "x"}, "stop"), DONE])
        async with MockModel([slow] * 4) as mock:
            adapter = adapter_for(mock.url, max_in_flight=2)
            start = time.monotonic()
            answers = await asyncio.gather(*(chunks_of(adapter) for _ in range(4)))
            await adapter.close()
            assert [text_of(chunks) for chunks in answers] == ["x"] * 4
            return time.monotonic() - start

    assert asyncio.run(scenario()) >= 0.2


def test_a_place_is_given_back_when_its_reader_is_cancelled() -> None:
    async def scenario() -> str:
        async with MockModel([RawReply([Hang()]), mc.text("next")]) as mock:
            adapter = adapter_for(mock.url, max_in_flight=1)
            task = asyncio.create_task(chunks_of(adapter))
            while not mock.requests:
                await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            chunks = await chunks_of(adapter)
            await adapter.close()
            return text_of(chunks)

    assert asyncio.run(asyncio.wait_for(scenario(), PATIENCE_S)) == "next"


def test_a_missing_key_fails_the_request_and_asks_nobody() -> None:
    config = OpenAIConfig.model_validate({"baseUrl": "http://127.0.0.1:1", "apiKeyEnv": "MY_KEY"})
    environ: dict[str, str] = {}
    adapter = ChatAdapter(ChatSettings("p", config.find_endpoint, lambda c: ({}, {})), environ)
    chunks = asyncio.run(chunks_of(adapter))
    assert failure(chunks)["code"] == "MISSING_CREDENTIAL"
    assert "MY_KEY is not set" in failure(chunks)["message"]
    environ["MY_KEY"] = "clé"
    assert failure(asyncio.run(chunks_of(adapter)))["code"] == "INVALID_CREDENTIAL"


def test_efforts_are_checked_against_the_catalog_and_others_pass() -> None:
    adapter = adapter_for("http://x", models={"m": CatalogModel(ModelInfo(max_tokens=7), ("low", "high"))})
    adapter.check_effort("m", "high")
    adapter.check_effort("other", "anything")
    with pytest.raises(InvalidParamsError, match=r'one of low, high \(did you mean "high"\?\)'):
        adapter.check_effort("m", "hihg")
    with pytest.raises(InvalidParamsError):
        adapter.check_effort("other", " ")
    assert adapter.describe("m") == ModelInfo(max_tokens=7)
    assert adapter.describe("other") == ModelInfo()


def test_parsing_and_assembling_a_chunk_costs_microseconds() -> None:
    from cordisd.services.chat.completion import CompletionStream

    chunk = delta({"content": " tok"})

    def parse() -> None:
        stream = CompletionStream(lambda id: False, 1)
        for _ in range(1_000):
            stream.feed(chunk * 10)

    assert least_cpu_s(parse, 40e-6 * 10_000) <= 40e-6 * 10_000  # 4 µs each on an idle machine

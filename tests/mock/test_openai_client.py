"""The official OpenAI client against the mock model, for all that a server may rightly do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest
from openai import OpenAI

from cordisd.mock import FAULTS, Answer, MockModel, MockModelThread, Reply, Token, call, error, text
from mock_requests import TWO_CALLS, with_faults

ASKED: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
STREAMED: dict[str, Any] = {**ASKED, "stream": True, "stream_options": {"include_usage": True}}
WORDS = Answer(reasoning=["so"], text=["Hé", "llo 😀"])
LEGAL = (
    "comments no-space crlf multi-line byte-order-mark null-content calls-interleaved call-id-repeated "
    "split-bytes split-random split-characters split-lines usage-everywhere usage-with-finish no-usage "
    "truncated content-filter refusal latency"
)


@contextmanager
def client_of(*replies: Reply, max_retries: int = 0, key: str = "k") -> Iterator[tuple[OpenAI, MockModel]]:
    with MockModelThread(replies, api_key="k", models=("one", "two")) as mock:
        with OpenAI(base_url=f"{mock.url}/v1", api_key=key, max_retries=max_retries) as client:
            yield client, mock


def whole(client: OpenAI, **options: Any) -> Any:
    return client.chat.completions.create(**ASKED, **options)


def gathered(client: OpenAI, **options: Any) -> dict[str, Any]:
    """All that a stream said."""
    said: dict[str, Any] = {"text": "", "refusal": "", "reasoning": "", "calls": {}}
    said |= {"finish": None, "usage": None}
    for chunk in client.chat.completions.create(**STREAMED, **options):
        said["usage"] = chunk.usage or said["usage"]
        for choice in chunk.choices:
            said["finish"] = choice.finish_reason or said["finish"]
            said["text"] += choice.delta.content or ""
            said["refusal"] += choice.delta.refusal or ""
            said["reasoning"] += getattr(choice.delta, "reasoning_content", "")
            for one in choice.delta.tool_calls or ():
                name, arguments = said["calls"].get(one.index, ("", ""))
                said["calls"][one.index] = (
                    one.function.name or name,
                    arguments + (one.function.arguments or ""),
                )
    return said


def test_text_reasoning_usage_and_calls_are_streamed() -> None:
    with client_of(WORDS, TWO_CALLS) as (client, _):
        said = gathered(client)
        assert (said["text"], said["reasoning"], said["finish"]) == ("Héllo 😀", "so", "stop")
        assert said["usage"].total_tokens == 24
        said = gathered(client)
        assert said["calls"] == {0: ("bash", '{"command": "ls"}'), 1: ("bash", '{"command": "pwd"}')}
        assert said["finish"] == "tool_calls"


def test_the_client_puts_a_stream_together_by_itself() -> None:
    with client_of(TWO_CALLS) as (client, _):
        with client.chat.completions.stream(**ASKED) as stream:
            choice = stream.get_final_completion().choices[0]
    assert [one.id for one in choice.message.tool_calls or ()] == ["c1", "c2"]


def test_one_object_says_the_same() -> None:
    with client_of(WORDS, TWO_CALLS) as (client, _):
        answer = whole(client)
        message = answer.choices[0].message
        assert (message.content, message.reasoning_content) == ("Héllo 😀", "so")
        assert (answer.choices[0].finish_reason, answer.usage.prompt_tokens) == ("stop", 20)
        message = whole(client).choices[0].message
        assert message.content is None
        assert [json.loads(one.function.arguments)["command"] for one in message.tool_calls] == ["ls", "pwd"]


def test_log_probabilities_and_token_ids_arrive() -> None:
    answer = Answer(tokens=[Token("He", 7, -0.5), Token("y", 9, -0.25)], prompt_token_ids=[1])
    options: dict[str, Any] = {"logprobs": True, "top_logprobs": 1, "extra_body": {"return_token_ids": True}}
    with client_of(answer, answer) as (client, _):
        one = whole(client, **options)
        assert [token.logprob for token in one.choices[0].logprobs.content] == [-0.5, -0.25]
        assert one.choices[0].logprobs.content[1].top_logprobs[0].bytes == [121]
        assert (one.choices[0].token_ids, one.prompt_token_ids) == ([7, 9], [1])
        chunks = client.chat.completions.create(**STREAMED, **options)
        choices = [choice for chunk in chunks for choice in chunk.choices]
        assert [ids for choice in choices for ids in choice.token_ids] == [7, 9]
        assert [t.token for c in choices if c.logprobs for t in c.logprobs.content] == ["He", "y"]


@pytest.mark.parametrize("answer", [WORDS, TWO_CALLS])
def test_every_legal_form_says_the_same(answer: Answer) -> None:
    changing = ("truncated", "content-filter", "refusal", "no-usage", "usage-everywhere")
    names = LEGAL.split()
    assert set(names) <= FAULTS.keys()
    with client_of(answer, *(with_faults(answer, name) for name in names)) as (client, _):
        plain = gathered(client)
        for name in names:
            said = gathered(client)
            if name not in changing:
                assert said == plain, name
            elif name == "refusal":
                assert said["refusal"] == plain["text"] or said["refusal"].startswith("I can't")
            elif name == "no-usage":
                assert said["usage"] is None
            elif name != "usage-everywhere":
                assert said["finish"] == {"truncated": "length", "content-filter": "content_filter"}[name]


@pytest.mark.parametrize(
    "failing",
    [
        error(429, "slow", retry_after="0.02"),
        error(500, retry_after_ms="20"),
        with_faults(text(), rate_limit_date=0),
    ],
)
def test_the_client_comes_back_after_the_delay_that_it_is_told(failing: Reply) -> None:
    with client_of(failing, text("ok"), max_retries=1) as (client, mock):
        assert whole(client).choices[0].message.content == "ok"
        assert [sent.header("x-stainless-retry-count") for sent in mock.requests] == ["0", "1"]


def test_errors_are_of_the_class_of_their_status() -> None:
    quota = error(429, "You exceeded your current quota")
    with client_of(error(400, "bad"), quota, error(503), error(502, b"<html>")) as (client, _):
        with pytest.raises(openai.BadRequestError, match="bad"):
            whole(client)
        with pytest.raises(openai.RateLimitError, match="quota"):
            whole(client)
        for _ in range(2):
            with pytest.raises(openai.InternalServerError):
                whole(client)


def test_a_wrong_key_is_refused_and_models_are_listed() -> None:
    with client_of(text("ok"), key="wrong") as (client, _):
        with pytest.raises(openai.AuthenticationError, match="Incorrect API key"):
            whole(client)
    with client_of() as (client, _):
        assert [model.id for model in client.models.list()] == ["one", "two"]
        with pytest.raises(openai.NotFoundError, match="is not served"):
            client.embeddings.create(model="m", input="x")


def test_a_tool_loop_runs_to_its_end() -> None:
    with client_of(call("c1", "ls", {"path": "/"}), text("two files")) as (client, mock):
        made = whole(client).choices[0].message
        messages = [
            *ASKED["messages"],
            made.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": made.tool_calls[0].id, "content": "a b"},
        ]
        answer = client.chat.completions.create(model="m", messages=messages)
        assert answer.choices[0].message.content == "two files"
        assert [*mock.requests[1].texts("tool")] == ["a b"]


@pytest.mark.parametrize(
    ("name", "raised"),
    [
        ("cut-fin", openai.APIConnectionError),
        ("cut-rst", openai.APIConnectionError),
        ("bad-chunk", openai.APIConnectionError),
        ("error-in-stream", openai.APIError),
        ("broken-json", json.JSONDecodeError),
    ],
)
def test_a_stream_that_fails_raises(name: str, raised: type[Exception]) -> None:
    with client_of(with_faults(WORDS, name)) as (client, _):
        with pytest.raises(raised):
            gathered(client)

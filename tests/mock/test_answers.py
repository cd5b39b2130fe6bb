"""Answers on the wire: the same script as a stream and as one JSON object, with what the request asks for."""

from __future__ import annotations

import json
from typing import Any

from cordisd.mock import Answer, Call, Token, text
from mock_requests import MESSAGES, STREAMED, TWO_CALLS, WHOLE, answered, http_chunks, payloads, streamed

ALL = Answer(reasoning=["h", "m"], text=["Hel", "lo"], calls=[Call("ls", ['{"a', '":1}'], "c1")])
TOKENS = Answer(tokens=[Token("He", 7, -0.5), Token("y 😀", 9, -0.25)], prompt_token_ids=[1, 2])


def test_a_stream_has_the_published_form() -> None:
    status, head, body = answered(ALL)
    assert (status, "content-type: text/event-stream" in head.lower()) == (200, True)
    stream = b"".join(http_chunks(body))
    assert stream.endswith(b"data: [DONE]\n\n")
    *chunks, finish, usage = payloads(stream)
    assert all(chunk["object"] == "chat.completion.chunk" and chunk["model"] == "m" for chunk in chunks)
    assert [chunk["choices"][0]["delta"] for chunk in chunks] == [
        {"role": "assistant", "content": ""},
        {"reasoning_content": "h"},
        {"reasoning_content": "m"},
        {"content": "Hel"},
        {"content": "lo"},
        {
            "tool_calls": [
                {"index": 0, "id": "c1", "type": "function", "function": {"name": "ls", "arguments": ""}}
            ]
        },
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"a'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '":1}'}}]},
    ]
    assert (finish["choices"][0]["delta"], finish["choices"][0]["finish_reason"]) == ({}, "tool_calls")
    assert (usage["choices"], usage["usage"]["total_tokens"]) == ([], 24)


def test_without_a_stream_the_same_answer_is_one_object() -> None:
    status, head, body = answered(ALL, WHOLE)
    whole = json.loads(body)
    assert (status, "content-type: application/json" in head.lower()) == (200, True)
    assert (whole["object"], whole["usage"]["prompt_tokens"]) == ("chat.completion", 20)
    assert whole["choices"][0] == {
        "index": 0,
        "finish_reason": "tool_calls",
        "message": {
            "role": "assistant",
            "content": "Hello",
            "refusal": None,
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"a":1}'}}
            ],
        },
    }


def test_content_is_null_beside_calls_alone_and_text_otherwise() -> None:
    def content(answer: Answer) -> object:
        return json.loads(answered(answer, WHOLE)[2])["choices"][0]["message"]["content"]

    assert (content(TWO_CALLS), content(text()), content(text("x"))) == (None, "", "x")


def test_usage_is_streamed_only_where_it_is_asked_for() -> None:
    asked = {key: value for key, value in STREAMED.items() if key != "stream_options"}
    for body in (
        asked,
        {**asked, "stream_options": {"include_usage": False}},
        {**asked, "stream_options": None},
    ):
        chunks = payloads(b"".join(http_chunks(answered(text("x"), body)[2])))
        assert all("usage" not in chunk and chunk["choices"] for chunk in chunks)


def test_the_same_script_gives_the_same_bytes() -> None:
    assert streamed(TOKENS) == streamed(TOKENS)


def test_log_probabilities_and_token_ids_come_where_they_are_asked_for() -> None:
    asked = {"logprobs": True, "top_logprobs": 1, "return_token_ids": True}
    chunks = payloads(b"".join(http_chunks(answered(TOKENS, {**STREAMED, **asked})[2])))
    choices = [chunk["choices"][0] for chunk in chunks[:-1]]
    assert [choice["token_ids"] for choice in choices] == [[], [7], [9], []]
    assert [chunk.get("prompt_token_ids") for chunk in chunks] == [[1, 2], None, None, None, None]
    smile = {"token": "y 😀", "logprob": -0.25, "bytes": [121, 32, 240, 159, 152, 128]}
    assert choices[2]["logprobs"] == {"content": [{**smile, "top_logprobs": [smile]}], "refusal": None}
    assert choices[0]["logprobs"] is None
    assert b"logprobs" not in streamed(TOKENS) and b"token_ids" not in streamed(TOKENS)


def test_in_one_object_the_tokens_of_all_that_was_sampled_stand_together() -> None:
    asked = {"logprobs": True, "return_token_ids": True, "messages": MESSAGES}
    whole: dict[str, Any] = json.loads(answered(TOKENS, asked)[2])
    choice = whole["choices"][0]
    assert choice["token_ids"] == [7, 9] and whole["prompt_token_ids"] == choice["prompt_token_ids"] == [1, 2]
    assert [one["logprob"] for one in choice["logprobs"]["content"]] == [-0.5, -0.25]
    assert choice["logprobs"]["content"][0]["top_logprobs"] == []


def test_without_scripted_tokens_each_piece_is_a_token_always_the_same() -> None:
    asked = {"logprobs": True, "return_token_ids": True, "messages": MESSAGES}
    first, second = (json.loads(answered(ALL, asked)[2]) for _ in range(2))
    choice = first["choices"][0]
    assert [one["token"] for one in choice["logprobs"]["content"]] == [
        "h",
        "m",
        "Hel",
        "lo",
        "ls",
        '{"a',
        '":1}',
    ]
    assert len(set(choice["token_ids"])) == 7 and len(first["prompt_token_ids"]) > 1
    assert all(-1 <= one["logprob"] <= 0 for one in choice["logprobs"]["content"])
    assert first == second

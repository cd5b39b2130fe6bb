"""What a response's bytes become in the log: every oddity of real servers has one outcome."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordisd.mock import DONE, delta, event, usage
from cordisd.services.chat.completion import CompletionStream

Chunk = dict[str, Any]
STOP = delta({}, "stop")


def read(*pieces: bytes, taken: tuple[str, ...] = (), max_event_bytes: int = 1 << 20) -> list[Chunk]:
    stream = CompletionStream(taken.__contains__, 1, max_event_bytes)
    chunks = [chunk for piece in pieces for chunk in stream.feed(piece)]
    chunks += stream.end()
    assert stream.finished
    assert [chunk["type"] for chunk in chunks].count("finish") == 1
    assert chunks[-1]["type"] == "finish"
    return chunks


def blocks(chunks: list[Chunk]) -> list[Chunk]:
    return [chunk["block"] for chunk in chunks if chunk["type"] == "block-end"]


def finish(chunks: list[Chunk]) -> Chunk:
    return {key: value for key, value in chunks[-1].items() if key != "type"}


def failure(chunks: list[Chunk]) -> Any:
    return chunks[-1]["reason"]["failure"]


def test_a_text_answer_gives_the_published_chunks_in_order() -> None:
    opening = delta({"role": "assistant", "content": ""})
    assert read(opening, delta({"content": "he"}), delta({"content": "llo"}), STOP, usage(), DONE) == [
        {"type": "block-start", "index": 0, "blockType": "text"},
        {"type": "text-delta", "index": 0, "text": "he"},
        {"type": "text-delta", "index": 0, "text": "llo"},
        {"type": "block-end", "index": 0, "block": {"type": "text", "text": "hello"}},
        {"type": "usage", "usage": {"inputTokens": 20, "outputTokens": 4}},
        {"type": "finish", "reason": {"kind": "stop"}},
    ]


def test_a_crlf_stream_with_comments_pings_and_two_data_lines_is_read_like_a_plain_one() -> None:
    text = '{"choices":[{"delta":\ndata: {"content":"hé"},"finish_reason":null}]}'
    stream = (
        f": PROCESSING\n\nevent: ping\ndata: {{}}\n\nevent: ping\ndata: 12:30\n\ndata:{text}\n\n".encode()
    )
    assert blocks(read((stream + STOP + DONE).replace(b"\n", b"\r\n"))) == [{"type": "text", "text": "hé"}]


STREAMS = [
    delta({"content": "é😀 \u2028"}) + delta({"reasoning_content": "r"}) + STOP + usage() + DONE,
    delta({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "b", "arguments": '{"a"'}}]})
    + delta({"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]})
    + delta({}, "tool_calls") + DONE,
    b'data: {"choices":[{"delta":{"content":"\\ud83d"}}]}\r\n\r\ndata: {"error":{"message":"x"}}\n\n',
    b' \n {"choices":[{"message":{"content":"json"},"finish_reason":"stop"}]}',
    b"<html><body>bad gateway</body></html>",
    b"data: {broken\n\n",
]  # fmt: skip


@given(stream=st.sampled_from(STREAMS), cuts=st.lists(st.integers(0, 600), max_size=6), data=st.data())
def test_any_split_and_any_cut_of_a_stream_give_the_same_chunks(
    stream: bytes, cuts: list[int], data: st.DataObject
) -> None:
    stream = stream[: data.draw(st.integers(0, len(stream)))]
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    assert read(*(stream[a:b] for a, b in itertools.pairwise(edges))) == read(stream)


@given(n=st.integers(0, 200))
def test_a_text_stream_cut_anywhere_before_its_finish_reason_is_closed_and_never_malformed(n: int) -> None:
    stream = delta({"content": "héllo"}) * 2
    assert failure(read(stream[: min(n, len(stream))]))["code"] == "STREAM_CLOSED"


def test_a_cut_stream_keeps_what_was_streamed_but_ends_no_block() -> None:
    chunks = read(delta({"content": "x"}), usage())
    assert [chunk["type"] for chunk in chunks] == ["block-start", "text-delta", "finish"]
    assert failure(chunks)["code"] == "STREAM_CLOSED"
    assert "[DONE]" in failure(chunks)["message"]


def test_a_finish_reason_without_done_is_accepted_and_said() -> None:
    chunks = read(delta({"content": "x"}), STOP, usage())
    assert finish(chunks) == {"reason": {"kind": "stop"}, "done": False}
    assert chunks[-2]["type"] == "usage"


def test_done_without_a_finish_reason_keeps_the_text_and_says_so() -> None:
    chunks = read(delta({"content": "x"}), DONE)
    assert blocks(chunks) == [{"type": "text", "text": "x"}]
    assert finish(chunks) == {"reason": {"kind": "stop"}, "finishReason": None}


def test_done_at_the_very_end_needs_no_blank_line() -> None:
    assert finish(read(delta({"content": "x"}), STOP, b"data: [DONE]")) == {"reason": {"kind": "stop"}}


def test_nothing_after_done_counts() -> None:
    assert blocks(read(delta({"content": "x"}), STOP, DONE, delta({"content": "y"}), b"data: {")) == [
        {"type": "text", "text": "x"}
    ]


@pytest.mark.parametrize(
    ("reason", "kind"), [("stop", "stop"), ("tool_calls", "tool-calls"), ("length", "max-tokens")]
)
def test_finish_reasons_are_mapped(reason: str, kind: str) -> None:
    assert finish(read(delta({"content": "x"}), delta({}, reason), DONE)) == {"reason": {"kind": kind}}


def test_an_unknown_finish_reason_is_an_error_after_blocks_and_usage() -> None:
    chunks = read(delta({"content": "x"}), delta({}, "content_filter"), usage(), DONE)
    assert [chunk["type"] for chunk in chunks[-3:]] == ["block-end", "usage", "finish"]
    assert failure(chunks) == {"message": "model stopped: content_filter", "code": "CONTENT_FILTER"}


def test_an_empty_finish_reason_is_none() -> None:
    assert finish(read(delta({"content": "x"}, ""), DONE))["finishReason"] is None


def test_an_empty_answer_is_a_failure_that_still_tells_its_usage() -> None:
    chunks = read(delta({"content": ""}), STOP, usage(), DONE)
    assert [chunk["type"] for chunk in chunks] == ["usage", "finish"]
    assert failure(chunks)["code"] == "EMPTY_RESPONSE"


def test_reasoning_alone_is_content() -> None:
    chunks = read(delta({"reasoning_content": "hm"}), STOP, DONE)
    assert blocks(chunks) == [{"type": "reasoning", "text": "hm"}]
    assert finish(chunks) == {"reason": {"kind": "stop"}}


def test_interleaved_text_and_reasoning_make_one_block_each_in_order_of_appearance() -> None:
    fields = [("reasoning_content", "a"), ("content", "b"), ("reasoning_content", "c"), ("content", "d")]
    chunks = read(*(delta({field: text}) for field, text in fields), STOP, DONE)
    assert blocks(chunks) == [{"type": "reasoning", "text": "ac"}, {"type": "text", "text": "bd"}]


def test_an_empty_reasoning_field_beside_tool_calls_is_an_empty_block() -> None:
    call = {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "b", "arguments": "{}"}}]}
    orders: list[list[dict[str, Any]]] = [
        [{"reasoning_content": ""}, {"content": None, **call}],
        [call, {"reasoning_content": ""}],
    ]
    for deltas in orders:
        chunks = read(*(delta(sent) for sent in deltas), delta({}, "tool_calls"), DONE)
        assert {"type": "reasoning", "text": ""} in blocks(chunks)
        starts = [chunk["index"] for chunk in chunks if chunk["type"] == "block-start"]
        assert starts == [0, 1] == [chunk["index"] for chunk in chunks if chunk["type"] == "block-end"]


def test_an_empty_reasoning_field_without_calls_is_no_block() -> None:
    assert blocks(read(delta({"reasoning_content": "", "content": "x"}), STOP, DONE)) == [
        {"type": "text", "text": "x"}
    ]


def test_a_null_reasoning_field_is_not_an_empty_one() -> None:
    call = {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "b", "arguments": "{}"}}]}
    chunks = read(delta({"reasoning_content": None, **call}), delta({}, "tool_calls"), DONE)
    assert [block["type"] for block in blocks(chunks)] == ["tool-call"]


def test_reasoning_under_another_name_keeps_that_name() -> None:
    assert blocks(read(delta({"reasoning": "hm"}), STOP, DONE)) == [
        {"type": "reasoning", "text": "hm", "field": "reasoning"}
    ]


def test_reasoning_sent_under_both_names_counts_once() -> None:
    both = {"reasoning": "hm", "reasoning_content": "hm"}
    assert blocks(read(delta(both), STOP, DONE)) == [{"type": "reasoning", "text": "hm"}]


def test_content_in_parts_is_joined_and_a_refusal_is_marked() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert blocks(read(delta({"content": parts}), STOP, DONE)) == [{"type": "text", "text": "ab"}]
    assert blocks(read(delta({"content": None, "refusal": "no"}), STOP, DONE)) == [
        {"type": "text", "text": "no", "refusal": True}
    ]


@pytest.mark.parametrize(
    ("sent", "counts"),
    [
        ({"prompt_tokens": 30, "completion_tokens": 4}, {"inputTokens": 30, "outputTokens": 4}),
        (
            {
                "prompt_tokens": 30,
                "completion_tokens": 4,
                "prompt_tokens_details": {"cached_tokens": 10},
                "completion_tokens_details": {"reasoning_tokens": 1},
            },
            {"inputTokens": 20, "outputTokens": 4, "cacheReadTokens": 10, "reasoningTokens": 1},
        ),
        (
            {"prompt_tokens": 30, "prompt_cache_hit_tokens": 30, "prompt_tokens_details": None},
            {"inputTokens": 0, "cacheReadTokens": 30},
        ),
        ({"completion_tokens": 0, "prompt_tokens": None}, {"outputTokens": 0}),
        ({"prompt_tokens": "9", "completion_tokens": True}, {}),
    ],
)
def test_usage_is_mapped_and_unknown_counts_are_absent(sent: dict[str, Any], counts: dict[str, int]) -> None:
    chunks = read(delta({"content": "x"}), STOP, event({"choices": [], "usage": sent}), DONE)
    assert [chunk["usage"] for chunk in chunks if chunk["type"] == "usage"] == ([counts] if counts else [])


def test_the_last_usage_wins_wherever_it_stands() -> None:
    early = event({"choices": [{"delta": {"content": "x"}}], "usage": {"completion_tokens": 1}})
    in_choice = event(
        {"choices": [{"delta": {}, "finish_reason": "stop", "usage": {"completion_tokens": 7}}]}
    )
    assert read(early, in_choice, DONE)[-2] == {"type": "usage", "usage": {"outputTokens": 7}}


@pytest.mark.parametrize("payload", [{}, {"choices": []}, {"choices": None}, {"choices": [{"delta": None}]}])
def test_an_empty_chunk_adds_nothing(payload: object) -> None:
    assert read(delta({"content": "x"}), event(payload), STOP, DONE) == read(
        delta({"content": "x"}), STOP, DONE
    )


@pytest.mark.parametrize("payload", ["{broken", "[]", "7", '"text"', "NaN", '{"choices":{"a":1}}',
                                     '{"choices":[{"delta":[1]}]}', '{"choices":[{"delta":{"content":7}}]}',
                                     '{"choices":[{"delta":{"tool_calls":{"a":1}}}]}'])  # fmt: skip
def test_a_payload_of_no_known_shape_is_malformed_with_an_excerpt(payload: str) -> None:
    chunks = read(delta({"content": "x"}), f"data: {payload}\n\n".encode())
    assert failure(chunks)["code"] == "MALFORMED_RESPONSE"
    assert payload in failure(chunks)["message"]


def test_json_nested_without_end_is_malformed_wherever_it_stands() -> None:
    deep = b"[" * 200_000
    for body in (b"data: " + deep + b"\n\n", b'{"a":' + deep):
        assert failure(read(body))["code"] == "MALFORMED_RESPONSE"
    call = {"index": 0, "function": {"name": "b", "arguments": deep.decode()}}
    assert blocks(read(delta({"tool_calls": [call, call]}), delta({}, "tool_calls"), DONE))[0]["name"] == "b"


def test_the_excerpt_of_a_malformed_payload_has_120_characters() -> None:
    message = failure(read(b"data: " + b"\xc3\xa9" * 500 + b"\n\n"))["message"]
    assert message == "malformed SSE payload: " + "é" * 120


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({"error": {"message": "upstream died", "code": 502}},
         {"message": "upstream died", "code": "SERVER", "status": 502}),
        ({"error": {"message": "slow", "code": "rate_limit_exceeded"}},
         {"message": "slow", "code": "RATE_LIMIT"}),
        ({"error": "plain text"}, {"message": "plain text", "code": "SERVER"}),
        ({"object": "error", "message": "bad", "code": 400},
         {"message": "bad", "code": "INVALID_REQUEST", "status": 400}),
        ({"error": {"message": "You exceeded your current quota", "code": 429}},
         {"message": "You exceeded your current quota", "code": "QUOTA", "status": 429}),
    ],
)  # fmt: skip
def test_an_error_inside_a_200_is_a_failure_with_the_providers_text(
    payload: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert failure(read(delta({"content": "x"}), event(payload), DONE)) == expected
    assert failure(read(json.dumps(payload).encode())) == expected


def test_an_event_named_error_is_one() -> None:
    assert failure(read(b'event: error\ndata: {"message":"gone","status":503}\n\n')) == {
        "message": "gone",
        "code": "SERVER",
        "status": 503,
    }


def test_a_null_error_beside_choices_is_none() -> None:
    good = event({"error": None, "choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}]})
    assert blocks(read(good, DONE)) == [{"type": "text", "text": "x"}]


def test_a_json_body_becomes_the_chunks_of_a_stream() -> None:
    message = {
        "role": "assistant",
        "content": "hi",
        "reasoning_content": "hm",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls'}},
            {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": "{}"}},
        ],
    }
    counts = {"prompt_tokens": 3, "completion_tokens": 2}
    body = {"choices": [{"message": message, "finish_reason": "tool_calls"}], "usage": counts}
    chunks = read(json.dumps(body, indent=1).encode())
    assert blocks(chunks) == [
        {"type": "reasoning", "text": "hm"},
        {"type": "text", "text": "hi"},
        {"type": "tool-call", "id": "c1", "name": "bash", "arguments": '{"command": "ls'},
        {"type": "tool-call", "id": "call00001", "name": "bash", "arguments": "{}", "originalId": "c1"},
    ]
    assert chunks[-2] == {"type": "usage", "usage": {"inputTokens": 3, "outputTokens": 2}}
    assert finish(chunks) == {"reason": {"kind": "tool-calls"}, "streamed": False}


@pytest.mark.parametrize("body", [b'{"choices":[{"mess', b'{"id":"x"}', b'{"choices":[]}', b"[1,2]"])
def test_a_json_body_that_is_no_completion_is_malformed(body: bytes) -> None:
    assert failure(read(body))["code"] == "MALFORMED_RESPONSE"
    assert body.decode() in failure(read(body))["message"]


def test_a_web_page_with_status_200_is_malformed_and_quoted() -> None:
    message = failure(read(b"<html>please log in</html>"))["message"]
    assert "please log in" in message


@pytest.mark.parametrize("body", [b"", b"\n\n", b": ping\n\n"])
def test_a_body_that_says_nothing_is_a_closed_stream(body: bytes) -> None:
    assert failure(read(body))["code"] == "STREAM_CLOSED"


@pytest.mark.parametrize("body", [b"data: " + b"x" * 200, b"{" + b" " * 200])
def test_a_body_without_bounds_is_refused(body: bytes) -> None:
    assert failure(read(body, max_event_bytes=100))["code"] == "MALFORMED_RESPONSE"


def test_a_lone_surrogate_in_the_answer_survives() -> None:
    chunks = read(b'data: {"choices":[{"delta":{"content":"bad \\ud83d end"}}]}\n\n', STOP, DONE)
    assert blocks(chunks) == [{"type": "text", "text": "bad \ud83d end"}]

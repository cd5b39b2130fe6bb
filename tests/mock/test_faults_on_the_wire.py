"""Every fault, byte by byte: what a client of the server receives."""

from __future__ import annotations

import json
import re
import time
from email.utils import parsedate_to_datetime
from typing import Any

import pytest

from cordisd.mock import FAULTS, Answer, call, text
from measure import PATIENCE_S, comes
from mock_requests import (
    STREAMED,
    TWO_CALLS,
    WHOLE,
    answered,
    deltas,
    finish_of,
    http_chunks,
    payloads,
    streamed,
    with_faults,
)

WORDS = text("Hé", "llo 😀")
PLAIN = streamed(WORDS)


def body_of(*names: str, answer: Answer = WORDS, **parameters: Any) -> bytes:
    return streamed(with_faults(answer, *names, **parameters))


def chunks_of(*names: str, answer: Answer = WORDS, **parameters: Any) -> list[bytes]:
    return http_chunks(answered(with_faults(answer, *names, **parameters))[2])


def message_of(answer: Answer, *names: str, **parameters: Any) -> dict[str, Any]:
    """The first choice of the answer as one object."""
    choice: dict[str, Any] = json.loads(answered(with_faults(answer, *names, **parameters), WHOLE)[2])[
        "choices"
    ][0]
    return {**choice["message"], "finish": choice["finish_reason"]}


@pytest.mark.parametrize("body", [STREAMED, WHOLE])
def test_refusals_come_in_the_place_of_the_answer(body: object) -> None:
    def told(*names: str, **parameters: Any) -> tuple[int, str, bytes]:
        return answered(with_faults(WORDS, *names, **parameters), body)

    status, head, error = told("rate-limit")
    assert (status, "Retry-After" in head) == (429, False)
    assert json.loads(error)["error"]["type"] == "rate_limit_error"
    assert "\r\nretry-after: 2.5\r\n" in told(rate_limit_seconds=2.5)[1] + "\r\n"
    date = re.search(r"retry-after: (.* GMT)", told(rate_limit_date=100)[1])
    assert date is not None and 50 < parsedate_to_datetime(date[1]).timestamp() - time.time() <= 101
    assert (told("server-error")[0], told(server_error=503)[0]) == (500, 503)
    status, head, page = told("html-error")
    assert (status, "text/html" in head, page[:6]) == (502, True, b"<html>")


def test_ids_of_calls_are_missing_empty_or_the_same() -> None:
    def heads(*names: str) -> list[object]:
        found = deltas(with_faults(TWO_CALLS, *names))
        return [one.get("id", "none") for one in found if one["function"].get("name")]

    assert heads("call-id-missing") == ["none", "none"]
    assert heads("call-id-empty") == ["", ""]
    assert heads("call-id-duplicate") == ["c1", "c1"]
    whole = message_of(TWO_CALLS, "call-id-missing")["tool_calls"]
    assert [sorted(one) for one in whole] == [["function", "type"]] * 2


def test_indexes_of_calls_are_missing_or_lie() -> None:
    def indexes(*names: str) -> list[object]:
        return [one.get("index", "none") for one in deltas(with_faults(TWO_CALLS, *names))]

    assert indexes() == [0, 0, 1, 1]
    assert indexes("call-index-missing") == ["none"] * 4
    assert indexes("call-index-zero") == [0] * 4
    assert indexes("call-index-late") == [0, 0, 0, 1]


def test_later_deltas_of_a_call_repeat_its_id_or_blank_its_fields() -> None:
    assert [one["id"] for one in deltas(with_faults(TWO_CALLS, "call-id-repeated"))] == [
        "c1",
        "c1",
        "c2",
        "c2",
    ]
    later = deltas(with_faults(TWO_CALLS, "call-fields-empty"))[1::2]
    assert [(one["id"], one["function"]["name"]) for one in later] == [("", "")] * 2
    assert json.loads(later[1]["function"]["arguments"]) == {"command": "pwd"}


def test_parallel_calls_come_in_turns() -> None:
    mixed = deltas(with_faults(TWO_CALLS, "calls-interleaved"))
    assert [one["index"] for one in mixed] == [0, 1, 0, 1, 0, 1]
    told = {0: "", 1: ""}
    for one in mixed:
        told[one["index"]] += one["function"]["arguments"]
    assert [json.loads(arguments)["command"] for arguments in told.values()] == ["ls", "pwd"]


@pytest.mark.parametrize(
    ("how", "raw"),
    [
        ("cut", '{"command": "ls"'),
        ("newline", '{"command": "\nls"}'),
        ("empty", ""),
        ("null", "null"),
        ("list", '[{"command": "ls"}]'),
        ("string", '"ls"'),
    ],
)
def test_arguments_are_broken_in_the_way_asked_for(how: str, raw: str) -> None:
    one = call("c1", "bash", {"command": "ls"})
    spoilt = with_faults(one, broken_arguments=how)
    assert "".join(delta["function"]["arguments"] for delta in deltas(spoilt)) == raw
    assert message_of(one, broken_arguments=how)["tool_calls"][0]["function"]["arguments"] == raw


def test_a_truncated_answer_ends_in_the_middle_with_length() -> None:
    spoilt = message_of(call("c1", "bash", {"command": "rm -rf /srv"}), "truncated")
    assert (spoilt["finish"], spoilt["tool_calls"][0]["function"]["arguments"]) == ("length", '{"command": "')
    assert finish_of(payloads(body_of("truncated"))) == "length"
    spoilt = message_of(WORDS, "truncated")
    assert (spoilt["finish"], spoilt["content"]) == ("length", "Hé")


def test_answers_that_say_nothing_or_refuse() -> None:
    assert message_of(WORDS, "empty") | {"finish": "stop", "content": ""} == message_of(text(), "empty")
    thought = message_of(WORDS, "reasoning-only")
    assert (thought["content"], thought["reasoning_content"]) == ("", "Héllo 😀")
    refused = message_of(WORDS, "refusal")
    assert (refused["content"], refused["refusal"], refused["finish"]) == (None, "Héllo 😀", "stop")
    assert {"refusal": "Hé"} in [one["choices"][0]["delta"] for one in payloads(body_of("refusal"))[:-1]]
    assert message_of(WORDS, "content-filter")["finish"] == "content_filter"
    assert finish_of(payloads(body_of("content-filter"))) == "content_filter"


def test_the_field_of_the_reasoning_and_null_content() -> None:
    thinking = Answer(reasoning=["h"], text=["x"])
    assert message_of(thinking, "reasoning-name")["reasoning"] == "h"
    assert message_of(thinking, reasoning_name="thinking")["thinking"] == "h"
    sent = payloads(body_of("null-content", answer=TWO_CALLS))[:-1]
    assert all(one["choices"][0]["delta"]["content"] is None for one in sent)


def test_what_ends_a_stream_is_missing_or_wrong() -> None:
    assert finish_of(payloads(body_of("no-finish"))) is None
    assert finish_of(payloads(body_of("wrong-finish"))) == "tool_calls"
    assert finish_of(payloads(body_of("wrong-finish", answer=TWO_CALLS))) == "stop"
    assert body_of("no-done") == PLAIN.removesuffix(b"data: [DONE]\n\n")
    assert b"usage" not in body_of("no-usage") and b"usage" in PLAIN
    assert "usage" not in json.loads(answered(with_faults(WORDS, "no-usage"), WHOLE)[2])


def test_usage_in_other_places() -> None:
    last = payloads(body_of("usage-with-finish"))[-1]
    assert (last["choices"][0]["finish_reason"], last["usage"]["total_tokens"]) == ("stop", 24)
    counted = payloads(body_of("usage-everywhere"))
    assert [one["usage"]["completion_tokens"] for one in counted] == [0, 1, 2, 3, 4]


def test_an_error_comes_in_the_middle_of_a_stream_of_status_200() -> None:
    status, _, body = answered(with_faults(WORDS, error_in_stream=503))
    *_, last = payloads(b"".join(http_chunks(body)))
    assert (status, last["error"]["code"], last["error"]["type"]) == (200, 503, "server_error")


def test_the_json_of_an_event_or_of_the_body_is_broken() -> None:
    broken = [event for event in body_of("broken-json").split(b"\n\n") if event.startswith(b"data: {")]
    whole = []
    for event in broken:
        try:
            whole.append(json.loads(event.removeprefix(b"data: ")))
        except ValueError:
            continue
    assert len(whole) == len(broken) - 1
    with pytest.raises(ValueError, match=r"Expecting|Unterminated"):
        json.loads(answered(with_faults(WORDS, "broken-json"), WHOLE)[2])


def test_rarer_forms_of_the_event_stream() -> None:
    events = PLAIN.split(b"\n\n")[:-1]
    assert body_of("comments") == b"".join(b": keep-alive\n\n" + event + b"\n\n" for event in events)
    assert body_of("pings") == b"".join(b"event: ping\ndata: {}\n\n" + event + b"\n\n" for event in events)
    assert body_of("byte-order-mark") == b"\xef\xbb\xbf" + PLAIN
    assert body_of("no-space") == PLAIN.replace(b"data: ", b"data:")
    assert body_of("crlf") == PLAIN.replace(b"\n", b"\r\n")
    lined = body_of("multi-line").split(b"\n\n")[:-1]
    joined = [b"\n".join(line.removeprefix(b"data: ") for line in one.split(b"\n")) for one in lined]
    assert all(one.count(b"\ndata: ") > 5 for one in lined[:-1])
    assert [json.loads(one) for one in joined[:-1]] == payloads(PLAIN)


def test_a_body_comes_in_other_pieces_and_is_the_same() -> None:
    assert [len(piece) for piece in chunks_of("split-bytes")] == [1] * len(PLAIN)
    pieces = chunks_of("split-random")
    assert b"".join(pieces) == PLAIN and len({len(piece) for piece in pieces}) > 5
    assert len(chunks_of(split_random=1)) == len(PLAIN)


def test_a_body_is_cut_inside_characters_and_line_ends() -> None:
    halves = chunks_of("split-characters")
    assert b"".join(halves) == PLAIN and "😀".encode() in PLAIN
    assert all(piece.decode(errors="ignore").isascii() for piece in halves)
    pieces = chunks_of("crlf", "split-lines")
    assert any(piece.endswith(b"\r") for piece in pieces) and any(piece.startswith(b"\n") for piece in pieces)
    assert b"".join(pieces) == PLAIN.replace(b"\n", b"\r\n")


def test_a_connection_ends_or_goes_silent_after_a_share_of_the_body() -> None:
    n_bytes = len(PLAIN)
    assert len(b"".join(chunks_of(cut_fin=0.25))) == n_bytes // 4
    assert chunks_of(cut_fin=0) == []
    assert answered(with_faults(WORDS, "cut-rst"))[2].endswith(b"<reset>")
    broken = answered(with_faults(WORDS, "bad-chunk"))[2]
    assert broken.endswith(b"\r\nzz\r\n")
    status, head, body = answered(with_faults(WORDS, "cut-fin"), WHOLE)
    length = re.search(r"Content-Length: (\d+)", head)
    assert status == 200 and length is not None and len(body) == int(length[1]) // 2


def test_time_passes_before_the_head_and_between_the_pieces() -> None:
    began_s = time.monotonic()
    answered(with_faults(WORDS, latency=0.15))
    assert time.monotonic() - began_s >= 0.15
    began_s = time.monotonic()
    answered(with_faults(WORDS, pace=0.05))
    assert time.monotonic() - began_s >= 0.05 * 6


def test_silence_keeps_the_connection_until_the_client_leaves() -> None:
    import socket

    from cordisd.mock import MockModelThread
    from mock_requests import post

    with MockModelThread([with_faults(WORDS, "silence")]) as mock:
        host, port = mock.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
            connection.sendall(post(STREAMED))
            received = b""
            while b'"content": "H' not in received:
                received += connection.recv(65536)
            connection.settimeout(0.3)
            with pytest.raises(TimeoutError):
                while data := connection.recv(65536):
                    received += data
        assert b"[DONE]" not in received
        assert comes(lambda: mock.aborted == 1)


def test_every_fault_says_in_one_line_what_it_does() -> None:
    assert all(re.fullmatch(r"[A-Z`0-9].*\.", fault.summary) for fault in FAULTS.values())

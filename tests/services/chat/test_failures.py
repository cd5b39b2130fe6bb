"""HTTP failures in the log's words: codes by rule, texts from the provider."""

from __future__ import annotations

import json
from email.utils import formatdate
from typing import Any

import pytest

from cordisd.services.chat.failures import http_failure, retry_after_ms, secrets_of, without_secrets

URL = "http://host/v1/chat/completions"


def failure(status: int, body: object = b"", **headers: str) -> Any:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return http_failure(status, {name.replace("_", "-"): value for name, value in headers.items()}, data, URL)


def said(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, **more}}


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (401, said("quota exceeded"), "AUTH"),
        (403, said("no"), "AUTH"),
        (413, said("insufficient quota"), "INVALID_REQUEST"),
        (402, said("Insufficient Balance"), "QUOTA"),
        (429, said("You exceeded your current quota, please check your plan"), "QUOTA"),
        (429, said("slow", code="insufficient_quota"), "QUOTA"),
        (429, said("slow", type="usage_limit_reached"), "QUOTA"),
        (400, said("credits exhausted"), "QUOTA"),
        (500, said("you are out of credits"), "QUOTA"),
        (429, said("Rate limit reached for requests"), "RATE_LIMIT"),
        (400, said("This model's maximum context length is 4096 tokens"), "CONTEXT_WINDOW_EXCEEDED"),
        (400, said("too big", code="context_length_exceeded"), "CONTEXT_WINDOW_EXCEEDED"),
        (400, said("bad field"), "INVALID_REQUEST"),
        (500, b"", "SERVER"),
        (529, b"", "SERVER"),
        (404, said("no such model"), "HTTP_404"),
        (422, {"detail": "field required"}, "HTTP_422"),
        (500, said("maximum context length"), "SERVER"),
    ],
)
def test_the_code_follows_status_and_words_in_the_published_order(
    status: int, body: object, code: str
) -> None:
    assert failure(status, body)["code"] == code
    assert failure(status, body)["status"] == status


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (said("overloaded"), "overloaded"),
        ({"error": "plain"}, "plain"),
        ({"message": "top"}, "top"),
        ({"detail": "fastapi"}, "fastapi"),
        ([said("in a list")], "in a list"),
        (b"upstream connect error", "upstream connect error"),
        ({"odd": 1}, '{"odd": 1}'),
        (b"", "model API error (HTTP 502)"),
        (b"<html><head><title>502</title><style>p{}</style></head><h1>502 Bad Gateway</h1>\n<p>nginx</p>",
         "502 Bad Gateway nginx"),
        (b"<!DOCTYPE html><title>Error &amp; more</title><body></body>", "Error & more"),
        (b"\xff\xfe", "\ufffd\ufffd"),
    ],
)  # fmt: skip
def test_the_providers_text_survives(body: object, message: str) -> None:
    assert failure(502, body)["message"] == message


def test_a_body_without_end_is_cut() -> None:
    assert len(failure(500, b"x" * 60_000)["message"]) == 2_000


def test_request_ids_are_kept_and_absent_ones_absent() -> None:
    assert failure(500, x_request_id="r1")["requestId"] == "r1"
    assert failure(500, x_deepseek_request_id="r2")["requestId"] == "r2"
    assert set(failure(500)) == {"message", "code", "status"}


@pytest.mark.parametrize(
    ("headers", "ms"),
    [
        ({"retry-after": "1"}, 1000),
        ({"retry-after": " 0.25 "}, 250),
        ({"retry-after-ms": "120", "retry-after": "1"}, 120),
        ({"retry-after": formatdate(1_000_010, usegmt=True)}, 10_000),
        ({"retry-after": formatdate(999_000, usegmt=True)}, 0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "Mon, 99 Foo 2026 99:99:99 GMT"}, None),
        ({}, None),
    ],
)
def test_retry_after_is_read_as_seconds_or_date(headers: dict[str, str], ms: int | None) -> None:
    assert retry_after_ms(headers, 1_000_000) == ms


def test_a_redirect_tells_where_it_wanted_to_go() -> None:
    assert (
        failure(307, location="http://other/")["message"]
        == f"{URL} redirects to http://other/, which is not followed"
    )
    assert failure(307)["code"] == "HTTP_307"


def test_secrets_are_cut_out_of_messages_with_or_without_their_scheme() -> None:
    secrets = secrets_of(
        {"authorization": "Bearer sk-12345678", "x-api-key": "abcdefgh", "accept": "text/event-stream"}
    )
    text = "Incorrect API key: sk-12345678 (sent: Bearer sk-12345678; abcdefgh) for text/event-stream"
    cleaned = without_secrets({"message": text, "code": "AUTH", "status": 401}, secrets)
    assert cleaned == {
        "message": "Incorrect API key: [redacted] (sent: [redacted]; [redacted]) for text/event-stream",
        "code": "AUTH",
        "status": 401,
    }


def test_a_secret_too_short_to_be_told_from_a_word_is_left() -> None:
    assert secrets_of({"authorization": "Bearer none"}) == ("Bearer none",)

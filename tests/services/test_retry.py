"""The retry policy: which failures, how often, how long."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from cordisd.events import Failure
from cordisd.services.retry import RetryPolicy

SERVER: Failure = {"message": "boom", "code": "SERVER", "status": 500}


def plain(low: float, high: float) -> float:
    return (low + high) / 2


def asking(ms: int) -> Failure:
    return {"message": "slow down", "code": "RATE_LIMIT", "providerRetryAfterMs": ms}


def test_the_delay_doubles_up_to_the_maximum() -> None:
    policy = RetryPolicy.model_validate({"maxRetries": 9})
    delays = [policy.delay_ms(retry, SERVER, plain) for retry in range(1, 8)]
    assert delays == [500, 1000, 2000, 4000, 8000, 10_000, 10_000]


@given(retry=st.integers(1, 10_000), ratio=st.floats(0, 1))
def test_a_delay_stays_within_its_jitter_and_the_maximum(retry: int, ratio: float) -> None:
    policy = RetryPolicy.model_validate({"maxRetries": 10_000, "backoff": {"jitterRatio": ratio}})
    delay = policy.delay_ms(retry, SERVER)
    assert delay is not None
    base = min(500 * 2.0 ** min(retry - 1, 60), 10_000)
    assert base * (1 - ratio) - 1e-6 <= delay <= min(base * (1 + ratio), 10_000) + 1e-6


def test_normal_mode_gives_up_after_max_retries() -> None:
    policy = RetryPolicy()
    assert policy.delay_ms(5, SERVER) is not None
    assert policy.delay_ms(6, SERVER) is None


@pytest.mark.parametrize(
    "code", ["EMPTY_RESPONSE", "RATE_LIMIT", "SERVER", "STREAM_CLOSED", "TIMEOUT", "TRANSPORT"]
)
def test_these_codes_are_retried(code: str) -> None:
    assert RetryPolicy().delay_ms(1, {"message": "", "code": code}) is not None


@pytest.mark.parametrize(
    "code",
    [
        "MALFORMED_RESPONSE",
        "AUTH",
        "INVALID_REQUEST",
        "QUOTA",
        "CONTEXT_WINDOW_EXCEEDED",
        "CONTENT_FILTER",
        "HTTP_404",
        "NO_ADAPTER",
        "MISSING_CREDENTIAL",
        "INVALID_CREDENTIAL",
        "UNKNOWN",
    ],
)
def test_these_codes_are_not_retried(code: str) -> None:
    assert RetryPolicy().delay_ms(1, {"message": "", "code": code}) is None


def test_an_allowed_retry_after_is_followed_without_jitter() -> None:
    assert RetryPolicy().delay_ms(1, asking(1000), lambda low, high: high) == 1000
    assert RetryPolicy().delay_ms(1, asking(0)) == 0


def test_a_retry_after_beyond_the_maximum_ends_normal_mode_only() -> None:
    assert RetryPolicy().delay_ms(1, asking(60_000)) is None
    assert RetryPolicy(mode="always").delay_ms(1, asking(60_000)) == 10_000


def test_always_mode_retries_everything_without_limit() -> None:
    policy = RetryPolicy(mode="always")
    assert policy.delay_ms(100_000, {"message": "", "code": "AUTH"}) is not None


@pytest.mark.parametrize("mode", ["normal", "always"])
def test_the_cap_in_seconds_counts_the_next_delay_too(mode: str) -> None:
    policy = RetryPolicy.model_validate({"mode": mode, "retrySeconds": 3})
    assert policy.delay_ms(1, asking(1000), elapsed_s=2.0) == 1000
    assert policy.delay_ms(1, asking(1000), elapsed_s=2.1) is None


def test_the_key_is_the_published_one() -> None:
    assert RetryPolicy.model_validate({"retryableCodes": ["TIMEOUT", "SERVER"]}).key == (
        '["normal",5,["SERVER","TIMEOUT"],500,10000,0.1]'
    )
    always = RetryPolicy.model_validate({"mode": "always", "backoff": {"initialDelayMs": 0.5}})
    assert always.key == '["always",0.5,10000,0.1]'
    assert json.loads(RetryPolicy().key)[2] == sorted(RetryPolicy().retryable_codes)


@pytest.mark.parametrize(
    "raw", [{"tries": 3}, {"backoff": {"factor": 2}}, {"mode": "never"}, {"maxRetries": -1}]
)
def test_unknown_keys_and_wrong_values_are_refused(raw: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        RetryPolicy.model_validate(raw)

"""When a failed model request is tried again, and after how long (`protocol.md` 5.3)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import Field

from cordisd.events import Failure, encode_json
from cordisd.settings import EntryConfig, Milliseconds, NonNegativeInt, Seconds


class Backoff(EntryConfig):
    """How the delay between tries grows."""

    initial_delay_ms: Milliseconds = 500
    """Delay before the first retry."""
    max_delay_ms: Milliseconds = 10_000
    """No delay is longer; a provider that asks for more is not retried in mode `normal`."""
    jitter_ratio: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.1
    """Delays are multiplied by a uniform factor between 1 - ratio and 1 + ratio."""


class RetryPolicy(EntryConfig):
    """Which failures of a model request are retried, how often and how long."""

    mode: Literal["normal", "always"] = "normal"
    """`normal` retries the listed codes a limited number of times; `always` retries everything."""
    max_retries: NonNegativeInt = 5
    """Retries after the first try, in mode `normal`."""
    retryable_codes: list[str] = [
        "EMPTY_RESPONSE",
        "RATE_LIMIT",
        "SERVER",
        "STREAM_CLOSED",
        "TIMEOUT",
        "TRANSPORT",
    ]
    """Failure codes that mode `normal` retries."""
    backoff: Backoff = Backoff()
    """How the delay between tries grows."""
    retry_seconds: Seconds | None = None
    """Give up when the next try would start later than this after the first one; in both modes."""

    @property
    def key(self) -> str:
        """The policy as the log names it (`policyKey`), in the published form."""
        delays = (self.backoff.initial_delay_ms, self.backoff.max_delay_ms, self.backoff.jitter_ratio)
        numbers = [int(value) if value == int(value) else value for value in delays]
        if self.mode == "always":
            return encode_json(["always", *numbers]).decode("ascii")
        return encode_json(["normal", self.max_retries, sorted(self.retryable_codes), *numbers]).decode(
            "ascii"
        )

    def delay_ms(
        self,
        retry: int,
        failure: Failure,
        uniform: Callable[[float, float], float] = random.uniform,
        *,
        elapsed_s: float = 0.0,
    ) -> float | None:
        """Milliseconds to wait before retry number `retry` (from 1), or None to give up.

        `elapsed_s` is the time since the first try of this request began; `retrySeconds` is checked
        against it. A `Retry-After` of the provider is followed to the letter while it is allowed at all.
        """
        limit_ms = self.backoff.max_delay_ms
        asked_ms = failure.get("providerRetryAfterMs")
        if self.mode == "normal" and (
            failure["code"] not in self.retryable_codes
            or retry > self.max_retries
            or (asked_ms is not None and asked_ms > limit_ms)
        ):
            return None
        if asked_ms is not None:
            delay = min(float(asked_ms), limit_ms)
        else:
            # A power that overflows a float would raise; 2**60 ms is beyond every limit already.
            grown_ms = min(self.backoff.initial_delay_ms * 2.0 ** min(retry - 1, 60), limit_ms)
            jitter = self.backoff.jitter_ratio
            delay = min(grown_ms * uniform(1 - jitter, 1 + jitter), limit_ms)
        if self.retry_seconds is not None and elapsed_s + delay / 1000 > self.retry_seconds:
            return None
        return delay

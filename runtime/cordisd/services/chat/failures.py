"""What went wrong with a model request, in the log's words (`protocol.md` 6.3).

The provider's text survives, but for secrets in it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping

from cordisd.errors import CordisError
from cordisd.events import Failure, JsonObject, decode_json

MAX_MESSAGE_CHARS = 2_000
"""A longer error text is cut; some servers answer with the whole request."""

_QUOTA = (
    r"insufficient[ _](?:quota|balance|credits?|funds)"
    r"|(?:quota|usage[ _]limit)[ _](?:has been |was |is )?(?:exceeded|exhausted|reached)"
    r"|exceeded your (?:current )?quota"
    r"|(?:balance|credits?)[ _](?:is |are |has been |have been )?(?:exhausted|depleted)"
    r"|out of (?:credits?|budget)"
)
_CONTEXT = (
    r"context[ _-]?(?:length|window|size)"
    r"|maximum (?:context|input|prompt)[ _]?(?:length|tokens?)?"
    r"|(?:prompt|input|request) (?:is )?too long"
    r"|too many (?:input |prompt )?tokens"
    r"|reduce the length of the (?:messages|prompt|input)"
)
_WORDED_CODES = (
    (r"content[ _]filter|content[ _]policy", "CONTENT_FILTER"),
    (r"rate[ _-]?limit|too many requests", "RATE_LIMIT"),
    (r"authentication|unauthori[sz]ed|invalid[ _]api[ _]key|permission", "AUTH"),
    (r"invalid[ _]request|bad[ _]?request", "INVALID_REQUEST"),
)
_SECRET_HEADER = r"auth|key|token|secret|cookie"
_MIN_SECRET_CHARS = 8
"""Shorter values are ordinary words often enough that cutting them out would garble messages."""


class RequestFault(CordisError):
    """A model request failed below the level of its answer; `failure` is what the log says of it."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure["message"])
        self.failure = failure


def http_failure(status: int, headers: Mapping[str, str], body: bytes, url: str) -> Failure:
    """The failure that an HTTP answer other than 2xx stands for. `headers` looks names up in any case."""
    message, words = _read_error(body)
    if 300 <= status < 400:
        message = f"{url} redirects to {headers.get('location', '(nowhere)')}, which is not followed"
    failure: Failure = {
        "message": message or f"model API error (HTTP {status})",
        "code": _code_of_status(status, words),
        "status": status,
    }
    after_ms = retry_after_ms(headers, time.time())
    if after_ms is not None:
        failure["providerRetryAfterMs"] = after_ms
    for name in ("x-request-id", "x-deepseek-request-id", "request-id"):
        if request_id := headers.get(name):
            failure["requestId"] = request_id
            break
    return failure


def stated_failure(answer: JsonObject) -> Failure:
    """The failure that an error object inside a 200 answer stands for.

    A status that the object names (`code: 502`) is classified as if it were the answer's own; without one,
    and without telling words, the code is `SERVER`.
    """
    message, words = _message_of(answer)
    holder = answer.get("error")
    stated = holder if isinstance(holder, dict) else answer
    status = next((code for key in ("status", "code") if (code := _http_status(stated.get(key)))), None)
    failure: Failure = {
        "message": message or "the model's answer is an error without a text",
        "code": _code_of_words(words) if status is None else _code_of_status(status, words),
    }
    if status is not None:
        failure["status"] = status
    return failure


def retry_after_ms(headers: Mapping[str, str], now: float) -> int | None:
    """Milliseconds that `retry-after-ms` or `Retry-After` (seconds or an HTTP date) ask for.

    `now` is the time in seconds since the epoch.
    """
    for name, scale in (("retry-after-ms", 1), ("retry-after", 1000)):
        value = (headers.get(name) or "").strip()
        if re.fullmatch(r"\d{1,12}(\.\d{1,9})?", value, re.ASCII):
            return round(float(value) * scale)
    if not value:
        return None
    from email.utils import parsedate_to_datetime  # slow to import, rarely needed

    try:
        moment = parsedate_to_datetime(value).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return max(0, round((moment - now) * 1000))


def secrets_of(headers: Mapping[str, str]) -> tuple[str, ...]:
    """Values in `headers` that no message may show, longest first."""
    found: set[str] = set()
    for name, value in headers.items():
        if re.search(_SECRET_HEADER, name, re.IGNORECASE):
            found.update((value, value.partition(" ")[2]))
    return tuple(sorted((value for value in found if len(value) >= _MIN_SECRET_CHARS), key=len, reverse=True))


def without_secrets(failure: Failure, secrets: Iterable[str]) -> Failure:
    """`failure` with every secret cut out of its message."""
    message = failure["message"]
    for secret in secrets:
        message = message.replace(secret, "[redacted]")
    return {**failure, "message": message}


def _http_status(value: object) -> int | None:
    if isinstance(value, str) and re.fullmatch(r"[45]\d\d", value, re.ASCII):
        return int(value)
    return value if isinstance(value, int) and 400 <= value <= 599 else None


def _code_of_status(status: int, words: str) -> str:
    if status in (401, 403):
        return "AUTH"
    if status == 413:
        return "INVALID_REQUEST"
    if _says(_QUOTA, words):
        return "QUOTA"
    if status == 429:
        return "RATE_LIMIT"
    if status == 400:
        return "CONTEXT_WINDOW_EXCEEDED" if _says(_CONTEXT, words) else "INVALID_REQUEST"
    return "SERVER" if status >= 500 else f"HTTP_{status}"


def _code_of_words(words: str) -> str:
    if _says(_QUOTA, words):
        return "QUOTA"
    if _says(_CONTEXT, words):
        return "CONTEXT_WINDOW_EXCEEDED"
    return next((code for pattern, code in _WORDED_CODES if _says(pattern, words)), "SERVER")


def _says(pattern: str, words: str) -> bool:
    return re.search(pattern, words, re.IGNORECASE) is not None


def _read_error(body: bytes) -> tuple[str, str]:
    """The message of an error body, and all words that tell its kind. Both empty for an empty body."""
    text = body.decode("utf-8", "replace").strip()
    try:
        answer = decode_json(text)
    except (ValueError, RecursionError):
        message = _html_text(text) if re.match(r"<(!doctype|html|head|body)", text, re.IGNORECASE) else text
        return message[:MAX_MESSAGE_CHARS], message
    if isinstance(answer, list) and len(answer) == 1:
        answer = answer[0]
    if isinstance(answer, dict):
        message, words = _message_of(answer)
        if message:
            return message, words
    return text[:MAX_MESSAGE_CHARS], text


def _message_of(answer: JsonObject) -> tuple[str, str]:
    error = answer.get("error")
    holder = error if isinstance(error, dict) else answer
    words = [holder[key] for key in ("code", "type", "status") if isinstance(holder.get(key), str)]
    texts = [error, *(holder.get(key) for key in ("message", "detail", "msg"))]
    message = next((text for text in texts if isinstance(text, str) and text), "")
    return message[:MAX_MESSAGE_CHARS], " ".join([*words, message])


def _html_text(page: str) -> str:
    """What a reader sees of an HTML error page, on one line."""
    from html import unescape

    page = page[:8_000]
    visible = re.sub(r"(?is)<(script|style|title)\b.*?</\1\s*>|<!--.*?-->|<[^>]*>", " ", page)
    title = re.search(r"(?is)<title\b[^>]*>(.*?)</title", page)
    shown = visible if visible.strip() or title is None else title[1]
    return " ".join(unescape(shown).split())

"""Server-sent events of a chat-completions stream, one by one, for answers written by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from cordisd.mock.parts import Part, RawReply

DONE: Final = b"data: [DONE]\n\n"


def encode(value: object) -> bytes:
    """JSON as model servers send it: in UTF-8, and with escapes only where that cannot be."""
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # a lone surrogate
        return json.dumps(value).encode()


def event(payload: object) -> bytes:
    """One server-sent event with a JSON payload."""
    return b"data: " + encode(payload) + b"\n\n"


def delta(content: Mapping[str, Any], finish: str | None = None) -> bytes:
    """The event of one delta."""
    return event({"id": "x", "choices": [{"index": 0, "delta": dict(content), "finish_reason": finish}]})


def usage(prompt: int = 20, completion: int = 4, **more: Any) -> bytes:
    """The usage-only event."""
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, **more}
    return event({"id": "x", "choices": [], "usage": counts})


def stream(*parts: Part, finish: str | None = "stop", done: bool = True) -> RawReply:
    """A stream of these parts, then a finish reason, usage and `[DONE]`."""
    tail: list[Part] = [delta({}, finish), usage()] if finish else []
    return RawReply([*parts, *tail, *([DONE] if done else [])])


def json_body(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> RawReply:
    """A JSON answer, whether or not a stream was asked for."""
    return RawReply(
        [encode(value)], status, {"Content-Type": "application/json", **(headers or {})}, "length"
    )


def error(status: int, message: str | bytes = "", **headers: str) -> RawReply:
    """An HTTP error: a JSON error object of `message`, or the bytes as they are; keywords are headers."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if isinstance(message, bytes):
        return RawReply([message], status, {"Content-Type": "text/html", **named}, "length")
    return json_body(error_object(status, message), status, named)


def error_object(status: int, message: str, **more: Any) -> dict[str, Any]:
    """The error object that OpenAI's servers send with a status; keywords replace its members."""
    kinds = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
    kind = kinds.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": None, **more}}

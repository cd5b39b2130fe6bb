"""What a frame is, and what is answered to one that cannot be served."""

from __future__ import annotations

import logging
from typing import Any, Final, Literal

from cordisd.errors import CordisError, InvalidRequestError, NotJsonError
from cordisd.events import JsonObject, decode_json
from cordisd.rpc.frames import OVERSIZE

logger = logging.getLogger(__name__)


MAX_ERROR_CHARACTERS: Final = 10_000
MAX_BATCH: Final = 1000
"""Most requests in a batch, all of which are served at once and answered in one frame."""


def read_frame(line: bytes, max_bytes: int) -> Any:
    """The value of a line, or of an array of requests.

    Raises:
        NotJsonError: it is no JSON.
        InvalidRequestError: it was longer than `max_bytes`, or is a batch without or with too many requests.
    """
    if line is OVERSIZE:
        raise InvalidRequestError(f"frame longer than {max_bytes} bytes; it was skipped")
    try:
        frame = decode_json(line)
    except (ValueError, RecursionError) as error:
        raise NotJsonError(f"not a JSON frame: {error}") from error
    if isinstance(frame, list) and not 0 < len(frame) <= MAX_BATCH:
        raise InvalidRequestError(f"a batch has 1 to {MAX_BATCH} requests, this one {len(frame)}")
    return frame


def error_body(error: CordisError) -> JsonObject:
    """The body of an answer that tells of `error`."""
    text = str(error)
    if len(text) > MAX_ERROR_CHARACTERS:  # it may repeat what the client sent
        text = f"{text[:MAX_ERROR_CHARACTERS]}… ({len(text) - MAX_ERROR_CHARACTERS} characters more)"
    body: JsonObject = {"code": error.rpc_code, "message": text}
    if error.code_name is not None:
        body["data"] = {"code": error.code_name}
    return {"error": body}


def readable_id(frame: Any) -> object:
    """The request id that an answer can carry: a string or a number, else null."""
    found = frame.get("id") if isinstance(frame, dict) else None
    return found if type(found) in (str, int, float) else None


def kind_of(frame: Any) -> Literal["request", "notification", "answer"]:
    """What the frame is; an answer is to no request of ours, and only noted.

    Raises:
        InvalidRequestError: it is none of these.
    """
    if not isinstance(frame, dict):
        raise InvalidRequestError("a frame must be an object or an array of objects")
    if "method" not in frame and ("result" in frame or "error" in frame):
        logger.warning("an answer to no request of ours was ignored")
        return "answer"
    if frame.get("jsonrpc") != "2.0":
        raise InvalidRequestError('jsonrpc must be "2.0"')
    if not isinstance(frame.get("method"), str):
        raise InvalidRequestError("method must be a string")
    if "id" not in frame:
        return "notification"
    if readable_id(frame) is None:
        raise InvalidRequestError("id must be a string or a number; a notification has none")
    return "request"

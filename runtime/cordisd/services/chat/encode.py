"""A model request as bytes: messages, tools and body of a chat-completions call (`protocol.md` 6.1).

Every message is encoded once in its life; a body is joined from those bytes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal

from cordisd.errors import UnsupportedContentError
from cordisd.events import JsonObject, decode_json, encode_json
from cordisd.services.tools import ToolSchema

WireArguments = Literal["sanitize", "raw"]

NO_OUTPUT = "(no output)"
"""What the model reads in place of an empty tool result; some servers refuse empty content."""

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def encode_wire(value: object) -> bytes:
    """Compact UTF-8 JSON for a model. Lone surrogates survive, as escapes.

    Raises:
        ValueError: NaN or infinity.
        TypeError: not a JSON value.
    """
    try:
        return _encode(value).encode("utf-8")
    except UnicodeEncodeError:
        return encode_json(value)


def encode_message(message: JsonObject, wire_arguments: WireArguments = "sanitize") -> bytes | None:
    """One surface message (`protocol.md` 3.2) as a chat message; None for an assistant without content.

    `wire_arguments` "sanitize" wraps tool-call arguments that are not a JSON object as `{"_raw": TEXT}`;
    "raw" sends every argument string as the model wrote it.

    Raises:
        UnsupportedContentError: the message holds an image or another block that is not text.
    """
    content: list[JsonObject] = message["content"]
    if message["role"] == "assistant":
        return encode_wire(_assistant(content, wire_arguments)) if content else None
    if message["source"]["kind"] == "tool":
        return b",".join(encode_wire(_tool_result(block)) for block in content)
    return encode_wire({"role": "user", "content": _text_of(content)})


def encode_body(
    model: str,
    system: str,
    messages: Sequence[bytes],
    before_tools: JsonObject,
    tools: bytes | None,
    after_tools: JsonObject,
) -> tuple[bytes, bytes, bytes]:
    """The request body in three pieces, the history between its ends: a long one is not copied again.

    Keys stand in the published order; the system message only if it is not empty. `after_tools` may give
    `stream` and `stream_options` other values; they keep their place.
    """
    after_tools = dict(after_tools)
    stream = {"stream": after_tools.pop("stream", True)}
    if stream["stream"] is True or "stream_options" in after_tools:
        stream["stream_options"] = after_tools.pop("stream_options", {"include_usage": True})
    if system:
        messages = [encode_wire({"role": "system", "content": system}), *messages]
    head = b'{"model":%b,"messages":[' % encode_wire(model)
    tail = b"]" + _members({**stream, **before_tools})
    if tools is not None:
        tail += b',"tools":' + tools
    return head, b",".join(messages), tail + _members(after_tools) + b"}"


def encode_tools(tools: Sequence[ToolSchema]) -> bytes | None:
    """The JSON array of `tools`; None when there are none, for the key is left out then.

    Nothing is kept: a cache would have to tell lists apart by this very text, for to Python `1`, `1.0` and
    `True` are equal, and so are objects whose keys stand in another order.
    """
    if not tools:
        return None
    return encode_wire([{"type": "function", "function": tool.as_json()} for tool in tools])


def _members(values: JsonObject) -> bytes:
    """`,"key":value…`, to stand inside an object after another member."""
    return b"," + encode_wire(values)[1:-1] if values else b""


def _assistant(content: list[JsonObject], wire_arguments: WireArguments) -> JsonObject:
    text: list[str] = []
    reasoning: JsonObject = {}
    calls: list[JsonObject] = []
    for block in content:
        match block["type"]:
            case "text":
                text.append(block["text"])
            case "reasoning":
                field = block.get("field", "reasoning_content")
                reasoning[field] = reasoning.get(field, "") + block["text"]
            case "tool-call":
                arguments = block["arguments"]
                if wire_arguments == "sanitize":
                    arguments = _sanitized(arguments)
                function = {"name": block["name"], "arguments": arguments}
                calls.append({"id": block["id"], "type": "function", "function": function})
            case other:
                raise UnsupportedContentError(f'an assistant message cannot carry a "{other}" block')
    message: JsonObject = {"role": "assistant", "content": "".join(text), **reasoning}
    if calls:
        message["tool_calls"] = calls
    return message


def _tool_result(block: JsonObject) -> JsonObject:
    if block["type"] != "tool-result":
        raise UnsupportedContentError(f'a tool message cannot carry a "{block["type"]}" block')
    content = _text_of(block["content"]) or NO_OUTPUT
    return {"role": "tool", "tool_call_id": block["toolCallId"], "content": content}


def _text_of(content: Sequence[JsonObject]) -> str:
    for block in content:
        if block["type"] != "text" or not isinstance(block.get("text"), str):
            raise UnsupportedContentError(
                f'this model adapter sends text only; the message holds a block of type "{block["type"]}"'
            )
    return "".join(block["text"] for block in content)


def _sanitized(arguments: str) -> str:
    """`arguments` if they are a JSON object; many servers answer 400 for ever after to anything else."""
    if not arguments:
        return "{}"
    try:
        parsed = decode_json(arguments)
    except (ValueError, RecursionError):
        parsed = None
    return arguments if isinstance(parsed, dict) else _encode({"_raw": arguments})

"""Answers in the two forms of the chat-completions wire: the chunks of a stream, one completion object.

Token ids stand where vLLM puts them: `prompt_token_ids` beside `choices`, in a stream once, and `token_ids`
in the choice, in a stream those of the chunk. SGLang has the prompt's in the choice as well; they are sent in
both places.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from zlib import crc32

from cordisd.mock.answer import Answer, Token
from cordisd.mock.received import Received

CREATED: Final = 1_700_000_000
"""The `created` of every answer: the same script gives the same bytes."""

Chunk = dict[str, Any]


def stream_chunks(answer: Answer, request: Received, number: int) -> list[Chunk]:
    """The payloads of a stream, in order, `[DONE]` not included; `number` counts the requests from 1."""
    asked = request.object
    wants_usage = isinstance(options := asked.get("stream_options"), dict) and options.get("include_usage")
    chunks = [
        _chunk(answer, asked, number, delta, tokens, is_first=place == 0)
        for place, (delta, tokens) in enumerate(_deltas(answer))
    ]
    if (reason := answer.finish_reason) is not None:
        last = _chunk(answer, asked, number, {"content": None} if answer.null_content else {}, [])
        last["choices"][0]["finish_reason"] = reason
        chunks.append(last)
    if wants_usage and answer.usage is not None:
        chunks.append({**_envelope(asked, number, "chat.completion.chunk"), "choices": []})
        chunks[-1]["usage"] = dict(answer.usage)
    return chunks


def completion(answer: Answer, request: Received, number: int) -> dict[str, Any]:
    """The `chat.completion` object."""
    asked = request.object
    pieces = [*answer.pieces]
    message: dict[str, Any] = {"role": "assistant", "content": "".join(pieces)}
    if not pieces and (answer.null_content or answer.calls or answer.refusal):
        message["content"] = None
    message["refusal"] = "".join(answer.refusal) or None
    if answer.reasoning:
        message[answer.reasoning_field] = "".join(answer.reasoning)
    if answer.calls:
        message["tool_calls"] = [
            {
                **({} if call.id is None else {"id": call.id}),
                "type": "function",
                "function": {"name": call.name, "arguments": "".join(call.arguments)},
            }
            for call in answer.calls
        ]
    choice = {"index": 0, "message": message, "finish_reason": answer.finish_reason}
    tokens = [token for _, sampled in _deltas(answer) for token in sampled]
    whole = {**_envelope(asked, number, "chat.completion"), "choices": [choice]}
    _add_tokens(whole, answer, asked, tokens, is_first=True)
    if answer.usage is not None:
        whole["usage"] = dict(answer.usage)
    return whole


def _deltas(answer: Answer) -> Iterator[tuple[dict[str, Any], list[Token]]]:
    """Each delta before the one that finishes, with the tokens sampled for it."""
    yield {"role": "assistant", "content": None if answer.null_content else ""}, []
    nothing = {"content": None} if answer.null_content else {}
    for piece in answer.reasoning:
        yield {**nothing, answer.reasoning_field: piece}, [answer.token_of(piece)]
    for place, piece in enumerate(answer.pieces):
        yield {"content": piece}, [answer.token_of(piece, place)]
    for piece in answer.refusal:
        yield {**nothing, "refusal": piece}, [answer.token_of(piece)]
    for index, call in enumerate(answer.calls):
        head: dict[str, Any] = {"index": index}
        if call.id is not None:
            head["id"] = call.id
        head |= {"type": "function", "function": {"name": call.name, "arguments": ""}}
        yield {**nothing, "tool_calls": [head]}, [answer.token_of(call.name)]
        for piece in call.arguments:
            tail = {"index": index, "function": {"arguments": piece}}
            yield {**nothing, "tool_calls": [tail]}, [answer.token_of(piece)]


def _chunk(
    answer: Answer,
    asked: dict[str, Any],
    number: int,
    delta: dict[str, Any],
    tokens: list[Token],
    is_first: bool = False,
) -> Chunk:
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    chunk = {**_envelope(asked, number, "chat.completion.chunk"), "choices": [choice]}
    _add_tokens(chunk, answer, asked, tokens, is_first)
    return chunk


def _envelope(asked: dict[str, Any], number: int, kind: str) -> dict[str, Any]:
    model = asked.get("model")
    named = model if isinstance(model, str) else "mock"
    return {"id": f"chatcmpl-mock-{number}", "object": kind, "created": CREATED, "model": named}


def _add_tokens(
    holder: dict[str, Any], answer: Answer, asked: dict[str, Any], tokens: list[Token], is_first: bool
) -> None:
    choice = holder["choices"][0]
    if asked.get("logprobs") is True:
        n_top = asked.get("top_logprobs")
        wants_top = isinstance(n_top, int) and n_top > 0
        content = [
            _logprob(token) | {"top_logprobs": [_logprob(token)] if wants_top else []} for token in tokens
        ]
        choice["logprobs"] = {"content": content, "refusal": None} if content else None
    if asked.get("return_token_ids") is True:
        choice["token_ids"] = [token.id for token in tokens]
        if is_first:
            choice["prompt_token_ids"] = holder["prompt_token_ids"] = _prompt_ids(answer, asked)


def _logprob(token: Token) -> dict[str, Any]:
    data = token.text.encode("utf-8", "surrogatepass")
    return {"token": token.text, "logprob": token.logprob, "bytes": list(data)}


def _prompt_ids(answer: Answer, asked: dict[str, Any]) -> list[int]:
    if answer.prompt_token_ids is not None:
        return list(answer.prompt_token_ids)
    words = str(asked.get("messages", "")).split()
    return [crc32(word.encode("utf-8", "surrogatepass")) % 100_000 for word in words]

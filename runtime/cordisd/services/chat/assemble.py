"""Completion objects of a chat-completions server to chunks of the log (`protocol.md` 3.5, 6.2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

from cordisd.events import Failure, JsonObject, Usage
from cordisd.services.chat.toolcalls import ToolCalls

Chunk = dict[str, Any]

_FINISH_KINDS = {"stop": "stop", "tool_calls": "tool-calls", "length": "max-tokens"}
_REASONING_FIELDS = ("reasoning_content", "reasoning")


class TextBlock:
    """A text or reasoning block under assembly. `extra` holds what its finished block says besides."""

    __slots__ = ("extra", "index", "kind", "parts")

    def __init__(self, kind: str, index: int) -> None:
        self.kind = kind
        self.index = index
        self.parts: list[str] = []
        self.extra: JsonObject = {}

    def block(self) -> JsonObject:
        """The finished block."""
        return {"type": self.kind, "text": "".join(self.parts), **self.extra}


class Assembler:
    """Takes the completion objects of one response in order and gives the chunks that each adds.

    Extra facts of a block: `field` of a reasoning block whose server calls it otherwise than
    `reasoning_content`; `refusal: true` of a text block that holds a refusal; those of `toolcalls.Call`.
    """

    __slots__ = ("_calls", "_empty_reasoning", "_n_blocks", "_reasoning", "_text", "_usage", "finish_reason")

    def __init__(self, is_taken: Callable[[str], bool], first_call_number: int) -> None:
        self._calls = ToolCalls(is_taken, first_call_number)
        self._text: TextBlock | None = None
        self._reasoning: TextBlock | None = None
        self._empty_reasoning: str | None = None
        """The field in which the server sent an empty reasoning and, so far, nothing more."""
        self._n_blocks = 0
        self._usage: object = None
        self.finish_reason: str | None = None

    def add(self, completion: JsonObject, chunks: list[Chunk]) -> None:
        """Append the chunks of one completion object to `chunks`.

        Raises:
            ValueError: a field has a shape that no server should send; the message names it.
        """
        if usage := completion.get("usage"):
            self._usage = usage
        choices = completion.get("choices")
        if not choices:
            return
        choice = choices[0] if isinstance(choices, list) else None
        if not isinstance(choice, dict):
            raise ValueError("choices is not a list of objects")
        if reason := choice.get("finish_reason"):
            self.finish_reason = str(reason)
        if usage := choice.get("usage"):
            self._usage = usage
        delta = choice.get("delta")
        if delta is None and not self._n_blocks:
            delta = choice.get("message")
        if not delta:
            return
        if not isinstance(delta, dict):
            raise ValueError("choices[0].delta is not an object")
        for field in _REASONING_FIELDS:
            if isinstance(reasoning := delta.get(field), str):
                self._add_reasoning(field, reasoning, chunks)
                if reasoning:
                    break
        if (content := delta.get("content")) and (text := _as_text(content)):
            self._add_text(text, chunks)
        if isinstance(refusal := delta.get("refusal"), str) and refusal:
            self._add_text(refusal, chunks).extra["refusal"] = True
        if calls := delta.get("tool_calls"):
            self._add_calls(calls, chunks)

    def finish(self, facts: Mapping[str, bool]) -> list[Chunk]:
        """The chunks that end the response: every `block-end`, `usage` if any, `finish` with `facts` in it.

        Facts: `done: false`, a finish reason came but never `[DONE]`; `streamed: false`, a JSON body came.
        """
        chunks: list[Chunk] = []
        if self._calls.all:
            self._open_empty_reasoning(chunks)
        ended: dict[int, JsonObject] = {}
        for call in self._calls.all:
            if text := call.close():
                chunks.append(_call_delta(call.block_index, call.id, call.name, text))
            ended[call.block_index] = call.block()
        for block in (self._text, self._reasoning):
            if block is not None:
                ended[block.index] = block.block()
        chunks += [{"type": "block-end", "index": index, "block": ended[index]} for index in sorted(ended)]
        if usage := read_usage(self._usage):
            chunks.append({"type": "usage", "usage": usage})
        chunks.append(self._finish_chunk(facts))
        return chunks

    def _finish_chunk(self, facts: Mapping[str, bool]) -> Chunk:
        reason = self.finish_reason
        kind = "stop" if reason is None else _FINISH_KINDS.get(reason)
        if kind is None:
            return failed({"message": f"model stopped: {reason}", "code": str(reason).upper()})
        if kind != "max-tokens" and not self._n_blocks:
            message = "model returned a completed response with no content"
            return failed({"message": message, "code": "EMPTY_RESPONSE"})
        chunk: Chunk = {"type": "finish", "reason": {"kind": kind}, **facts}
        if reason is None:
            chunk["finishReason"] = None
        return chunk

    def _add_text(self, text: str, chunks: list[Chunk]) -> TextBlock:
        block = self._text
        if block is None:
            block = self._text = self._open("text", chunks)
        block.parts.append(text)
        chunks.append({"type": "text-delta", "index": block.index, "text": text})
        return block

    def _add_reasoning(self, field: str, text: str, chunks: list[Chunk]) -> None:
        block = self._reasoning
        if block is None:
            if not text:
                self._empty_reasoning = self._empty_reasoning or field
                return
            block = self._reasoning = self._open("reasoning", chunks)
            self._empty_reasoning = None
            if field != _REASONING_FIELDS[0]:
                block.extra["field"] = field
        if text:
            block.parts.append(text)
            chunks.append({"type": "reasoning-delta", "index": block.index, "text": text})

    def _open_empty_reasoning(self, chunks: list[Chunk]) -> None:
        # Thinking models refuse a call in the history whose reasoning field is gone, even an empty one.
        if self._empty_reasoning is not None and self._reasoning is None:
            self._reasoning = self._open("reasoning", chunks)
            if self._empty_reasoning != _REASONING_FIELDS[0]:
                self._reasoning.extra["field"] = self._empty_reasoning

    def _add_calls(self, deltas: object, chunks: list[Chunk]) -> None:
        if not isinstance(deltas, list) or not all(isinstance(delta, dict) for delta in deltas):
            raise ValueError("tool_calls is not a list of objects")
        self._open_empty_reasoning(chunks)
        for delta in deltas:
            n_calls = len(self._calls.all)
            call, arguments = self._calls.route(delta, self._n_blocks)
            if len(self._calls.all) > n_calls:
                self._open("tool-call", chunks)
            chunks.append(_call_delta(call.block_index, call.id, call.name, call.extend(arguments)))

    def _open(self, kind: str, chunks: list[Chunk]) -> TextBlock:
        block = TextBlock(kind, self._n_blocks)
        self._n_blocks += 1
        chunks.append({"type": "block-start", "index": block.index, "blockType": kind})
        return block


def failed(failure: Failure) -> Chunk:
    """The `finish` chunk of an attempt that failed."""
    return {"type": "finish", "reason": {"kind": "error", "failure": failure}}


def read_usage(usage: object) -> Usage:
    """Token counts of a `usage` object; what the server did not say is absent, never 0."""
    if not isinstance(usage, dict):
        return {}
    prompt = _count(usage, "prompt_tokens")
    cached = _count(usage.get("prompt_tokens_details"), "cached_tokens")
    if cached is None:
        cached = _count(usage, "prompt_cache_hit_tokens")
    counts: Usage = {}
    if prompt is not None:
        counts["inputTokens"] = max(0, prompt - (cached or 0))
    if (output := _count(usage, "completion_tokens")) is not None:
        counts["outputTokens"] = output
    if cached is not None:
        counts["cacheReadTokens"] = cached
    if (reasoning := _count(usage.get("completion_tokens_details"), "reasoning_tokens")) is not None:
        counts["reasoningTokens"] = reasoning
    return counts


def _count(holder: object, key: str) -> int | None:
    value = holder.get(key) if isinstance(holder, dict) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value) or value < 0:
        return None
    return int(value)


def _as_text(content: object) -> str:
    """The text of a `content`: a string, or a list of text parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(
        isinstance(part, dict) and isinstance(part.get("text"), str) for part in content
    ):
        return "".join(part["text"] for part in content)
    raise ValueError("content is neither a string nor a list of text parts")


def _call_delta(index: int, id: str, name: str, text: str) -> Chunk:
    return {"type": "tool-call-delta", "index": index, "id": id, "name": name, "argumentsDelta": text}

"""One model request of a step: streams it into the log, tries again by policy, returns the answer."""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final, cast

from cordisd.errors import CordisError
from cordisd.events import Failure, JsonObject
from cordisd.services.models import Chunk, ModelRequest
from cordisd.services.retry import RetryPolicy
from cordisd.session.session import Session

NO_FINISH: Final = {
    "reason": {
        "kind": "error",
        "failure": {"message": "the model adapter ended without a finish", "code": "STREAM_CLOSED"},
    }
}


class ModelError(CordisError):
    """The model gave no usable answer, after every retry that the policy allows."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure["message"])
        self.failure = failure


@dataclass(slots=True)
class Answer:
    """One attempt's answer, complete or as far as it came."""

    seqs: list[int] = field(default_factory=list)
    """Sequence numbers of its chunk events."""
    blocks: list[JsonObject] = field(default_factory=list)
    """Finished content blocks in index order; tool-call blocks hold the raw argument string."""
    usage: JsonObject | None = None
    finish: JsonObject = field(default_factory=lambda: NO_FINISH)
    """The `finish` chunk, once it has come."""
    _deltas: dict[int, tuple[str, list[str]]] = field(default_factory=dict)

    def take(self, chunk: Chunk, seq: int) -> None:
        """Note one chunk that was logged as event `seq`."""
        self.seqs.append(seq)
        match chunk["type"]:
            case "text-delta":
                self._deltas.setdefault(chunk["index"], ("text", []))[1].append(chunk["text"])
            case "reasoning-delta":
                self._deltas.setdefault(chunk["index"], ("reasoning", []))[1].append(chunk["text"])
            case "block-end":
                self.blocks.append(chunk["block"])
            case "usage":
                self.usage = chunk["usage"]
            case "finish":
                self.finish = chunk

    @property
    def reason(self) -> str:
        """Kind of the finish reason: stop, tool-calls or max-tokens."""
        return cast(str, self.finish["reason"]["kind"])

    @property
    def calls(self) -> list[JsonObject]:
        """The tool-call blocks, in model order."""
        return [block for block in self.blocks if block["type"] == "tool-call"]

    def partial(self) -> list[JsonObject]:
        """Text and reasoning blocks as far as they were streamed; empty when none shows anything."""
        blocks: list[JsonObject] = [
            {"type": kind, "text": "".join(texts)} for _, (kind, texts) in sorted(self._deltas.items())
        ]
        return blocks if any(block["text"].strip() for block in blocks) else []


def log_answer(
    session: Session, turn: int, step: int, answer: Answer, content: list[JsonObject], **marks: Any
) -> None:
    """Append the `assistant/message` of an answer; `marks` are extra fields such as `interrupted`."""
    config = session.config
    data: JsonObject = {
        "turn": turn,
        "step": step,
        "message": {
            "role": "assistant",
            "content": content,
            "source": {"kind": "model", "provider": config.provider, "model": config.model},
            "id": str(uuid.uuid4()),
        },
    }
    if answer.usage is not None:
        data["usage"] = answer.usage
    session.add("assistant/message", data | marks, sources=answer.seqs)


async def ask_model(session: Session, turn: int, step: int, request: ModelRequest) -> Answer:
    """The model's complete answer. When cancelled, what was visible of it is kept as an interrupted message.

    Raises:
        ModelError: the last attempt failed and the policy allows no other.
    """
    policy, began_s, retry = session.adapter.retry_policy, time.monotonic(), 0
    while True:
        answer = Answer()
        session.log.commit()  # nothing reaches the model that is not in the log
        try:
            await _stream(session, turn, step, request, answer)
        except asyncio.CancelledError:
            if content := answer.partial():
                log_answer(session, turn, step, answer, content, interrupted=True)
            else:
                _count_usage(session, answer)
            raise
        failure = answer.finish["reason"].get("failure")
        if failure is None:
            return answer
        _count_usage(session, answer)
        retry += 1
        await _back_off(session, turn, step, policy, retry, failure, time.monotonic() - began_s)


async def _stream(session: Session, turn: int, step: int, request: ModelRequest, answer: Answer) -> None:
    log = session.log
    async with aclosing(cast(Any, session.adapter.stream(request))) as batches:
        async for batch in batches:
            for chunk in batch:
                data = {"turn": turn, "step": step, "chunk": chunk}
                answer.take(chunk, log.append("assistant/chunk", data).seq)


def _count_usage(session: Session, answer: Answer) -> None:
    """Count the tokens of an attempt that no message tells of; `restore` finds them in its chunks."""
    session.memory.spent.count(answer.usage or {}, (session.config.provider, session.config.model))


async def _back_off(
    session: Session,
    turn: int,
    step: int,
    policy: RetryPolicy,
    retry: int,
    failure: Failure,
    elapsed_s: float,
) -> None:
    delay_ms = policy.delay_ms(retry, failure, elapsed_s=elapsed_s)
    if delay_ms is None:
        raise ModelError(failure)
    retry_id = str(uuid.uuid4())
    event: JsonObject = {
        "retryId": retry_id,
        "turn": turn,
        "step": step,
        "provider": session.config.provider,
        "mode": policy.mode,
        "policyKey": policy.key,
        "retry": retry,
    }
    if policy.mode == "normal":
        event["maxRetries"] = policy.max_retries
    session.log.append("llm/retry", event | {"delayMs": delay_ms, "failure": failure})
    is_skipped = any(tap.skips_delays for tap in session.traffic.taps)
    await asyncio.sleep(0 if is_skipped else delay_ms / 1000)
    session.log.append("llm/retry-started", {"retryId": retry_id, "turn": turn, "step": step, "retry": retry})

"""Runs the tool calls of one step: exclusive ones one by one, consecutive parallel-safe ones together."""

from __future__ import annotations

import asyncio
import itertools
import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from cordisd.agent.arguments import parse_arguments
from cordisd.errors import CordisError, ToolError, nearest
from cordisd.events import Event, JsonObject
from cordisd.services.tools import Tool, ToolCall, ToolResult
from cordisd.services.traffic import ToolOutcome
from cordisd.session.session import Session

logger = logging.getLogger(__name__)


class Outcome(NamedTuple):
    """What the log says of a finished call. `error` `{name, code}` only for coded failures."""

    text: str
    is_error: bool = False
    error: JsonObject | None = None
    meta: JsonObject | None = None


ABORTED = Outcome("Error: tool call aborted", is_error=True, error={"name": "AbortError", "code": "ABORTED"})
ABORTED_BEFORE_DISPATCH = Outcome(
    "Error: tool call aborted before dispatch",
    is_error=True,
    error={"name": "AbortError", "code": "ABORTED_BEFORE_DISPATCH"},
)
TRUNCATED = Outcome(
    "Error: tool call not run: the answer was cut off by the output limit before the call was complete",
    is_error=True,
    error={"name": "ToolNotStartedError", "code": "TOOL_NOT_STARTED"},
)


@dataclass(slots=True)
class _Running:
    event: Event
    task: asyncio.Task[Outcome]


async def run_calls(
    session: Session,
    turn: int,
    step: int,
    blocks: Sequence[JsonObject],
    tools: Mapping[str, Tool],
    max_parallel: int,
) -> None:
    """Run the tool-call blocks of an assistant message; every call gets exactly one result, in model order.

    When cancelled, or when the log cannot be written, calls that run or never ran get an error result at
    once; what a tool still has to clean up goes on as a task of the session.
    """
    pending = list(blocks)
    try:
        for parallel, group in _groups(blocks, tools):
            await _run_group(session, turn, step, pending, group, tools, max_parallel if parallel else 1)
    finally:
        for block in pending:  # only when cancelled, or the log failed, or a tap has failed the turn
            event = _log_call(session, turn, step, block)
            _log_result(session, turn, step, block["id"], ABORTED_BEFORE_DISPATCH, event)


def refuse_calls(session: Session, turn: int, step: int, blocks: Sequence[JsonObject]) -> None:
    """Answer calls that were cut off by the output limit, without running them."""
    for block in blocks:
        _log_result(session, turn, step, block["id"], TRUNCATED, None)


def _groups(
    blocks: Sequence[JsonObject], tools: Mapping[str, Tool]
) -> Iterator[tuple[bool, list[JsonObject]]]:
    def parallel_safe(block: JsonObject) -> bool:
        tool = tools.get(block["name"])
        return tool is not None and tool.parallel_safe

    for parallel, group in itertools.groupby(blocks, parallel_safe):
        yield parallel, list(group)


async def _run_group(
    session: Session,
    turn: int,
    step: int,
    pending: list[JsonObject],
    group: list[JsonObject],
    tools: Mapping[str, Tool],
    cap: int,
) -> None:
    running: list[_Running] = []  # started calls whose result is not logged yet, in model order
    left = list(group)
    try:
        while left or running:
            while left and sum(not one.task.done() for one in running) < cap and (cap > 1 or not running):
                block = left.pop(0)
                pending.remove(block)
                event = _log_call(session, turn, step, block)
                session.log.commit()  # no tool runs that the log does not know of
                work = _run_call(block, ToolCall(block["id"], block["name"], turn, step), tools, session)
                task = asyncio.get_running_loop().create_task(work)
                running.append(_Running(event, task))
            live = [one.task for one in running if not one.task.done()]
            if live:
                await asyncio.wait(live, return_when=asyncio.FIRST_COMPLETED)
            while running and running[0].task.done():
                one = running.pop(0)
                _tell_taps(session, one, _log_finished(session, turn, step, one))
    finally:
        for one in running:  # only when cancelled, or the log failed, or a tap has failed the turn
            if one.task.done():
                outcome = _log_finished(session, turn, step, one)
                with suppress(CordisError):  # the turn ends for another reason
                    _tell_taps(session, one, outcome)
            else:
                one.task.cancel()
                session.linger(one.task)
                _log_result(session, turn, step, one.event.data["callId"], ABORTED, one.event)


async def _run_call(
    block: JsonObject, call: ToolCall, tools: Mapping[str, Tool], session: Session
) -> Outcome:
    name = call.name
    for tap in session.traffic.taps:
        recorded = await tap.recorded_result(session.id, call.call_id, name)
        if recorded is not None:
            return _outcome(recorded)
    try:
        tool = tools.get(name)
        if tool is None:
            raise ToolError(
                f'unknown tool "{name}"{nearest(name, tools)}; tools: {", ".join(tools) or "(none)"}',
                name="ToolNotFoundError",
                code="UNKNOWN_TOOL",
            )
        arguments = parse_arguments(block["arguments"], tool.schema.parameters)
        result = await tool.run(arguments, call)
        return _outcome(result)
    except ToolError as error:
        coded = {"name": error.name, "code": error.code} if error.code else None
        return Outcome(f"Error: {error}", is_error=True, error=coded)
    except Exception as error:
        logger.exception("tool %s failed", name)
        return Outcome(
            f"Error: the tool failed: {error or type(error).__name__}",
            is_error=True,
            error={"name": type(error).__name__, "code": "TOOL_FAILED"},
        )


def _outcome(result: ToolResult) -> Outcome:
    return Outcome(result.text, result.is_error, meta=result.meta)


def _log_call(session: Session, turn: int, step: int, block: JsonObject) -> Event:
    return session.log.append(
        "tool/call",
        {
            "turn": turn,
            "step": step,
            "callId": block["id"],
            "name": block["name"],
            "arguments": block["arguments"],
        },
    )


def _log_finished(session: Session, turn: int, step: int, one: _Running) -> Outcome:
    outcome = ABORTED if one.task.cancelled() else one.task.result()
    _log_result(session, turn, step, one.event.data["callId"], outcome, one.event)
    return outcome


def _tell_taps(session: Session, one: _Running, outcome: Outcome) -> None:
    call = one.event.data
    told = ToolOutcome(call["callId"], call["name"], outcome.text, outcome.is_error)
    for tap in session.traffic.taps:
        divergence = tap.note_result(session.id, told)
        if divergence is not None:
            session.log.append("replay/divergence", divergence, ignorable=True)


def _log_result(
    session: Session, turn: int, step: int, call_id: str, outcome: Outcome, call: Event | None
) -> None:
    data: JsonObject = {
        "turn": turn,
        "step": step,
        "message": {
            "source": {"kind": "tool", "callId": call_id},
            "content": [
                {
                    "type": "tool-result",
                    "toolCallId": call_id,
                    "content": [{"type": "text", "text": outcome.text}],
                    "isError": outcome.is_error,
                }
            ],
            "role": "user",
            "id": str(uuid.uuid4()),
        },
    }
    if outcome.error is not None:
        data["error"] = outcome.error
    if outcome.meta is not None:
        data["meta"] = outcome.meta
    session.add("tool/result", data, sources=[call.seq] if call else None)

"""Faults of the model: an answer that is whole on the wire, but not what it should be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cordisd.mock.answer import Answer, Call
from cordisd.mock.faults.draw import Draw

BROKEN_ARGUMENTS = ("cut", "newline", "empty", "null", "list", "string")
"""How arguments can fail to be a JSON object: without an end, with a raw line feed in a string, and so on."""


def call_id_missing(answer: Answer, draw: Draw) -> Answer:
    """No tool call has an id."""
    return _with_ids(answer, None)


def call_id_empty(answer: Answer, draw: Draw) -> Answer:
    """Every tool call has the id `""`."""
    return _with_ids(answer, "")


def call_id_duplicate(answer: Answer, draw: Draw) -> Answer:
    """Every tool call has the id of the first."""
    return _with_ids(answer, answer.calls[0].id) if answer.calls else answer


def broken_arguments(answer: Answer, draw: Draw) -> Answer:
    """The arguments of the last call are no JSON object, in the way that the parameter says."""
    return _with_last_call(answer, _break(_last_arguments(answer), str(draw.parameter)))


def _break(whole: str, how: str) -> str:
    match how:
        case "cut":
            return whole[:-1]
        case "newline":
            return whole.replace('": "', '": "\n', 1) if '": "' in whole else f"\n{whole[:-1]}"
        case "empty":
            return ""
        case "null":
            return "null"
        case "list":
            return f"[{whole}]"
        case _:
            return '"ls"'


def truncated(answer: Answer, draw: Draw) -> Answer:
    """The length limit cut the answer: half of the last call's arguments, or of the text."""
    if answer.calls:
        whole = _last_arguments(answer)
        return replace(_with_last_call(answer, whole[: len(whole) // 2]), finish="length")
    return replace(_first_half(answer), finish="length")


def content_filter(answer: Answer, draw: Draw) -> Answer:
    """The content filter stopped the answer in the middle."""
    return replace(_first_half(answer), calls=(), finish="content_filter")


def refusal(answer: Answer, draw: Draw) -> Answer:
    """What would be said is a refusal."""
    return replace(answer, text=(), tokens=(), refusal=answer.pieces or ["I can't help with that."])


def empty(answer: Answer, draw: Draw) -> Answer:
    """Nothing was said, and the model stopped."""
    return replace(answer, reasoning=(), text=(), tokens=(), refusal=(), calls=(), finish="stop")


def reasoning_only(answer: Answer, draw: Draw) -> Answer:
    """The model thought, and stopped without an answer."""
    thought = [*answer.reasoning, *answer.pieces] or ["Hm."]
    return replace(empty(answer, draw), reasoning=thought)


def reasoning_name(answer: Answer, draw: Draw) -> Answer:
    """The reasoning stands in a field of that name."""
    return replace(answer, reasoning_field=str(draw.parameter)) if answer.reasoning else answer


def null_content(answer: Answer, draw: Draw) -> Answer:
    """`content: null` wherever there is no text."""
    return replace(answer, null_content=True)


def no_finish(answer: Answer, draw: Draw) -> Answer:
    """No finish reason is named."""
    return replace(answer, finish=None)


def wrong_finish(answer: Answer, draw: Draw) -> Answer:
    """The finish reason says `stop` of tool calls, and `tool_calls` where there is none."""
    return replace(answer, finish="stop" if answer.calls else "tool_calls")


def no_usage(answer: Answer, draw: Draw) -> Answer:
    """No token counts, though they were asked for."""
    return replace(answer, usage=None)


def _with_ids(answer: Answer, id: str | None) -> Answer:
    calls = [replace(call, id=id) for call in answer.calls]
    return answer if calls == [*answer.calls] else replace(answer, calls=calls)


def _last_arguments(answer: Answer) -> str:
    return "".join(answer.calls[-1].arguments) if answer.calls else ""


def _with_last_call(answer: Answer, arguments: str) -> Answer:
    if not answer.calls:
        return answer
    *before, last = answer.calls
    calls: Sequence[Call] = [*before, replace(last, arguments=[arguments])]
    return replace(answer, calls=calls)


def _first_half(answer: Answer) -> Answer:
    pieces = answer.pieces
    if len(pieces) == 1:
        return replace(answer, text=[pieces[0][: len(pieces[0]) // 2]])
    kept = len(pieces) // 2
    if answer.text:
        return replace(answer, text=pieces[:kept])
    return replace(answer, tokens=answer.tokens[:kept])

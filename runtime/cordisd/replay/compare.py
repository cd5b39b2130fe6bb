"""Two canonical requests, or two texts, and how they differ: first in words, then as a diff."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from typing import Any, Final

from cordisd.events import JsonObject
from cordisd.replay.canonical import canonical_json

CONTEXT_LINES: Final = 3
MAX_DIFF_LINES: Final = 60


def is_equal(recorded: object, found: object) -> bool:
    """Whether two values are the same JSON."""
    return canonical_json(recorded) == canonical_json(found)


def explain(recorded: JsonObject, found: JsonObject) -> str:
    """The first part of a request that is not as recorded: which it is, and a unified diff of it."""
    where, a, b = next(_differences(recorded, found))
    return f"{where} differs\n{unified_diff(a, b)}"


def unified_diff(recorded: object, found: object) -> str:
    """A diff of two values; of two texts line by line, of anything else as indented JSON."""
    rows = list(
        difflib.unified_diff(_lines(recorded), _lines(found), "recorded", "now", n=CONTEXT_LINES, lineterm="")
    )
    if len(rows) > MAX_DIFF_LINES:
        rows = [*rows[:MAX_DIFF_LINES], f"… {len(rows) - MAX_DIFF_LINES} more lines"]
    return "\n".join(rows)


def likeness(recorded: JsonObject, found: JsonObject) -> tuple[int, float]:
    """How near two requests are: equal messages from the beginning, then the share of equal members."""
    messages, others = recorded.get("messages", []), found.get("messages", [])
    n_equal = 0
    for one, other in zip(messages, others, strict=False):
        if not is_equal(one, other):
            break
        n_equal += 1
    names = recorded.keys() | found.keys()
    same = sum(is_equal(recorded.get(name), found.get(name)) for name in names if name != "messages")
    return n_equal - abs(len(messages) - len(others)), same / max(len(names), 1)


def _differences(recorded: JsonObject, found: JsonObject) -> Iterator[tuple[str, Any, Any]]:
    """What differs, in the order of the request: other members, tools, then messages."""
    for name in sorted((recorded.keys() | found.keys()) - {"messages", "tools"}):
        if not is_equal(recorded.get(name, _ABSENT), found.get(name, _ABSENT)):
            yield f'"{name}"', recorded.get(name, _ABSENT), found.get(name, _ABSENT)
    yield from _list_differences("tools", recorded, found, _tool_name)
    yield from _list_differences("messages", recorded, found, _role)
    yield "the request", recorded, found


def _list_differences(name: str, recorded: JsonObject, found: JsonObject, label: Any) -> Iterator[Any]:
    a, b = recorded.get(name, []), found.get(name, [])
    if not isinstance(a, list) or not isinstance(b, list):
        if not is_equal(a, b):
            yield f'"{name}"', a, b
        return
    for number in range(max(len(a), len(b))):
        one = a[number] if number < len(a) else _ABSENT
        other = b[number] if number < len(b) else _ABSENT
        if is_equal(one, other):
            continue
        where = f"{name}[{number}]{label(one if other is _ABSENT else other)}"
        if other is _ABSENT or one is _ABSENT:
            yield f"{where} ({'is missing' if other is _ABSENT else 'was not recorded'}):", one, other
        else:
            yield _deeper(where, one, other)


def _deeper(where: str, one: Any, other: Any) -> tuple[str, Any, Any]:
    """The one member in which two objects differ, if it is one, followed down to its value."""
    while isinstance(one, dict) and isinstance(other, dict):
        names = [
            name
            for name in {**one, **other}
            if not is_equal(one.get(name, _ABSENT), other.get(name, _ABSENT))
        ]
        if len(names) != 1:
            break
        (name,) = names
        where, one, other = f"{where}.{name}", one.get(name, _ABSENT), other.get(name, _ABSENT)
    return where, one, other


def _tool_name(tool: Any) -> str:
    function = tool.get("function") if isinstance(tool, dict) else None
    return f' "{function.get("name")}"' if isinstance(function, dict) else ""


def _role(message: Any) -> str:
    if not isinstance(message, dict):
        return ""
    call = f" {message['tool_call_id']}" if "tool_call_id" in message else ""
    return f" ({message.get('role')}{call})"


def _lines(value: object) -> list[str]:
    if value == _ABSENT:
        return []
    if isinstance(value, str):
        return value.split("\n")
    return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True).split("\n")


_ABSENT: Final = "\x00absent"

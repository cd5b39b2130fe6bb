"""Two canonical requests, or two texts, and how they differ: first in words, then as a diff."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from cordisd.events import JsonObject
from cordisd.replay.canonical import canonical_json

CONTEXT_LINES: Final = 3
MAX_DIFF_LINES: Final = 60
MAX_COMPARED_LINES: Final = 1_000
"""Longer texts are cut: the time that a diff takes grows with the square of their length."""
MAX_LINE_CHARS: Final = 160


class Difference(NamedTuple):
    """A part of a request that is not as recorded, in words, and what it was and is."""

    place: str
    recorded: Any
    found: Any


class _Absent:
    """Stands for what is not there."""


_ABSENT: Final = _Absent()


def is_equal(recorded: object, found: object) -> bool:
    """Whether two values are the same JSON."""
    if recorded is _ABSENT or found is _ABSENT:
        return recorded is found
    return canonical_json(recorded) == canonical_json(found)


def is_equal_request(
    recorded: JsonObject, found: JsonObject, known: tuple[JsonObject, JsonObject] | None = None
) -> bool:
    """Whether two requests are the same JSON. `known` are equal ones: messages of both that are the same
    objects in these are not compared again."""
    pairs = zip(recorded.get("messages", []), found.get("messages", []), strict=False)
    n_same = 0
    for (one, other), (a, b) in zip(
        pairs, zip(*(body.get("messages", []) for body in known or ({}, {})), strict=False), strict=False
    ):
        if one is not a or other is not b:
            break
        n_same += 1
    tails = (
        {**body, "messages": body["messages"][n_same:]} if n_same else body for body in (recorded, found)
    )
    return is_equal(*tails)


def explain(recorded: JsonObject, found: JsonObject) -> str:
    """The first part of a request that is not as recorded: which it is, and a unified diff of it."""
    first = next(_differences(recorded, found))
    return f"{first.place}\n{unified_diff(first.recorded, first.found)}"


def unified_diff(recorded: object, found: object) -> str:
    """A diff of two values; of two texts line by line, of anything else as indented JSON."""
    are_texts = all(isinstance(value, str) or value is _ABSENT for value in (recorded, found))
    before, now = (_lines(value, is_text=are_texts) for value in (recorded, found))
    n_equal = 0
    while n_equal < min(len(before), len(now)) and before[n_equal] == now[n_equal]:
        n_equal += 1
    skipped = max(n_equal - CONTEXT_LINES, 0) if max(len(before), len(now)) > MAX_COMPARED_LINES else 0
    before, now = (lines[skipped : skipped + MAX_COMPARED_LINES] for lines in (before, now))
    rows = list(difflib.unified_diff(before, now, "recorded", "now", n=CONTEXT_LINES, lineterm=""))
    if skipped:
        rows.insert(2, f"… {skipped} equal lines")
    if len(rows) > MAX_DIFF_LINES:
        rows = [*rows[:MAX_DIFF_LINES], f"… {len(rows) - MAX_DIFF_LINES} more lines"]
    return "\n".join(rows)


def likeness(recorded: JsonObject, found: JsonObject) -> tuple[int, float]:
    """How near two requests are: equal messages from the beginning, then the share of equal members."""
    messages, others = recorded.get("messages", []), found.get("messages", [])
    n_equal = 0
    for one, other in zip(messages, others, strict=False):
        if one != other:
            break
        n_equal += 1
    names = recorded.keys() | found.keys()
    same = sum(recorded.get(name) == found.get(name) for name in names if name != "messages")
    return n_equal - abs(len(messages) - len(others)), same / max(len(names), 1)


def _differences(recorded: JsonObject, found: JsonObject) -> Iterator[Difference]:
    """What differs, in the order of the request: other members, tools, then messages."""
    for name in sorted((recorded.keys() | found.keys()) - {"messages", "tools"}):
        a, b = recorded.get(name, _ABSENT), found.get(name, _ABSENT)
        if not is_equal(a, b):
            yield _deeper(f'"{name}"', a, b)
    for name in ("tools", "messages"):
        a, b = recorded.get(name, _ABSENT), found.get(name, _ABSENT)
        if is_equal(a, b):
            continue
        a, b = ([] if one is _ABSENT else one for one in (a, b))
        if isinstance(a, list) and isinstance(b, list):
            yield from _order_of_tools(a, b) if name == "tools" else ()
            yield from _items(name, a, b)
        yield Difference(f'"{name}" differs', a, b)


def _order_of_tools(recorded: list[Any], found: list[Any]) -> Iterator[Difference]:
    """Tools that have come, gone or changed places; nothing where it is a tool itself that has changed."""
    before, now = ([_name_of(tool) for tool in tools] for tools in (recorded, found))
    if len(before) == len(now) and sorted(before) == sorted(now) and before != now:
        yield Difference("the order of the tools differs", before, now)
    if len(before) != len(now) and len(set(before)) == len(before) and len(set(now)) == len(now):
        for number, name in enumerate(before):
            if name not in now:
                yield Difference(f'tools[{number}] "{name}" is missing', recorded[number], _ABSENT)
        for number, name in enumerate(now):
            if name not in before:
                yield Difference(f'tools[{number}] "{name}" was not recorded', _ABSENT, found[number])


def _items(name: str, recorded: list[Any], found: list[Any]) -> Iterator[Difference]:
    for number in range(max(len(recorded), len(found))):
        one = recorded[number] if number < len(recorded) else _ABSENT
        other = found[number] if number < len(found) else _ABSENT
        if is_equal(one, other):
            continue
        where = f"{name}[{number}]{_label(name, one if other is _ABSENT else other)}"
        if other is _ABSENT:
            yield Difference(f"{where} is missing", one, other)
        elif one is _ABSENT:
            yield Difference(f"{where} was not recorded", one, other)
        else:
            yield _deeper(where, one, other)


def _deeper(where: str, one: Any, other: Any) -> Difference:
    """The one member in which two values differ, if it is one, followed down to its value."""
    while True:
        if isinstance(one, dict) and isinstance(other, dict):
            pairs = {
                f".{name}": (one.get(name, _ABSENT), other.get(name, _ABSENT)) for name in {**one, **other}
            }
        elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
            pairs = {f"[{number}]": pair for number, pair in enumerate(zip(one, other, strict=True))}
        else:
            break
        different = [name for name, pair in pairs.items() if not is_equal(*pair)]
        if len(different) != 1:
            break
        where += different[0]
        one, other = pairs[different[0]]
    if other is _ABSENT:
        return Difference(f"{where} is missing", one, other)
    return Difference(f"{where} {'was not recorded' if one is _ABSENT else 'differs'}", one, other)


def _label(name: str, item: Any) -> str:
    if not isinstance(item, dict):
        return ""
    if name == "tools":
        return f' "{_name_of(item)}"'
    call = f" {item['tool_call_id']}" if "tool_call_id" in item else ""
    return f" ({item.get('role')}{call})"


def _name_of(tool: Any) -> str:
    function = tool.get("function") if isinstance(tool, dict) else None
    return str(function.get("name")) if isinstance(function, dict) else ""


def _lines(value: object, *, is_text: bool) -> list[str]:
    """Lines of a diff: no long ones, and what cannot be seen is escaped."""
    if value is _ABSENT:
        return []
    text = str(value) if is_text else json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True)
    lines: list[str] = []
    for line in text.split("\n"):
        if not line.isprintable():
            line = "".join(one if one.isprintable() else _escaped(one) for one in line)
        lines += [line[at : at + MAX_LINE_CHARS] for at in range(0, max(len(line), 1), MAX_LINE_CHARS)]
    return lines


def _escaped(character: str) -> str:
    return "\t" if character == "\t" else character.encode("unicode_escape").decode("ascii")

"""What differs between two agents, for people: a diff of each text, a line for each value."""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from cordisd.agent.fingerprint import sha256
from cordisd.events import JsonObject

ABSENT: Final = "(absent)"
_SENT: Final = ("tools", "parameters")
MAX_CHARS: Final = 80
"""Of a value in a line; a longer one is cut, and named by its hash."""


def differences(a: JsonObject, b: JsonObject, names: tuple[str, str]) -> Iterator[str]:
    """Lines without their ends that tell how two fingerprint documents differ; none for equal ones.

    The same for equal documents, whenever and wherever it is made.
    """
    yield from _texts("system prompt", [a["system"], b["system"]], names)
    contexts = dict(a["contexts"]), dict(b["contexts"])
    for name in _union(*contexts):
        yield from _texts(f"context {name}", [side.get(name) for side in contexts], names)
    tools = [{tool["name"]: tool for tool in side["tools"]} for side in (a, b)]
    for name in _union(*tools):
        described = [side.get(name, {}).get("description") for side in tools]
        yield from _texts(f"tool {name}: description", described, names)
        schemas = [_pretty(side[name]["parameters"]) if name in side else None for side in tools]
        yield from _texts(f"tool {name}: schema", schemas, names)
    yield from _order("contexts", *contexts)
    yield from _order("tools", *tools)
    yield from _values("parameters", a["parameters"], b["parameters"])
    behaviour = _by_entry(a["behaviour"]), _by_entry(b["behaviour"])
    for entry in sorted(behaviour[0].keys() | behaviour[1].keys()):
        if entry in behaviour[0] and entry in behaviour[1]:
            yield from _values(entry, behaviour[0][entry], behaviour[1][entry])
        else:
            yield f"entry {entry}: only in {names[0] if entry in behaviour[0] else names[1]}"
    yield from _values("isolated", a.get("isolated", {}), b.get("isolated", {}))
    yield from _values("contract", a["contracts"], b["contracts"])
    if a.get("sent") != b.get("sent") and all(_pretty(a[key]) == _pretty(b[key]) for key in _SENT):
        yield "tools, parameters: the same, but their keys are sent in another order"


def _texts(what: str, texts: Sequence[str | None], names: tuple[str, str]) -> Iterator[str]:
    """A unified diff of two texts; None is one that is not there."""
    a_label, b_label = (
        "/dev/null" if text is None else f"{name}: {what}" for name, text in zip(names, texts, strict=True)
    )
    a_lines, b_lines = (text.split("\n") if text else [] for text in texts)
    yield from difflib.unified_diff(a_lines, b_lines, a_label, b_label, lineterm="")


def _order(what: str, a: Iterable[str], b: Iterable[str]) -> Iterator[str]:
    before, after = (", ".join(names) or "(none)" for names in (a, b))
    if before != after:
        yield f"{what}: {before} -> {after}"


def _values(prefix: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[str]:
    """`bash.timeoutMs: 300000 -> 60000` for each value that differs, objects gone into."""
    for key in sorted(a.keys() | b.keys()):
        before, after = a.get(key), b.get(key)
        if isinstance(before, dict) and isinstance(after, dict) and before and after:
            yield from _values(f"{prefix}.{key}", before, after)
        elif (key in a) != (key in b) or _pretty(before) != _pretty(after):
            yield f"{prefix}.{key}: {_shown(key, a, b)} -> {_shown(key, b, a)}"


def _shown(key: str, values: Mapping[str, Any], others: Mapping[str, Any]) -> str:
    if key not in values:
        return ABSENT
    value = values[key]
    if isinstance(value, float) and value.is_integer() and not isinstance(others.get(key), int):
        value = int(value)
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    if len(text) <= MAX_CHARS:
        return text
    cut = sha256(text.encode("utf-8", "surrogatepass"))[:12]
    return f"{text[:MAX_CHARS]}… ({len(text)} characters, sha256 {cut})"


def _by_entry(behaviour: list[tuple[str, JsonObject]]) -> dict[str, JsonObject]:
    """The keys of each entry; a second one of a name is called `name#2`."""
    seen: Counter[str] = Counter()
    found: dict[str, JsonObject] = {}
    for name, keys in behaviour:
        seen[name] += 1
        found[name if seen[name] == 1 else f"{name}#{seen[name]}"] = keys
    return found


def _union(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys((*a, *b)))


def _pretty(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, indent=2)

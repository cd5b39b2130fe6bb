"""An entry's configuration, validated: pydantic's findings in words, at the line of the value itself."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any

from yaml.nodes import Node

from cordisd.errors import nearest
from cordisd.events import JsonObject
from cordisd.kernel.document import find
from cordisd.kernel.entry import Entry
from cordisd.kernel.report import Report
from cordisd.settings import EntryConfig

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic_core import ErrorDetails, ValidationError

Path = tuple[str | int, ...]

_SAID_BY_SCHEMA = frozenset(
    {
        "greater_than",
        "greater_than_equal",
        "less_than",
        "less_than_equal",
        "literal_error",
        "enum",
        "int_from_float",
    }
)
"""Kinds of fault where what is allowed, in words, says all; so it does for a wrong type or a union."""


def read_config(
    entry_class: type[Entry], raw: JsonObject, node: Node, entry_id: str, *, lenient: bool, report: Report
) -> EntryConfig | None:
    """The validated configuration, or None when faults were reported.

    `node` is where `raw` was written. `lenient`: unknown top-level keys are dropped with a warning; below
    the top the entry's own models decide.
    """
    from pydantic import ValidationError

    try:
        return _validated(entry_class, raw, node)
    except ValidationError as error:
        unknown = {
            str(fault["loc"][0])
            for fault in error.errors(include_url=False, include_input=False)
            if lenient and fault["type"] == "extra_forbidden" and len(fault["loc"]) == 1
        }
        if not unknown:
            explain(error, entry_class.Config, raw, node, report, entry_id)
            return None
    for key in unknown:
        hint = nearest(key, _properties(_schema(entry_class.Config)))
        report.warn(find(node, [key]), f"unknown key $.{key} is ignored{hint}", entry_id)
    known = {key: value for key, value in raw.items() if key not in unknown}
    return read_config(entry_class, known, node, entry_id, lenient=False, report=report)


def _validated(entry_class: type[Entry], raw: JsonObject, node: Node) -> EntryConfig:
    takes = signature(entry_class.read_config).parameters.values()
    if any(one.name == "folder" or one.kind is one.VAR_KEYWORD for one in takes):
        return entry_class.read_config(raw, folder=os.path.dirname(node.start_mark.name))
    return entry_class.read_config(raw)


def explain(
    error: ValidationError,
    model: type[BaseModel],
    raw: JsonObject,
    node: Node,
    report: Report,
    entry_id: str | None = None,
    what: str = "invalid config",
) -> None:
    """Report what `model` finds wrong with `raw`, which was written at `node`, each fault at its own line."""
    schema = _schema(model)
    by_path: dict[Path, list[ErrorDetails]] = {}
    for fault in error.errors(include_url=False):
        by_path.setdefault(_real_path(fault, raw), []).append(fault)
    for path, faults in by_path.items():
        report.problem(find(node, path), f"{what}: {_words(path, faults, schema)}", entry_id)


def _words(path: Path, faults: Sequence[ErrorDetails], schema: JsonObject) -> str:
    fault, where = faults[0], "$" + "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path)
    allowed = " or ".join(_allowed(_at(schema, path)))
    if fault["loc"][-1:] == ("[key]",):
        known = _at(schema, path[:-1]).get("propertyNames", {}).get("enum", [])
        if known:
            return f"unknown key {where}{nearest(str(path[-1]), known)}; allowed: {', '.join(known)}"
        return f"{where}: this name {fault['msg'].removeprefix('String ')}"
    match fault["type"]:
        case "extra_forbidden":
            known = _properties(_at(schema, path[:-1]))
            hint = nearest(str(path[-1]), known)
            return f"unknown key {where}{hint}; allowed: {', '.join(sorted(known)) or 'no key at all'}"
        case "missing":
            return f"{where} is required" + (f": {allowed}" if allowed else "")
        case "value_error" | "assertion_error":
            return f"{where}: {fault['msg'].partition(', ')[2] or fault['msg']}"
        case kind if allowed and (len(faults) > 1 or kind in _SAID_BY_SCHEMA or kind.endswith("_type")):
            return f"{where} must be {allowed}, got {_show(fault['input'])}"
        case _:
            return f"{where}: {fault['msg'][:1].lower()}{fault['msg'][1:]}, got {_show(fault['input'])}"


def _real_path(fault: ErrorDetails, raw: object) -> Path:
    """The keys and indexes of a fault's location, without the names of union members in it."""
    path: list[str | int] = []
    value: Any = raw
    for step in fault["loc"]:
        inside = range(len(value)) if isinstance(value, list) else value if isinstance(value, dict) else ()
        if step in inside:
            value = value[step]
            path.append(step)
        elif fault["type"] == "missing" and step == fault["loc"][-1]:
            path.append(step)
    return tuple(path)


def _schema(model: type[BaseModel]) -> JsonObject:
    from pydantic.errors import PydanticUserError

    try:
        return model.model_json_schema()
    except PydanticUserError:  # a field without a JSON form; the message then goes without the allowed range
        return {}


def _at(schema: JsonObject, path: Path) -> JsonObject:
    """The part of a JSON Schema that describes `path`; empty when it says nothing of it."""
    part = schema
    for step in path:
        for option in _options(part, schema):
            child = (
                option.get("items")
                if isinstance(step, int)
                else option.get("properties", {}).get(step, option.get("additionalProperties"))
            )
            if isinstance(child, dict):
                part = child
                break
        else:
            return {}
    options = list(_options(part, schema))
    return options[0] if len(options) == 1 else {"anyOf": options}


def _options(part: JsonObject, schema: JsonObject) -> Iterator[JsonObject]:
    """The alternatives of a schema, references resolved."""
    if "$ref" in part:
        yield from _options(schema["$defs"][part["$ref"].rpartition("/")[2]], schema)
    elif "anyOf" in part or "oneOf" in part:
        for option in part.get("anyOf") or part["oneOf"]:
            yield from _options(option, schema)
    else:
        yield part


def _properties(part: JsonObject) -> set[str]:
    return {key for option in part.get("anyOf", [part]) for key in option.get("properties", ())}


def _allowed(part: JsonObject) -> list[str]:
    """What a schema allows, in words, one for each alternative."""
    if "anyOf" in part:
        return [words for option in part["anyOf"] for words in _allowed(option)]
    if "const" in part or "enum" in part:
        return [_show(value) for value in part.get("enum", [part.get("const")])]
    words = {"integer": "an integer", "array": "a list", "object": "a mapping", "null": "null"}.get(
        part.get("type", ""), f"a {part.get('type')}"
    )
    low = part.get("minimum", part.get("exclusiveMinimum"))
    high = part.get("maximum", part.get("exclusiveMaximum"))
    match low, high:
        case None, None:
            bounds = ""
        case _, None:
            bounds = f" above {low}" if "exclusiveMinimum" in part else f" of at least {low}"
        case None, _:
            bounds = f" below {high}" if "exclusiveMaximum" in part else f" of at most {high}"
        case _:
            bounds = f" from {low} to {high}"
    return [words + bounds] if part.get("type") else []


def _show(value: object) -> str:
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else text[:59] + "…"

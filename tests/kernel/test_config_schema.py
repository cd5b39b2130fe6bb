"""What the schema of a config says is what the loader does, entry by entry and field by field."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import Field, ValidationError

from cordisd.events import JsonObject
from cordisd.kernel.config_schema import EXPRESSION, EXPRESSION_SCHEMA, config_schema
from cordisd.kernel.entry import Entry
from cordisd.kernel.expr import parse
from cordisd.kernel.names import OURS, PUBLISHED, is_published, resolve
from cordisd.settings import EntryConfig

NAMES = [*OURS, *PUBLISHED]
UNKNOWN = "noSuchKey"
SAMPLES = [
    *(None, True, False, -1, 0, 0.5, 1, 300, 2**53, "", "x", "/x", "off", "none", "always", "null"),
    *([], ["x"], ["<unlisted-tools>"], [1], {}, {"x": "y"}, {"x": 1}, {"a=b": "c"}, {"nofile": 300}),
    *({"as": -1}, {"id": "m"}, {"id": ""}, {"enabled": False}, {"enabled": True}),
]
ONLY_THE_LOADER_KNOWS = {
    "agent": {"toolOrder"},  # the marker must be in it
    "dsh-agent-spine-demo": {"toolOrder"},
    "recorder": {"masks"},  # regular expressions that hit no token
    "dsh-llm-retry": {"retryPolicy"},  # refused whatever it is
    "openai": {"apiKeyEnv", "headers"},  # a variable of one's own needs a baseUrl; names of headers
    "terminal": {"timeoutMs", "maxTimeoutMs"},  # which is the longer one
}
ONLY_THE_EDITOR_MINDS = {  # pydantic takes 0 for a literal false
    "dsh-agent-spine-demo": {(key, "0") for key in ("workspaceContext", "skills", "toolBash", "toolJobs")},
}


def definitions(name: str) -> tuple[type[Entry], dict[str, JsonObject]]:
    entry_class = resolve(name).import_class()
    found = config_schema(entry_class, "config", is_lenient=is_published(name) or entry_class.lenient)
    return entry_class, {**found, "expression": EXPRESSION_SCHEMA}


def validator(found: dict[str, JsonObject]) -> Draft202012Validator:
    return Draft202012Validator({"$ref": "#/$defs/config", "$defs": found})


def places(
    schema: JsonObject, found: dict[str, JsonObject], sample: object
) -> Iterator[tuple[str, JsonObject]]:
    """`sample` as the value of each field in turn, those of nested models included: the field, the config."""
    base = good_value(schema, found)
    for key, part in schema["properties"].items():
        yield key, {**base, key: sample}
        for inner in (part, part.get("items", {})):
            if "$ref" in inner:
                for _, value in places(referred(inner, found), found, sample):
                    yield key, {**base, key: value if inner is part else [value]}
    yield UNKNOWN, {**base, UNKNOWN: sample}


def good_value(part: JsonObject, found: dict[str, JsonObject]) -> Any:
    """A small value that a schema accepts; of a mapping, the required fields."""
    if "$ref" in part:
        return good_value(referred(part, found), found)
    if "anyOf" in part:
        return good_value(part["anyOf"][0], found)
    kind = part["type"] if isinstance(part["type"], str) else part["type"][0]
    if kind == "object":
        fields = part.get("properties", {})
        return {key: good_value(fields[key], found) for key in part.get("required", ())}
    if "const" in part or "enum" in part:
        return part["const"] if "const" in part else part["enum"][0]
    return {"string": "x", "integer": 1, "number": 1, "boolean": True, "array": []}[kind]


def referred(part: JsonObject, found: dict[str, JsonObject]) -> JsonObject:
    return found[part["$ref"].removeprefix("#/$defs/")]


def loads(entry_class: type[Entry], raw: JsonObject) -> bool:
    try:
        entry_class.read_config(raw)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize("name", NAMES)
def test_the_schema_accepts_what_the_loader_accepts_and_nothing_else(name: str) -> None:
    entry_class, found = definitions(name)
    check = validator(found)
    wrong, missed = set(), set()
    for sample in SAMPLES:
        for key, raw in places(found["config"], found, sample):
            if key == UNKNOWN and found["config"].get("additionalProperties"):
                continue  # a warning, in both
            is_good, is_valid = loads(entry_class, raw), check.is_valid(raw)
            if is_good and not is_valid:
                wrong.add((key, repr(sample)))
            elif is_valid and not is_good:
                missed.add(key)
    assert wrong == ONLY_THE_EDITOR_MINDS.get(name, set())
    assert missed == ONLY_THE_LOADER_KNOWS.get(name, set())


@pytest.mark.parametrize("name", NAMES)
def test_every_field_and_every_model_is_described(name: str) -> None:
    entry_class, found = definitions(name)
    assert entry_class.__doc__
    assert len(found["config"]["properties"]) >= len(entry_class.Config.model_fields)
    silent = [
        f"{model}.{field}"
        for model, schema in found.items()
        for field, part in schema.get("properties", {}).items()
        if not part.get("description")
    ]
    assert silent == [], "write a string below each of these fields"
    assert [model for model, schema in found.items() if not schema.get("description")] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_field_of_any_kind_takes_an_expression(name: str) -> None:
    _, found = definitions(name)
    check = validator(found)
    for _, raw in places(found["config"], found, "Number(process.env.X ?? 1)"):
        if UNKNOWN not in str(raw):
            assert list(check.iter_errors(raw)) == []
    assert check.is_valid("JSON.parse(process.env.CONFIG ?? '{}')")


@pytest.mark.parametrize(
    "text",
    [
        "process.env.X",
        "process.env.X ?? 'literal'",
        "process.env.X ?? process.cwd()",
        "process.env.X || 'literal'",
        "process.env.X && 800 || 50000",
        "process.cwd() + '/sub'",
        "process.execPath",
        "process.platform === 'win32'",
        "'win32'!==process.platform",
        "Number(process.env.X ?? 1000000)",
        "JSON.parse(process.env.X ?? '{}')",
        "process.env.X === undefined ? true : JSON.parse(process.env.X)",
        "(process.env.A ?? (process.env.B === undefined ? 'x' : 'y')) === 'z' ? 'never' : 'ask'",
        "!process.env.X",
        "dshHomePath('sessions')",
    ],
)
def test_an_expression_looks_like_one(text: str) -> None:
    parse(text)
    assert re.search(EXPRESSION, text)


@pytest.mark.parametrize(
    "text",
    [
        "keep",
        "",
        "300",
        "proces.env.X",
        "process.env",
        "process.environ.X",
        "process.cwd",
        "Numbr(1)",
        "xNumber(1)",
    ],
)
def test_a_mistyped_text_does_not(text: str) -> None:
    assert not re.search(EXPRESSION, text)


class Recursive(EntryConfig):
    """A tree."""

    children: list[Recursive] = []
    """Its branches."""


class Odd(EntryConfig):
    """Fields that pydantic describes in unusual ways."""

    by_field: int = Field(default=1, description="Described in its Field.")
    """Described below."""
    pair: tuple[int, str] = (1, "x")
    """Two values."""
    anything: Any = object()
    """Has a default without a JSON form."""


def test_a_model_that_contains_itself_is_described() -> None:
    found = config_schema(type("Own", (Entry,), {"Config": Recursive}), "k", is_lenient=False)
    check = Draft202012Validator({"$ref": "#/$defs/k", "$defs": found})
    assert check.is_valid({"children": [{"children": []}]})
    assert not check.is_valid({"children": [{"childs": []}]})


def test_unusual_fields_of_a_plug_in_are_described() -> None:
    found = config_schema(type("Own", (Entry,), {"Config": Odd}), "k", is_lenient=False)
    fields = found["k"]["properties"]
    assert fields["byField"]["description"] == "Described in its Field."
    assert fields["anything"] == {"description": "Has a default without a JSON form."}
    check = Draft202012Validator({"$ref": "#/$defs/k", "$defs": {**found, "expression": EXPRESSION_SCHEMA}})
    assert check.is_valid({"pair": ["Number(process.env.X)", "x"]})
    assert not check.is_valid({"pair": ["x", "x"]})


def test_both_spellings_of_a_published_key_are_known() -> None:
    _, found = definitions("dsh-llm-deepseek")
    assert found["config"]["properties"].keys() >= {"baseURL", "baseUrl"}

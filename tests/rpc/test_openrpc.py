"""The OpenRPC document is well formed, complete, and one with the table of methods and the shapes."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft7Validator
from pydantic import BaseModel, ValidationError

from contract import object_of
from cordisd import errors, preset_shapes, shapes, stored_shapes, wire
from cordisd.events import JsonObject
from cordisd.rpc import initialize
from cordisd.rpc import params as p
from cordisd.rpc.methods import METHODS
from cordisd.rpc.openrpc import document
from cordisd.rpc.shape_schema import schema_of

DESCRIBED = {
    p.Attach: shapes.SessionAttachParams,
    p.Cancel: shapes.SessionCancelParams,
    p.CreateSession: shapes.SessionCreateParams,
    p.Fork: stored_shapes.SessionForkParams,
    p.GetProfile: preset_shapes.ProfileGetParams,
    p.Nothing: shapes.Empty,
    p.OfSession: shapes.SessionParams,
    p.Outcome: stored_shapes.SessionOutcomeParams,
    p.Prompt: shapes.SessionPromptParams,
    p.ReadEvents: stored_shapes.SessionEventsParams,
    p.RenderPreset: preset_shapes.PresetRenderParams,
    p.SelectPreset: preset_shapes.PresetSelectParams,
    p.SetDirectory: shapes.WorkingDirectorySetParams,
    p.Steer: shapes.SessionSteerParams,
}
"""The shape that describes, for clients, what each model validates."""
ONLY_PUBLISHED = {"SubagentStartedParams", "SubagentFinishedParams"}
"""What published daemons send and this one does not."""
SAMPLES = [
    *(True, -1, 0, 1, 1.5, 2**53 - 1, 2**53, "", "x", "drop", "timeout", [], ["x"], {}, {"x": "y"}),
    *([{"type": "text", "text": "x"}], [{"type": "image"}], [{}]),
]
FIELDS = {  # OpenRPC 1.3: what an object of each kind must have, and what else it may
    "document": ("openrpc info methods", "servers components externalDocs"),
    "info": ("title version", "description termsOfService contact license"),
    "license": ("name", "url"),
    "server": ("name url", "summary description variables"),
    "method": (
        "name params",
        "result paramStructure errors tags summary description deprecated servers links examples",
    ),
    "content": ("name schema", "summary description required deprecated"),
    "error": ("code message", "data"),
    "components": (
        "",
        "contentDescriptors schemas examples links errors examplePairingObjects tags",
    ),
    "reference": ("$ref", ""),
}


@pytest.fixture(scope="module")
def found() -> JsonObject:
    return document()


def objects(found: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    """Every object of the document but the schemas, with its kind."""
    yield "document", found
    yield "info", found["info"]
    yield "license", found["info"]["license"]
    yield from (("server", server) for server in found["servers"])
    yield "components", found["components"]
    yield from (("error", error) for error in found["components"]["errors"].values())
    for method in found["methods"]:
        yield "method", method
        yield from (("content", one) for one in (*method["params"], method["result"]))
        yield from (("reference", one) for one in method["errors"])
    for notification in found["x-notifications"]:  # our own, described as a method is
        yield "method", notification
        yield from (("content", one) for one in notification["params"])


def references(part: Any) -> Iterator[str]:
    for key, value in part.items() if isinstance(part, dict) else enumerate(part):
        if key == "$ref":
            yield value
        elif isinstance(value, dict | list):
            yield from references(value)


def test_the_document_has_the_fields_of_the_specification_and_no_others(found: JsonObject) -> None:
    assert re.fullmatch(r"1\.3\.\d+", found["openrpc"])
    for kind, one in objects(found):
        required, optional = (set(words.split()) for words in FIELDS[kind])
        assert required <= one.keys(), (kind, one)
        own = {name for name in one if name.startswith("x-")}
        assert one.keys() - own <= required | optional, (kind, one)


def test_params_are_by_name_each_once_and_the_required_ones_first(found: JsonObject) -> None:
    for method in found["methods"]:
        names = [one["name"] for one in method["params"]]
        assert method["paramStructure"] == "by-name"
        assert len(set(names)) == len(names)
        assert [one["required"] for one in method["params"]] == sorted(
            (one["required"] for one in method["params"]), reverse=True
        )


def test_every_schema_is_one_and_every_reference_leads_somewhere(found: JsonObject) -> None:
    schemas = [one["schema"] for kind, one in objects(found) if kind == "content"]
    for schema in (*schemas, *found["components"]["schemas"].values()):
        Draft7Validator.check_schema(schema)
    for reference in references(found):
        start, *path = reference.split("/")
        part = found
        for word in path:
            part = part[word]
        assert start == "#" and part
    for kind in found["components"].values():
        assert all(re.fullmatch(r"[a-zA-Z0-9._-]+", name) for name in kind)
    defined = {f"#/components/schemas/{name}" for name in found["components"]["schemas"]}
    assert defined <= {*references(found)}


def test_table_wire_and_document_have_the_same_methods_and_notifications(found: JsonObject) -> None:
    assert [method["name"] for method in found["methods"]] == list(wire.METHODS)
    assert METHODS.keys() | {wire.INITIALIZE, wire.SHUTDOWN} == set(wire.METHODS)
    assert not METHODS.keys() & {wire.INITIALIZE, wire.SHUTDOWN}, "the connection itself serves them"
    assert [one["name"] for one in found["x-notifications"]] == list(wire.NOTIFICATIONS)


def test_everything_says_what_it_is_in_one_line(found: JsonObject) -> None:
    for one in (*found["methods"], *found["x-notifications"]):
        assert re.fullmatch(r"[A-Z`][^\n|]{10,90}\.", one["summary"]), one
    for method in found["methods"]:
        for param in method["params"]:
            assert param.get("description") or param["name"] in ("model", "preset"), (method["name"], param)


def test_every_error_of_the_wire_is_there_and_no_method_has_a_code_twice(found: JsonObject) -> None:
    known = found["components"]["errors"]
    drawn = {int(code) for code in re.findall(r"[A-Za-z]+Error +(-?\d+)\b", errors.__doc__ or "")}
    assert sorted(error["code"] for error in known.values()) == sorted(drawn)
    for error in known.values():
        assert re.fullmatch(r"[A-Z][^\n]+\.", error["message"])
    for method in found["methods"]:
        codes = [known[one["$ref"].rpartition("/")[2]]["code"] for one in method["errors"]]
        assert len(set(codes)) == len(codes)


def test_every_result_is_a_shape_and_every_shape_is_used(found: JsonObject) -> None:
    theirs = {
        name
        for module in (shapes, preset_shapes, stored_shapes)
        for name, shape in vars(module).items()
        if typing.is_typeddict(shape) and shape.__module__ == module.__name__
    }
    for method in found["methods"]:
        reference = method["result"]["schema"].get("$ref", "")
        assert reference.rpartition("/")[2] in theirs, f"{method['name']}: annotate `run` with a shape"
    used: dict[str, JsonObject] = {**found["components"]["schemas"]}
    for shape in DESCRIBED.values():
        schema_of(shape, used)
    sent = {f"Session{name.partition('.')[2].title()}Params" for name in wire.NOTIFICATIONS}
    bases = {"RolloutIdentity", "AgentIdentity"}
    assert theirs - used.keys() - sent - bases == {"InitializeParams"} | ONLY_PUBLISHED


def test_initialize_has_the_params_that_the_document_says(found: JsonObject) -> None:
    assert {one["name"] for one in found["methods"][0]["params"]} == initialize.FIELDS


def test_every_model_of_params_has_its_shape() -> None:
    assert {method.params for method in METHODS.values()} == DESCRIBED.keys()


@pytest.mark.parametrize("model", DESCRIBED, ids=lambda model: model.__name__)
def test_a_model_accepts_nothing_that_its_shape_does_not_describe(model: type[BaseModel]) -> None:
    known: dict[str, JsonObject] = {}
    schema_of(DESCRIBED[model], known)
    shape = {**known[DESCRIBED[model].__name__], "components": {"schemas": known}}
    described = Draft7Validator(shape)
    name = next(name for name, method in METHODS.items() if method.params is model)
    params = next(one["params"] for one in document()["methods"] if one["name"] == name)
    assert {one["name"]: one["required"] for one in params} == {
        field: field in shape["required"] for field in shape["properties"]
    }
    documented = Draft7Validator({**object_of(params), "components": document()["components"]})
    fields = {one["name"] for one in params}
    required = {one["name"] for one in params if one["required"]}
    good = {
        "sessionId": "x",
        "class": "success",
        "path": "x",
        "preset": "x",
        "contentBlocks": [{"type": "image"}],
    }
    base = {field: good[field] for field in required}
    accepted: set[str] = set()
    for field in fields:
        for sample in SAMPLES:
            value = {**base, field: sample}
            try:
                model.model_validate(value)
            except ValidationError:
                continue
            accepted.add(field)
            assert described.is_valid(value), (value, list(described.iter_errors(value)))
            assert documented.is_valid(value), value
    assert accepted == fields

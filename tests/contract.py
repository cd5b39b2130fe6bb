"""The OpenRPC document as a contract: what was said on the wire, held against it.

A result must not have more fields than are described, though clients are told to expect more some day.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Any

from jsonschema import Draft7Validator
from referencing import Registry
from referencing.jsonschema import DRAFT7

from cordisd.events import JsonObject

_URI = "urn:contract"
_BEFORE_A_METHOD = ("NotJsonError", "InvalidRequestError", "MethodNotFoundError")


class Contract:
    """The schemas of one document, ready to validate with."""

    def __init__(self, document: JsonObject) -> None:
        self.methods = {method["name"]: method for method in document["methods"]}
        self.notifications = {one["name"]: one for one in document["x-notifications"]}
        self._errors = document["components"]["errors"]
        schemas = {name: _closed(part) for name, part in document["components"]["schemas"].items()}
        everything = {
            "components": {"schemas": schemas},
            "result": {name: method["result"]["schema"] for name, method in self.methods.items()},
            "params": {
                name: object_of(one["params"]) for name, one in (self.methods | self.notifications).items()
            },
        }
        registry = Registry().with_resource(_URI, DRAFT7.create_resource(everything))
        self._validators = {
            (part, name): Draft7Validator({"$ref": f"{_URI}#/{part}/{_escaped(name)}"}, registry=registry)
            for part in ("params", "result")
            for name in everything[part]
        }

    def problems(self, part: str, name: str, value: object) -> list[str]:
        """What is wrong with a `value` as the `params` or the `result` of a method or a notification."""
        found = self._validators[part, name].iter_errors(value)
        return [f"{name}: {part}{error.json_path[1:]}: {error.message[:500]}" for error in found]

    def error_problems(self, name: str, error: JsonObject) -> list[str]:
        """What is wrong with the error that a method was answered with."""
        named = [one["$ref"].rpartition("/")[2] for one in self.methods[name]["errors"]] if name else []
        documented = {self._errors[one]["code"]: self._errors[one] for one in (*named, *_BEFORE_A_METHOD)}
        if error["code"] not in documented:
            return [f"{name}: undocumented error {error}"]
        if error.get("data") != documented[error["code"]].get("data"):
            return [f"{name}: undocumented data in {error}"]
        return []


def broken(contract: Contract, asked: dict[int, tuple[str, Any]], frames: Iterable[JsonObject]) -> list[str]:
    """Everything in the frames of a daemon, and in the requests that it served, that is not as documented."""
    return [problem for frame in frames for problem in _broken(contract, asked, frame)]


def _broken(contract: Contract, asked: dict[int, tuple[str, Any]], frame: JsonObject) -> Iterator[str]:
    if "method" in frame:
        if frame["method"] not in contract.notifications:
            yield f"undocumented notification {frame['method']}"
        else:
            yield from contract.problems("params", frame["method"], frame["params"])
        return
    method, params = asked[frame["id"]]
    if "error" in frame:
        yield from contract.error_problems(method, frame["error"])
    else:
        yield from contract.problems("result", method, frame["result"])
        yield from contract.problems("params", method, params or {})


def object_of(descriptors: list[JsonObject]) -> JsonObject:
    """The schema of a params object from its content descriptors."""
    return {
        "type": "object",
        "properties": {one["name"]: one["schema"] for one in descriptors},
        "required": [one["name"] for one in descriptors if one["required"]],
        "additionalProperties": False,
    }


def _closed(schema: JsonObject) -> JsonObject:
    if "properties" not in schema or "additionalProperties" in schema:
        return schema
    return {**copy.deepcopy(schema), "additionalProperties": False, "patternProperties": {"^x-": True}}


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")

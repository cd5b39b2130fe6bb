"""A shape's schema accepts what the shape describes."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, Required, TypedDict

import pytest

from cordisd.events import JsonObject
from cordisd.rpc.shape_schema import schema_of


class Base(TypedDict):
    """What it is."""

    first: str
    """Said below it."""
    second: NotRequired[int]


class Loose(Base, total=False):
    third: bool
    fourth: Required[list[Loose]]
    """Holds more of its kind."""


def test_the_schema_of_a_shape_tells_of_its_fields_and_which_must_be_there() -> None:
    found: dict[str, JsonObject] = {}
    assert schema_of(Loose, found) == {"$ref": "#/components/schemas/Loose"}
    assert found == {
        "Loose": {
            "type": "object",
            "properties": {
                "first": {"type": "string", "description": "Said below it."},
                "second": {"type": "integer"},
                "third": {"type": "boolean"},
                "fourth": {
                    "type": "array",
                    "items": {"$ref": "#/components/schemas/Loose"},
                    "description": "Holds more of its kind.",
                },
            },
            "required": ["first", "fourth"],
        }
    }


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (Literal["a", 1], {"enum": ["a", 1]}),
        (str | None, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        (dict[str, Any], {"type": "object"}),
        (dict[str, float], {"type": "object", "additionalProperties": {"type": "number"}}),
        (Annotated[int, {"minimum": 1}], {"type": "integer", "minimum": 1}),
        (
            list[Annotated[str, {"minLength": 1}]],
            {"type": "array", "items": {"type": "string", "minLength": 1}},
        ),
        (Any, {}),
    ],
)
def test_a_type_has_its_schema(annotation: object, schema: JsonObject) -> None:
    assert schema_of(annotation, {}) == schema


def test_a_type_that_json_does_not_have_is_refused() -> None:
    with pytest.raises(KeyError):
        schema_of(bytes, {})

"""Tool arguments are validated with the published complaints."""

from __future__ import annotations

import pytest

from cordisd.agent.arguments import parse_arguments
from cordisd.errors import ToolError

SCHEMA = {
    "type": "object",
    "properties": {
        "command": {"type": "string", "enum": ["view", "create"]},
        "line": {"type": "integer"},
        "range": {"type": "array", "items": {"type": "integer"}},
        "flag": {"type": "boolean"},
    },
    "required": ["command"],
}


def complaint(raw: str, **schema: object) -> str:
    with pytest.raises(ToolError) as caught:
        parse_arguments(raw, SCHEMA | schema)
    assert (caught.value.name, caught.value.code) == ("ToolArgsError", "INVALID_ARGS")
    return str(caught.value)


@pytest.mark.parametrize("raw", ["[]", '"ls"', "null", "3", '{"command": "ls', '{"a": NaN}', "{'a': 1}"])
def test_what_is_not_a_json_object_is_one_short_error(raw: str) -> None:
    assert complaint(raw).startswith('invalid arguments: "arguments" must be an object')


def test_a_json_error_names_its_position() -> None:
    assert "at character 12 of 15" in complaint('{"command": ls}')


def test_the_empty_string_counts_as_an_empty_object() -> None:
    assert complaint("") == 'invalid arguments: missing required property "command"'
    assert parse_arguments(" ", {"type": "object"}) == {}


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ('{"command": ["a"]}', '"command" must be a string'),
        ('{"command": null}', '"command" must be a string'),
        ('{"command": "nope"}', '"command" must be one of ["view","create"]'),
        ('{"command": "view", "line": 1.5}', '"line" must be an integer'),
        ('{"command": "view", "line": "1"}', '"line" must be an integer'),
        ('{"command": "view", "line": true}', '"line" must be an integer'),
        ('{"command": "view", "flag": 1}', '"flag" must be a boolean'),
        ('{"command": "view", "range": 1}', '"range" must be an array'),
        (
            '{"command": "view", "range": [1, "a", null]}',
            '"range[1]" must be an integer; "range[2]" must be an integer',
        ),
    ],
)
def test_each_misfit_is_named_with_its_field(raw: str, expected: str) -> None:
    assert complaint(raw) == f"invalid arguments: {expected}"


def test_integral_floats_are_integers_and_null_optionals_are_absent() -> None:
    raw = '{"command": "view", "line": 3.0, "range": [1.0, -1], "flag": null, "extra": 5}'
    assert parse_arguments(raw, SCHEMA) == {"command": "view", "line": 3, "range": [1, -1], "extra": 5}


def test_undeclared_properties_are_refused_only_where_the_schema_says_so() -> None:
    assert "additionalProperties: false" in complaint(
        '{"command": "view", "x": 1}', additionalProperties=False
    )

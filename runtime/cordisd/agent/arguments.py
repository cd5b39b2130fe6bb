"""Tool arguments: from the model's raw text to a validated object (`protocol.md` 5.2, `tools.md` 1)."""

from __future__ import annotations

from typing import Any

from cordisd.errors import ToolError
from cordisd.events import JsonObject, decode_json, encode_json

_WORDS = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "a boolean",
    "array": "an array",
    "object": "an object",
    "null": "null",
}


def parse_arguments(raw: str, schema: JsonObject) -> JsonObject:
    """The arguments that `raw` holds, checked against a tool's parameter schema.

    The empty string counts as `{}`, null for an optional property as its absence, and 1.0 as an integer.

    Raises:
        ToolError: one line with every complaint, code INVALID_ARGS.
    """
    if not raw.strip():
        value: Any = {}
    else:
        try:
            value = decode_json(raw)
        except ValueError as error:
            raise _invalid([f'"arguments" must be an object: not JSON, {_place(raw, error)}']) from None
    if not isinstance(value, dict):
        raise _invalid(['"arguments" must be an object'])
    required = schema.get("required", [])
    value = {name: item for name, item in value.items() if item is not None or name in required}
    complaints: list[str] = []
    checked = _check("", value, schema, complaints)
    if complaints:
        raise _invalid(complaints)
    out: JsonObject = checked
    return out


def _invalid(complaints: list[str]) -> ToolError:
    return ToolError(f"invalid arguments: {'; '.join(complaints)}", name="ToolArgsError", code="INVALID_ARGS")


def _place(raw: str, error: ValueError) -> str:
    position = getattr(error, "pos", None)
    if position is None:
        return str(error)
    return f"{getattr(error, 'msg', error)} at character {position} of {len(raw)}"


def _check(path: str, value: Any, schema: JsonObject, complaints: list[str]) -> Any:
    """`value`, with integral floats as integers; what does not fit is added to `complaints`."""
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if "integer" in kinds and isinstance(value, float) and value.is_integer():
        value = int(value)
    if kinds and not any(_is(kind, value) for kind in kinds):
        complaints.append(f'"{path}" must be {" or ".join(_WORDS.get(kind, kind) for kind in kinds)}')
        return value
    if "enum" in schema and value not in schema["enum"]:
        complaints.append(f'"{path}" must be one of {encode_json(schema["enum"]).decode()}')
    if isinstance(value, dict):
        return _check_object(path, value, schema, complaints)
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return [_check(f"{path}[{i}]", item, schema["items"], complaints) for i, item in enumerate(value)]
    return value


def _check_object(path: str, value: JsonObject, schema: JsonObject, complaints: list[str]) -> JsonObject:
    prefix = f"{path}." if path else ""
    properties: JsonObject = schema.get("properties", {})
    for name in schema.get("required", []):
        if name not in value:
            complaints.append(f'missing required property "{prefix}{name}"')
    out: JsonObject = {}
    for name, item in value.items():
        if name in properties:
            out[name] = _check(f"{prefix}{name}", item, properties[name], complaints)
        elif schema.get("additionalProperties") is False:
            complaints.append(f'"{prefix}{name}" is not a declared property (additionalProperties: false)')
        else:
            out[name] = item
    return out


def _is(kind: str, value: Any) -> bool:
    match kind:
        case "string":
            return isinstance(value, str)
        case "integer":
            return type(value) is int
        case "number":
            return type(value) in (int, float)
        case "boolean":
            return isinstance(value, bool)
        case "array":
            return isinstance(value, list)
        case "object":
            return isinstance(value, dict)
        case "null":
            return value is None
        case _:
            return True

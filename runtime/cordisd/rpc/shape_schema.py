"""The JSON Schema of a shape: of a `TypedDict`, which describes and does not validate.

pydantic would write it, but refuses the `TypedDict` of `typing` before Python 3.12.
"""

from __future__ import annotations

import builtins
import types
import typing
from typing import Any, Final, NotRequired, Required

from cordisd.events import JsonObject
from cordisd.kernel.docstrings import class_text, field_texts

REFERENCE: Final = "#/components/schemas/{model}"
"""Where an OpenRPC document keeps its schemas."""

_PLAIN: Final[dict[Any, JsonObject]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    types.NoneType: {"type": "null"},
    Any: {},
}


def schema_of(annotation: Any, found: dict[str, JsonObject]) -> JsonObject:
    """The schema, of draft 7, of a type; that of each `TypedDict` in it goes into `found` by its name.

    A type is narrowed by keywords of JSON Schema: `Annotated[int, {"minimum": 1}]`.

    Raises:
        KeyError: the type has no JSON form.
    """
    if typing.is_typeddict(annotation):
        name = annotation.__name__
        if name not in found:
            found[name] = {}  # it may hold itself
            found[name] = _object(annotation, found)
        return {"$ref": REFERENCE.format(model=name)}
    inner = typing.get_args(annotation)
    match typing.get_origin(annotation):
        case typing.Literal:
            return {"enum": list(inner)}
        case typing.Annotated:
            return {**schema_of(inner[0], found), **inner[1]}
        case typing.NotRequired | typing.Required:
            return schema_of(inner[0], found)
        case builtins.list:
            return {"type": "array", "items": schema_of(inner[0], found)}
        case builtins.dict:
            values = schema_of(inner[1], found)
            return {"type": "object", **({"additionalProperties": values} if values else {})}
        case types.UnionType | typing.Union:
            return {"anyOf": [schema_of(one, found) for one in inner]}
        case _:
            return dict(_PLAIN[annotation])


def _object(shape: Any, found: dict[str, JsonObject]) -> JsonObject:
    texts = field_texts(shape)
    properties, required = {}, []
    for name, annotation in typing.get_type_hints(shape, include_extras=True).items():
        properties[name] = schema_of(annotation, found)
        if name in texts:
            properties[name]["description"] = texts[name]
        qualifier = typing.get_origin(annotation)
        # Strings as annotations hide the qualifiers from `__required_keys__`.
        if qualifier is Required or (name in shape.__required_keys__ and qualifier is not NotRequired):
            required.append(name)
    schema: JsonObject = {"type": "object", "properties": properties, "required": required}
    text = class_text(shape)
    return {"description": text, **schema} if text else schema

"""The JSON Schema of one entry's config, as an editor needs it.

pydantic's schema, with three changes. Fields and models are described by the strings in their sources. An
editor hands a `!!js` scalar over as a plain string, its tag lost, so wherever something else than free text
is wanted a string that looks like an expression is let through too. And where the loader warns of an unknown
key, an editor that knows `deprecationMessage` warns as well, instead of calling it an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pydantic import AliasChoices
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue, JsonSchemaWarningKind
from pydantic_core import core_schema

from cordisd.events import JsonObject
from cordisd.kernel.docstrings import class_text, field_texts
from cordisd.kernel.entry import Entry

EXPRESSION: Final = (
    r"(?:^|[\s(!?:+&|=])(?:process\.(?:env\.[A-Za-z0-9_$]+|cwd\(\)|execPath|platform)(?![\w$.(])"
    r"|(?:Number|JSON\.parse|dshHomePath)\()"
)
"""Found in every `!!js` expression that depends on anything: a text without it is a typing error."""
EXPRESSION_REF: Final[JsonObject] = {"$ref": "#/$defs/expression"}
EXPRESSION_SCHEMA: Final[JsonObject] = {
    "type": "string",
    "pattern": EXPRESSION,
    "patternErrorMessage": "not one of the values allowed here, nor a !!js expression",
    "description": "A `!!js` expression, such as `!!js process.env.NAME ?? 'default'`.",
}
IGNORED_KEY: Final[JsonObject] = {"deprecationMessage": "unknown key; it is ignored"}

_ANNOTATIONS: Final = ("description", "default", "deprecated", "examples")
_WORDS: Final = {"array": "a list", "integer": "an integer", "null": "null", "object": "a mapping"}


def config_schema(entry_class: type[Entry], key: str, *, is_lenient: bool) -> dict[str, JsonObject]:
    """Definitions for `$defs`: under `key` that of the config, under `key.Model` one of each model in it.

    They refer to `#/$defs/expression`, which is `EXPRESSION_SCHEMA`.

    Raises:
        pydantic.PydanticUserError: a field has no JSON form.
    """
    config = entry_class.Config
    schema = config.model_json_schema(
        schema_generator=Described, ref_template=f"#/$defs/{key}.{{model}}", mode="validation"
    )
    definitions = {f"{key}.{name}": _editable(part) for name, part in schema.pop("$defs", {}).items()}
    if "$ref" in schema:  # a model that contains itself stands among the definitions
        return {key: schema, **definitions}
    if is_lenient and schema.get("additionalProperties") is False:
        schema["additionalProperties"] = IGNORED_KEY
    schema.setdefault("description", class_text(entry_class))
    root = _editable(schema)
    if not schema.get("required"):
        root["type"] = ["object", "null", "string"]  # a bare `config:` is an empty one
    return {key: root, **definitions}


class Described(GenerateJsonSchema):
    """pydantic's generator, with descriptions from the sources, every accepted spelling and no titles."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        cls: Any = schema["cls"]
        model = super().model_schema(schema)
        model.pop("title", None)
        texts = field_texts(cls)
        properties = model.get("properties", {})
        for name, field in cls.model_fields.items():
            first, *others = [spelling for spelling in _spellings(name, field) if spelling] or [name]
            if first in properties:
                if name in texts:
                    properties[first].setdefault("description", texts[name])
                properties |= {other: {**properties[first], "doNotSuggest": True} for other in others}
        return model

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        """A default without a JSON form is left out; nobody needs to be told."""

    def generate(self, schema: Any, mode: JsonSchemaMode = "validation") -> JsonSchemaValue:
        result = super().generate(schema, mode)
        for part in result.get("$defs", {}).values():
            part.pop("title", None)  # of an enum
        return result


def _spellings(name: str, field: FieldInfo) -> Iterator[str]:
    """The keys that a field is written as, the one that pydantic's schema shows first."""
    alias = field.validation_alias
    if isinstance(alias, AliasChoices):
        yield from (choice for choice in alias.choices if isinstance(choice, str))
    else:
        yield alias if isinstance(alias, str) else name


def _editable(part: Any) -> Any:
    """A schema that also takes expressions, where it does not take every string anyway."""
    if isinstance(part, bool) or "$ref" in part:
        return part
    part = {word: _inner(word, value) for word, value in part.items() if word != "discriminator"}
    if "patternProperties" in part and len(part["patternProperties"]) == 1:  # a pattern for all keys
        [(pattern, value)] = part.pop("patternProperties").items()
        part |= {"propertyNames": {"pattern": pattern}, "additionalProperties": value}
    if "oneOf" in part:  # an expression fits several
        part["anyOf"] = part.pop("oneOf")
    if "anyOf" in part:
        return _united(part)
    kind = part.get("type")
    is_closed_text = kind == "string" and part.keys() & {"pattern", "minLength", "maxLength", "format"}
    if "enum" in part or "const" in part or is_closed_text:
        outer = {word: part.pop(word) for word in _ANNOTATIONS if word in part}
        return {**outer, "anyOf": [part, EXPRESSION_REF]}
    if kind in ("array", "boolean", "integer", "number", "object"):
        message = f"must be {_WORDS.get(kind, f'a {kind}')} or a !!js expression"
        return {**part, "type": [kind, "string"], "pattern": EXPRESSION, "patternErrorMessage": message}
    return part


def _inner(word: str, value: Any) -> Any:
    """The value of a schema's keyword, the schemas in it made editable."""
    match word:
        case "properties" | "patternProperties":
            return {name: _editable(part) for name, part in value.items()}
        case "anyOf" | "oneOf" | "allOf" | "prefixItems":
            return [_editable(part) for part in value]
        case "items" | "additionalProperties":
            return _editable(value)
        case _:
            return value


def _united(part: JsonObject) -> JsonObject:
    """A schema of alternatives: flat, each once, and null joined to a sole other one, for plain messages."""
    options: list[JsonObject] = []
    for option in part["anyOf"]:
        for one in option["anyOf"] if option.keys() == {"anyOf"} else [option]:
            if one not in options:
                options.append(one)
    null: JsonObject = {"type": "null"}
    if len(options) == 2 and null in options:
        other = next(option for option in options if option != null)
        kinds = other.get("type")
        if kinds and "enum" not in other and "const" not in other:
            part.pop("anyOf")
            return {**other, **part, "type": [*([kinds] if isinstance(kinds, str) else kinds), "null"]}
    part["anyOf"] = options
    return part

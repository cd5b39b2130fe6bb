"""JSON Schemas (draft 2020-12) of compositions, patch files and `preset.yml`, for editors and checkers.

`cordisd schema > cordis.schema.json` writes one. In VS Code, with the YAML extension, these settings use it:

    "yaml.schemas": {"./cordis.schema.json": "*.cordis.yml"},
    "yaml.customTags": ["tag:yaml.org,2002:js scalar"]

An editor sees `!!js process.env.X` as a plain string. So any value may also be a text that looks like one of
the expressions: nothing that loads is marked, and a mistyped number or choice is. What only the loader can
know (which ids exist, what an expression's value is, how fields go together) is left to `cordisd check`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import entry_points
from typing import Final, NamedTuple

from cordisd.events import JsonObject
from cordisd.kernel.config_schema import EXPRESSION, EXPRESSION_SCHEMA, IGNORED_KEY, config_schema
from cordisd.kernel.docstrings import class_text
from cordisd.kernel.names import (
    ENTRY_POINT_GROUP,
    OURS,
    PUBLISHED,
    PUBLISHED_SCOPE,
    REFERENCE,
    EntryNameError,
    is_published,
    resolve,
)
from cordisd.kernel.rows import FIELDS, GROUP_NAMES, INCLUDE_NAMES

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
Warn = Callable[[str], None]

_ROW_FIELDS: Final[JsonObject] = {
    "id": {
        "type": "string",
        "minLength": 1,
        "description": "What patches and messages call this entry; no other one of the list has it.",
    },
    "name": {"type": "string", "minLength": 1, "description": "What to load: the kind of the entry."},
    "config": {"description": "The configuration; what may be in it depends on the name."},
    "disabled": {
        "type": ["boolean", "null", "string"],
        "pattern": EXPRESSION,
        "patternErrorMessage": "must be true, false or a !!js expression",
        "description": "True, or a `!!js` expression that is: the entry is left out.",
    },
    "group": {"type": "boolean", "description": "True: `config` is a list of entries that belong together."},
    "inject": {
        "type": ["array", "object", "null"],
        "items": {"type": "string"},
        "description": "Services that the entry waits for: their names, or a mapping from name to options.",
    },
    "intercept": {"description": "What the entry, or the group, is to see of a service."},
    "isolate": {
        "type": ["object", "null"],
        "additionalProperties": {"type": ["boolean", "string"]},
        "description": "Services that the entry or group has to itself: `true`, or the name of a realm that "
        "is shared with the others that name it.",
    },
}
_INCLUDE: Final[JsonObject] = {
    "type": "object",
    "description": "Which file's entries stand here, and how they are changed.",
    "properties": {
        "path": {"type": "string", "minLength": 1, "description": "The file, relative to this one."},
        "patches": {"$ref": "#/$defs/patches"},
        "initial": {"description": "Accepted, without effect: no composition is ever written."},
        "enableLogs": {"type": "boolean", "description": "Accepted, without effect."},
    },
    "required": ["path"],
    "additionalProperties": False,
}
_STRUCTURE: Final = {
    **dict.fromkeys(GROUP_NAMES, "Entries that belong together; `config` is their list."),
    **dict.fromkeys(INCLUDE_NAMES, "The entries of another file, with patches."),
}


class _Known(NamedTuple):
    """A name that an entry can have: what it says it is, and the key of its config among the definitions."""

    name: str
    description: str
    config: str


def composition_schema(warn: Warn) -> JsonObject:
    """The schema of a composition. `warn` is told which plug-ins could not be described.

    Their modules are imported; the configuration of one that fails is left open.
    """
    return {"$schema": DIALECT, "$ref": "#/$defs/rows", "$defs": _definitions(warn)}


def patches_schema(warn: Warn) -> JsonObject:
    """The schema of a patch file (`--patch`); `warn` as of `composition_schema`."""
    return {"$schema": DIALECT, "$ref": "#/$defs/patches", "$defs": _definitions(warn)}


def preset_schema() -> JsonObject:
    """The schema of a `preset.yml`."""
    return {
        "$schema": DIALECT,
        "description": "What people are shown of an agent preset; nothing here changes what it does.",
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "Its name for people."},
            "description": {"type": "string", "description": "What it is good for, in a sentence."},
            "order": {"type": "number", "description": "Its place in lists: lower ones come first."},
        },
        "additionalProperties": False,
    }


def _definitions(warn: Warn) -> JsonObject:
    configs: dict[str, JsonObject] = {}
    known = list(_known(configs, warn))
    by_config = [
        _when(
            _named([one.name for one in known if one.config == key]), {"config": {"$ref": f"#/$defs/{key}"}}
        )
        for key in dict.fromkeys(one.config for one in known if one.config in configs)
    ]
    strict = [one.name for one in known if configs.get(one.config, {}).get("required")]
    names = {**_STRUCTURE, **{one.name: one.description for one in known}}
    return {
        "rows": {"type": "array", "items": {"$ref": "#/$defs/row"}, "description": "A list of entries."},
        "row": _row([*INCLUDE_NAMES, *strict]),
        "patches": {
            "type": "array",
            "items": {"$ref": "#/$defs/patch"},
            "description": "Changes to entries, in order: each sees what those before it did.",
        },
        "patch": _PATCH,
        "name": {
            "anyOf": [
                {"type": "string", "enum": list(names), "enumDescriptions": list(names.values())},
                {"type": "string", "pattern": f"^{REFERENCE}$", "description": "`package.module:Class`"},
            ]
        },
        "configs": {
            "allOf": [_when(_named(INCLUDE_NAMES), {"config": {"$ref": "#/$defs/include"}}), *by_config]
        },
        "include": _INCLUDE,
        "expression": EXPRESSION_SCHEMA,
        **configs,
    }


def _known(configs: dict[str, JsonObject], warn: Warn) -> Iterator[_Known]:
    """Every name of an entry; the schemas of their configs are put into `configs`."""
    plug_ins = sorted(entry_points(group=ENTRY_POINT_GROUP).names - OURS.keys())
    published = [scope + name for name in PUBLISHED for scope in ("", PUBLISHED_SCOPE)]
    for name in [*OURS, *published, *(name for name in plug_ins if not is_published(name))]:
        key = _key(name.removeprefix(PUBLISHED_SCOPE) if is_published(name) else name)
        description = ""
        try:
            entry_class = resolve(name).import_class()
            description = class_text(entry_class)
            if key not in configs:
                is_lenient = is_published(name) or entry_class.lenient
                configs |= config_schema(entry_class, key, is_lenient=is_lenient)
        except (Exception, SystemExit) as error:  # a plug-in may raise anything; it must not hide the others
            cause = str(error) if isinstance(error, EntryNameError) else f"{type(error).__name__}: {error}"
            warn(f'entry "{name}": its config is left open: {cause}')
        yield _Known(name, description, key)


def _key(name: str) -> str:
    """`name` as a key that a `$ref` can hold as it is."""
    return "config." + re.sub(r"[^A-Za-z0-9-]", lambda match: f"_{ord(match[0]):x}", name)


def _row(with_config: Iterable[str]) -> JsonObject:
    """The schema of a row. Entries named `with_config` cannot do without a config."""
    is_published_name = {"enum": [scope + name for name in PUBLISHED for scope in ("", PUBLISHED_SCOPE)]}
    is_on: JsonObject = {
        "$ref": "#/$defs/configs",
        "if": _IS_GROUP,
        "then": {"properties": {"config": {"anyOf": [{"$ref": "#/$defs/rows"}, {"type": "null"}]}}},
        "else": {
            # What is switched off under some condition need not exist here.
            "if": {"properties": {"disabled": {"type": "string"}}, "required": ["disabled"]},
            "else": {"properties": {"name": {"$ref": "#/$defs/name"}}},
        },
        "allOf": [{"if": _named(with_config), "then": {"required": ["config"]}}],
    }
    return {
        "type": "object",
        "description": "An entry.",
        "properties": _ROW_FIELDS,
        "allOf": [
            {
                "if": {"properties": {"name": is_published_name}, "required": ["name"]},
                "then": {"properties": dict.fromkeys(FIELDS, True), "additionalProperties": IGNORED_KEY},
                "else": {"properties": dict.fromkeys(FIELDS, True), "additionalProperties": False},
            },
            {
                "if": _IS_GROUP,
                "then": {"properties": {"name": {"enum": list(GROUP_NAMES)}}},
                "else": {"required": ["name"]},
            },
            {"if": _IS_OFF, "else": is_on},
        ],
    }


def _when(condition: JsonObject, properties: JsonObject) -> JsonObject:
    return {"if": condition, "then": {"properties": properties}}


def _named(names: Iterable[str]) -> JsonObject:
    return {"properties": {"name": {"enum": list(names)}}, "required": ["name"]}


_IS_OFF: Final[JsonObject] = {"properties": {"disabled": {"const": True}}, "required": ["disabled"]}
_IS_GROUP: Final[JsonObject] = {
    "not": _named(INCLUDE_NAMES),
    "anyOf": [{"properties": {"group": {"const": True}}, "required": ["group"]}, _named(GROUP_NAMES)],
}
_PATCH: Final[JsonObject] = {
    "type": "object",
    "description": "A change: the fields given here replace those of the entry `id`, each as a whole; or, "
    "without an `id`, entries to `insert` at the end.",
    "properties": {
        **_ROW_FIELDS,
        "id": {"type": "string", "description": "The entry to change."},
        "name": {
            "type": "string",
            "description": "The name that the entry is expected to have: if it has another one, it is left "
            "as it is, with a warning.",
        },
        "insert": {"$ref": "#/$defs/rows", "description": "Entries to add at the end of the list or group."},
    },
    "additionalProperties": False,
    "allOf": [
        {"if": {"required": ["id"]}, "else": {"required": ["insert"], "maxProperties": 1}},
        {"if": _IS_OFF, "else": {"$ref": "#/$defs/configs"}},
        {
            "if": {"properties": {"config": {"type": "array"}}, "required": ["config"]},
            "then": {"properties": {"config": {"$ref": "#/$defs/rows"}}},
        },
    ],
}

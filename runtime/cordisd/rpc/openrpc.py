"""`rpc.discover`: what the daemon serves, as an OpenRPC document made from the table of methods.

Params are what `rpc.params` validates, results and notifications the shapes of `cordisd.shapes`. `initialize`
and `shutdown`, which `rpc.peer` serves without either, are written down here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Final, NamedTuple, get_type_hints

from pydantic import BaseModel

from cordisd import __version__, errors, preset_shapes, shapes, stored_shapes, wire
from cordisd.events import JsonObject
from cordisd.kernel.config_schema import Described
from cordisd.kernel.docstrings import class_text, unwrap
from cordisd.rpc.methods import AGENT_ERRORS, METHODS
from cordisd.rpc.shape_schema import REFERENCE, schema_of

OPENRPC: Final = "1.3.2"
"""Version of the specification; its schemas are of JSON Schema draft 7."""
SERVERS: Final = [
    {
        "name": "stdio",
        "url": "stdio:",
        "summary": "Standard input and output of `cordisd serve --stdio`, one frame per line.",
    },
    {
        "name": "unix",
        "url": "unix:${path}",
        "summary": "`cordisd serve --socket PATH`, for the daemon's own user.",
        "variables": {"path": {"default": "/run/cordisd.sock"}},
    },
    {
        "name": "tcp",
        "url": "tcp://${host}:${port}",
        "summary": "`cordisd serve --listen HOST:PORT --token-file FILE`; `initialize` shows the token.",
        "variables": {"host": {"default": "127.0.0.1"}, "port": {"default": "4747"}},
    },
]
_HINTS: Final = {
    "Peer": Any,
    "preset_shapes": preset_shapes,
    "shapes": shapes,
    "stored_shapes": stored_shapes,
}
"""What the annotations of methods are made of."""
ANY_METHOD: Final[tuple[type[errors.CordisError], ...]] = (
    errors.InvalidParamsError,
    errors.NotInitializedError,
    errors.UnauthorizedError,
    errors.CordisError,
)
"""What every method can be refused with. What is wrong before one is found stands in the components only."""
NOTIFICATIONS: Final[dict[str, Any]] = {
    wire.SESSION_EVENT: shapes.SessionEventParams,
    wire.SESSION_STATUS: shapes.SessionStatusParams,
    wire.SESSION_COMPLETED: shapes.SessionCompletedParams,
}
"""The params of what the daemon sends by itself."""


class Served(NamedTuple):
    """One method as the document has it."""

    text: str
    """One paragraph that says it in short; more of them as needed."""
    params: list[JsonObject]
    """Content descriptors, the required ones first."""
    result: Any
    """A shape."""
    errors: Iterable[type[errors.CordisError]] = ()


@cache
def document() -> JsonObject:
    """The OpenRPC document, made once (40 ms). Nobody may change it."""
    schemas: dict[str, JsonObject] = {}
    return {
        "openrpc": OPENRPC,
        "info": {
            "title": "cordisd",
            "version": __version__,
            "description": "Runs coding-agent rollouts. JSON-RPC 2.0, one frame per line, params by name.",
            "license": {"name": "MIT"},
        },
        "servers": SERVERS,
        "methods": [_method(name, served, schemas) for name, served in _all(schemas)],
        "x-notifications": [_notification(name, NOTIFICATIONS[name], schemas) for name in wire.NOTIFICATIONS],
        "components": {
            "schemas": schemas,
            "errors": {one.__name__: _error(one) for one in _errors().values()},
        },
    }


def _all(schemas: dict[str, JsonObject]) -> Iterator[tuple[str, Served]]:
    """Every method by name, in the order of the wire's own list."""
    by_peer = {
        wire.INITIALIZE: Served(
            "Sets directory, provider, model and limits of the sessions that this connection makes next.\n\n"
            "May be called again. A call that fails changes nothing.",
            _fields(shapes.InitializeParams, schemas),
            shapes.InitializeResult,
            AGENT_ERRORS,
        ),
        wire.SHUTDOWN: Served(
            "Ends every turn, then the daemon; answered within a second, whatever runs.", [], shapes.Empty
        ),
    }
    for name in wire.METHODS:
        if name in by_peer:
            yield name, by_peer[name]
            continue
        method = METHODS[name]
        text = unwrap(method.run.__doc__ or "").removeprefix(f"`{name}`: ")
        result = get_type_hints(method.run, None, _HINTS)["return"]
        yield name, Served(text, _validated(method.params, schemas), result, method.errors)


def _method(name: str, served: Served, schemas: dict[str, JsonObject]) -> JsonObject:
    known = _errors()
    codes = {error.rpc_code: known[error.rpc_code].__name__ for error in (*served.errors, *ANY_METHOD)}
    return {
        "name": name,
        **_told(served.text),
        "paramStructure": "by-name",
        "params": served.params,
        "result": _content("result", True, schema_of(served.result, schemas)),
        "errors": [{"$ref": f"#/components/errors/{error}"} for error in codes.values()],
    }


def _notification(name: str, shape: Any, schemas: dict[str, JsonObject]) -> JsonObject:
    return {"name": name, **_told(class_text(shape)), "params": _fields(shape, schemas)}


def _told(text: str) -> JsonObject:
    summary, _, more = text.partition("\n\n")
    summary = f"{summary[:1].upper()}{summary[1:]}"
    return {"summary": summary, **({"description": more} if more else {})}


def _fields(shape: Any, schemas: dict[str, JsonObject]) -> list[JsonObject]:
    """The params that a shape describes; the shape itself is no schema of the document."""
    own: dict[str, JsonObject] = {}
    schema_of(shape, own)
    return _descriptors(own.pop(shape.__name__), schemas, own)


def _validated(model: type[BaseModel], schemas: dict[str, JsonObject]) -> list[JsonObject]:
    """The params that a model accepts. What they are made of is called `params.…`, apart from the shapes."""
    template = REFERENCE.format(model="params.{model}")
    schema = model.model_json_schema(schema_generator=Described, ref_template=template)
    inner = {f"params.{name}": part for name, part in schema.pop("$defs", {}).items()}
    return _descriptors(schema, schemas, inner)


def _descriptors(
    schema: JsonObject, schemas: dict[str, JsonObject], inner: dict[str, JsonObject]
) -> list[JsonObject]:
    schemas |= inner
    required = schema.get("required", ())
    found = [_content(name, name in required, part) for name, part in schema.get("properties", {}).items()]
    return sorted(found, key=lambda one: not one["required"])


def _content(name: str, required: bool, schema: JsonObject) -> JsonObject:
    text = {"description": schema.pop("description")} if "description" in schema else {}
    return {"name": name, **text, "required": required, "schema": schema}


def _errors() -> dict[int, type[errors.CordisError]]:
    """The errors of the wire by their codes: the first of the tree that has a code stands for the others."""
    found: dict[int, type[errors.CordisError]] = {}
    todo: list[type[errors.CordisError]] = [errors.CordisError]
    while todo:
        error = todo.pop(0)
        todo += error.__subclasses__()
        if error.__module__ == errors.__name__:
            found.setdefault(error.rpc_code, error)
    return found


def _error(error: type[errors.CordisError]) -> JsonObject:
    data = {"data": {"code": error.code_name}} if error.code_name else {}
    sentence = class_text(error).partition("\n\n")[0].partition(". ")[0].rstrip(".")
    return {"code": error.rpc_code, "message": f"{sentence}.", **data}

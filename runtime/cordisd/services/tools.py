"""Tools as data: what a tool is to the agent loop, and the registry that entries add them to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from cordisd.errors import CordisError
from cordisd.events import JsonObject


class ToolSchema(NamedTuple):
    """What the model is shown of a tool. `parameters` is a JSON Schema of type object."""

    name: str
    description: str
    parameters: JsonObject

    def as_json(self) -> JsonObject:
        """The `ToolSchema` object of the log: `{name, description, parameters}`."""
        return {"name": self.name, "description": self.description, "parameters": self.parameters}


class ToolResult(NamedTuple):
    """What a finished call gives back. `text` goes to the model; `meta` goes to the log only."""

    text: str
    is_error: bool = False
    meta: JsonObject | None = None


class ToolCall(NamedTuple):
    """One call as the model made it, and where in the session it stands."""

    call_id: str
    name: str
    turn: int
    step: int


class Tool(Protocol):
    """A tool; a subclass writes `schema` and `run`, if that is all.

    Arguments were validated against `schema.parameters` before `run` is called. `run` raises `ToolError` for
    a failure that the model should read. Cancellation of the task that awaits `run` must leave it usable
    for the next call. `contract` grows whenever the wording or the shape of a result changes: it is part of
    every digest, so that old and new rollouts are told apart.
    """

    @property
    def schema(self) -> ToolSchema: ...

    @property
    def parallel_safe(self) -> bool:
        return False

    @property
    def contract(self) -> int:
        return 1

    async def run(self, arguments: JsonObject, call: ToolCall) -> ToolResult: ...


@dataclass(slots=True)
class ToolRegistry:
    """The tools of one scope. A session's registry sees its host's tools; a same name shadows."""

    parent: ToolRegistry | None = None
    _tools: dict[str, Tool] = field(default_factory=dict)

    def add(self, tool: Tool) -> Callable[[], None]:
        """Offer `tool` from now on; the returned function takes it back.

        Raises:
            CordisError: the name is taken in this scope.
        """
        name = tool.schema.name
        if name in self._tools:
            raise CordisError(f'tool "{name}" is already registered in this scope')
        self._tools[name] = tool

        def remove() -> None:
            if self._tools.get(name) is tool:
                del self._tools[name]

        return remove

    def all(self) -> dict[str, Tool]:
        """Every visible tool by name; own tools shadow those of the parent."""
        inherited = self.parent.all() if self.parent else {}
        return {**inherited, **self._tools}

"""The waterfall: listeners that may change a prompt in the making, and what is taken over of their work.

What goes to them and what comes back are copies, so whatever they keep and change later is theirs alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from cordisd.errors import PromptError
from cordisd.services.tools import ToolSchema


class RenderedSection(NamedTuple):
    """A section whose text function has been called; variables are not yet put in."""

    name: str
    text: str
    complete: bool = False


@dataclass(slots=True)
class Assembly:
    """One prompt in the making. Listeners may change it or return another, and keep what they saw."""

    sections: list[RenderedSection]
    contexts: list[RenderedSection]
    tools: list[ToolSchema]
    variables: dict[str, str | None]


Proceed = Callable[[Assembly], Assembly]
Listener = Callable[[Assembly, Proceed], Assembly]
"""Called with the assembly and the rest of the waterfall; not calling the rest short-circuits it."""


def pour(assembly: Assembly, listeners: Sequence[Listener], *, sections: bool, contexts: bool) -> Assembly:
    """What the listeners make of an assembly that is theirs alone, but for its tools.

    Of what they leave, `sections` and `contexts` are looked at only where that is asked for.

    Raises:
        PromptError: one of them gives something else than an assembly, or leaves something else in it.
    """
    assembly.tools = [_detached(tool) for tool in assembly.tools]
    result = _proceed(listeners, 0)(assembly)
    return Assembly(
        [_rendered(section) for section in result.sections] if sections else [],
        [_rendered(context) for context in result.contexts] if contexts else [],
        [_detached(tool) for tool in result.tools],
        dict(result.variables),
    )


def plain_string(value: object, what: str) -> str:
    """`value` as a plain string, so that no subclass decides what is in it later."""
    if type(value) is str:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    raise PromptError(f"{what} must be a string, not {value!r:.60}")


def _proceed(listeners: Sequence[Listener], position: int) -> Proceed:
    """The waterfall from the listener at `position` on."""

    def rest(current: Assembly) -> Assembly:
        made = current
        if position < len(listeners):
            made = listeners[position](current, _proceed(listeners, position + 1))
        if not isinstance(made, Assembly):
            raise PromptError(f"a prompt listener must give an Assembly, not {made!r:.60}")
        return made

    return rest


def _rendered(section: RenderedSection) -> RenderedSection:
    """A copy of what a listener has left as a section."""
    if not isinstance(section, RenderedSection):
        raise PromptError(f"a prompt listener left {section!r:.60} in the place of a RenderedSection")
    text = plain_string(section.text, f'the text of prompt section "{section.name}"')
    return RenderedSection(section.name, text, section.complete)


def _detached(tool: ToolSchema) -> ToolSchema:
    if not isinstance(tool, ToolSchema):
        raise PromptError(f"a prompt listener left {tool!r:.60} in the place of a ToolSchema")
    return ToolSchema(tool.name, tool.description, _copy(tool.parameters))


def _copy(value: Any) -> Any:
    """A JSON value as plain objects; `copy.deepcopy` lets an object decide, and takes five times as long."""
    if isinstance(value, dict):
        return {key: _copy(child) for key, child in value.items()}
    return [_copy(child) for child in value] if isinstance(value, (list, tuple)) else value

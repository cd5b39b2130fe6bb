"""The system prompt: who contributes to it, and how one is assembled (`protocol.md` section 9).

A *complete* section is final. After every contributor and listener has run, a copy of it that nobody could
reach becomes the sole section, so nothing can add to it, change it or remove it.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

from cordisd.errors import PromptError
from cordisd.services.tools import ToolSchema
from cordisd.services.waterfall import Assembly as Assembly
from cordisd.services.waterfall import Listener, plain_string, pour
from cordisd.services.waterfall import Proceed as Proceed
from cordisd.services.waterfall import RenderedSection as RenderedSection

Text = str | Callable[[Mapping[str, str]], str]
"""A section's text, or a function of the resolved variables that returns it."""
Value = str | Callable[[Mapping[str, str]], str | None]
"""A variable's value, or a function of those resolved before it; None: no value this time."""
Undo = Callable[[], None]
T = TypeVar("T")

UNLISTED_TOOLS: Final = "<unlisted-tools>"
"""The place in a tool order where the tools that it does not name go, sorted by name."""
_VARIABLE_NAME: Final = re.compile(r"[a-z][a-z0-9_]*\Z")
_registrations = itertools.count()


class Section(NamedTuple):
    """A named part of the prompt. Sorted by `order`, ties by registration; an empty text is dropped."""

    name: str
    order: float
    text: Text
    complete: bool = False


@dataclass(slots=True)
class _Ordered:
    section: Section
    registered: int


@dataclass(slots=True)
class PromptRegistry:
    """The contributions of one scope; a session's registry stands over its host's and shadows by name."""

    parent: PromptRegistry | None = None
    tool_order: tuple[str, ...] | None = None
    _sections: dict[str, _Ordered] = field(default_factory=dict)
    _contexts: dict[str, _Ordered] = field(default_factory=dict)
    _variables: dict[str, Value] = field(default_factory=dict)
    _listeners: dict[int, Listener] = field(default_factory=dict)
    _suppressors: int = 0

    def add_section(self, section: Section) -> Undo:
        """Contribute `section`; the returned function takes it back.

        Raises:
            PromptError: the name is taken in this scope, the order is no finite number, or the text none.
        """
        return _add_section(self._sections, section, "section")

    def add_context(self, section: Section) -> Undo:
        """Contribute a runtime context: text that is sent as a user message, not in the system prompt."""
        return _add_section(self._contexts, section, "context")

    def add_variable(self, name: str, value: Value) -> Undo:
        """Define `{{name}}`; the returned function takes it back.

        Raises:
            PromptError: the name is taken in this scope, or is not lower_snake_case, or there is no value.
        """
        name = plain_string(name, "the name of a prompt variable")
        if not _VARIABLE_NAME.match(name):
            raise PromptError(f'prompt variable "{name}" must match [a-z][a-z0-9_]*')
        if isinstance(value, str) or not callable(value):
            value = plain_string(value, f'the value of prompt variable "{name}"')
        return _add(self._variables, name, value, "variable")

    def add_listener(self, listener: Listener) -> Undo:
        """Have `listener` called on every assembly of this scope, after those added before it."""
        number = next(_registrations)  # not the listener itself, which may be added twice
        self._listeners[number] = listener

        def remove() -> None:
            del self._listeners[number]

        return _once(remove)

    def suppress_contexts(self) -> Undo:
        """Leave runtime contexts out of this scope's assemblies until every such call is undone."""
        self._suppressors += 1

        def release() -> None:
            self._suppressors -= 1

        return _once(release)

    def assemble(self, offered: Sequence[ToolSchema], *, as_template: bool = False) -> Assembly:
        """The prompt as it stands now, with the tools `offered` put in order.

        `as_template`: every variable stands for its own reference, `{{name}}`, and every text function for
        its name, so that the result is the same wherever and whenever it is made.

        Raises:
            PromptError: two complete sections, a tool order that names a missing tool, a text that is none, …
        """
        layers = list(self._layers())
        variables = _references(layers) if as_template else _resolve(layers)
        sections = _merge(layer._sections for layer in layers)
        complete = [section.name for section in sections if section.complete]
        if len(complete) > 1:
            names = ", ".join(f'"{name}"' for name in complete)
            raise PromptError(f"multiple complete prompt sections are active: {names}")
        present = _present(variables)
        suppressed = any(layer._suppressors for layer in layers)
        contexts = [] if suppressed else _merge(layer._contexts for layer in layers)
        evaluate = _stand_in if as_template else _evaluate
        rendered = [evaluate(section, present) for section in sections]
        final = next((section for section in rendered if section.complete), None)
        listeners = [listener for layer in layers for listener in layer._listeners.values()]
        assembly = Assembly(
            rendered,
            [evaluate(context, present) for context in contexts],
            _order_tools(offered, self._order(layers)),
            variables,
        )
        if listeners:  # only they could change a tool's parameters behind the registry's back
            assembly = pour(assembly, listeners, sections=final is None, contexts=not suppressed)
        if final is not None:
            assembly.sections = [final]
        return assembly

    def _layers(self) -> Iterator[PromptRegistry]:
        """The registries from the outermost to this one."""
        if self.parent is not None:
            yield from self.parent._layers()
        yield self

    @staticmethod
    def _order(layers: Sequence[PromptRegistry]) -> tuple[str, ...] | None:
        return next((layer.tool_order for layer in reversed(layers) if layer.tool_order is not None), None)


def check_tool_order(order: Sequence[str]) -> tuple[str, ...]:
    """`order` if it can be one: the marker exactly once, no name twice.

    Raises:
        PromptError: saying what is wrong.
    """
    if order.count(UNLISTED_TOOLS) != 1:
        raise PromptError(f'a tool order must contain "{UNLISTED_TOOLS}" exactly once')
    twice = sorted({name for name in order if order.count(name) > 1})
    if twice:
        raise PromptError(f'tool order names "{twice[0]}" more than once')
    return tuple(order)


def render(assembly: Assembly) -> str:
    """The system prompt's text: sections with their variables put in, joined by a blank line.

    Raises:
        PromptError: an unknown, empty or malformed `{{reference}}`; names the section.
    """
    texts = (interpolate(section, assembly.variables) for section in assembly.sections)
    return "\n\n".join(text for text in texts if text)


def template(sections: Sequence[RenderedSection]) -> str:
    """The text of sections with their variables not put in, joined as `render` joins it."""
    return "\n\n".join(section.text for section in sections if section.text)


def interpolate(section: RenderedSection, variables: Mapping[str, str | None]) -> str:
    """The section's text with each `{{name}}` replaced; `{{{{` gives a literal `{{`.

    Values are put in as they are, never scanned again. A `{{` with no later `}}` stays literal.

    Raises:
        PromptError: the name is unknown, has no value now, or is not lower_snake_case.
    """
    text, at = section.text, 0
    parts: list[str] = []
    while (opening := text.find("{{", at)) >= 0:
        parts.append(text[at:opening])
        if text.startswith("{{{{", opening):
            parts.append("{{")
            at = opening + 4
            continue
        closing = text.find("}}", opening + 2)
        if closing < 0:
            parts.append("{{")
            at = opening + 2
            continue
        parts.append(_value(text[opening + 2 : closing], section.name, variables))
        at = closing + 2
    return "".join([*parts, text[at:]])


def _value(name: str, section: str, variables: Mapping[str, str | None]) -> str:
    where = f'in section "{section}"'
    if not _VARIABLE_NAME.match(name):
        raise PromptError(
            f'malformed prompt variable "{{{{{name}}}}}" {where}: '
            "a name matches [a-z][a-z0-9_]*, without spaces; a literal {{ is written {{{{"
        )
    if name not in variables:
        known = ", ".join(sorted(variables)) or "(none)"
        raise PromptError(f'unknown prompt variable "{{{{{name}}}}}" {where}; registered variables: {known}')
    value = variables[name]
    if value is None:
        raise PromptError(f'prompt variable "{{{{{name}}}}}" {where} has no value for this assembly')
    return plain_string(value, f'the value of prompt variable "{name}"')


def _add(registered: dict[str, T], name: str, value: T, what: str) -> Undo:
    if name in registered:
        raise PromptError(f'prompt {what} "{name}" is already registered in this scope')
    registered[name] = value

    def remove() -> None:
        registered.pop(name, None)

    return _once(remove)


def _add_section(registered: dict[str, _Ordered], section: Section, what: str) -> Undo:
    """Keep a copy of `section`, whatever it is of, which nobody can change."""
    name = plain_string(getattr(section, "name", None), f"the name of a prompt {what}")
    order, text = getattr(section, "order", None), getattr(section, "text", None)
    if not isinstance(order, (int, float)) or not _is_finite(order):
        raise PromptError(f'prompt {what} "{name}" needs a finite order, not {order!r}')
    if isinstance(text, str) or not callable(text):
        text = plain_string(text, f'the text of prompt {what} "{name}"')
    kept = Section(name, float(order), text, bool(getattr(section, "complete", False)))
    return _add(registered, name, _Ordered(kept, next(_registrations)), what)


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # an integer beyond every float
        return False


def _once(undo: Undo) -> Undo:
    """`undo` that does nothing from the second call on."""
    left = [undo]
    return lambda: left.pop()() if left else None


def _resolve(layers: Sequence[PromptRegistry]) -> dict[str, str | None]:
    """Every variable's value, inner layers shadowing; a function sees those resolved before it.

    Those that a function registers are resolved too.
    """
    values: dict[str, str | None] = {}
    for layer in layers:
        names = list(layer._variables)
        for name in names:
            value = layer._variables.get(name)
            if callable(value):
                values[name] = _called(name, value, _present(values))
                names += [new for new in layer._variables if new not in names]
            elif value is not None:  # else a function has taken it back
                values[name] = value
    return values


def _references(layers: Sequence[PromptRegistry]) -> dict[str, str | None]:
    return {name: "{{" + name + "}}" for layer in layers for name in layer._variables}


def _called(name: str, function: Callable[..., object], variables: Mapping[str, str]) -> str | None:
    value = _ask(function, variables, f'prompt variable "{name}"')
    return None if value is None else plain_string(value, f'prompt variable "{name}"')


def _ask(function: Callable[..., object], variables: Mapping[str, str], what: str) -> object:
    try:
        return function(variables)
    except PromptError:
        raise
    except Exception as error:  # it may be anybody's code; who reads of it needs to know whose
        raise PromptError(f"{what} cannot be told: {type(error).__name__}: {error}") from error


def _present(variables: Mapping[str, str | None]) -> Mapping[str, str]:
    """The variables that have a value, for functions that must not change them for others."""
    return MappingProxyType({name: value for name, value in variables.items() if value is not None})


def _merge(layers: Iterable[dict[str, _Ordered]]) -> list[Section]:
    effective: dict[str, _Ordered] = {}
    for layer in layers:
        effective.update(layer)
    ordered = sorted(effective.values(), key=lambda one: (one.section.order, one.registered))
    return [one.section for one in ordered]


def _evaluate(section: Section, variables: Mapping[str, str]) -> RenderedSection:
    text = section.text
    if not isinstance(text, str):
        what = f'the text of prompt section "{section.name}"'
        text = plain_string(_ask(text, variables, what), what)
    return RenderedSection(section.name, text, section.complete)


def _stand_in(section: Section, variables: Mapping[str, str]) -> RenderedSection:
    """The section with the name of its text function in the place of a text that only calls can tell."""
    text = section.text
    if not isinstance(text, str):
        kind = type(text)
        module, name = (
            getattr(text, attribute, getattr(kind, attribute)) for attribute in ("__module__", "__qualname__")
        )
        text = "{{" + f"{module}:{name}" + "}}"
    return RenderedSection(section.name, text, section.complete)


def _order_tools(offered: Sequence[ToolSchema], order: tuple[str, ...] | None) -> list[ToolSchema]:
    by_name = sorted(offered, key=lambda tool: tool.name.encode("utf-16-be", "surrogatepass"))
    if UNLISTED_TOOLS in [tool.name for tool in by_name]:
        raise PromptError(f'no tool can be named "{UNLISTED_TOOLS}": that is a place in the tool order')
    if order is None:
        return by_name
    tools = {tool.name: tool for tool in by_name}
    missing = [name for name in order if name != UNLISTED_TOOLS and name not in tools]
    if missing:
        raise PromptError(
            f'the tool order names "{missing[0]}", which no entry offers; '
            f"tools: {', '.join(tools) or '(none)'}"
        )
    unlisted = [tool for tool in by_name if tool.name not in order]
    out: list[ToolSchema] = []
    for name in order:
        out += unlisted if name == UNLISTED_TOOLS else [tools[name]]
    return out

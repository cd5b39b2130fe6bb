"""Section 9 of `protocol.md` once more, written from its words over plain data: what a prompt must be.

A registry is a list of what was registered and not taken back, in that order. Listeners are named by what
they do; `change` says what that makes of the prompt, before or after the rest of the waterfall.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

PARENTS: tuple[int | None, ...] = (None, 0, 0, 1)
"""The layers: a host, two sessions, and a layer within the first session."""
MARKER = "<unlisted-tools>"


class Failure(Exception):
    """The assembly or the rendering must fail, with words that are in `str`."""


class Text(NamedTuple):
    """A text, constant or made by a function from the variables that have a value."""

    words: str
    called: bool = False

    def value(self, name: str, known: dict[str, str]) -> str:
        listed = ",".join(f"{key}={known[key]}" for key in sorted(known))
        return f"{self.words}[{name}: {listed}]" if self.called and self.words else self.words


class Registered(NamedTuple):
    """One registration. `number` counts registrations; `content` of a variable None: has no value."""

    number: int
    kind: Literal["section", "context", "variable", "listener", "suppressor"]
    layer: int
    name: str = ""
    order: float = 0
    content: Text | None = None
    complete: bool = False


@dataclass
class Prompt:
    """A prompt in the making; texts by name, tools with their parameters."""

    sections: list[tuple[str, str]]
    contexts: list[tuple[str, str]]
    tools: list[tuple[str, dict[str, Any]]]
    variables: dict[str, str | None]


@dataclass
class Model:
    """What is registered now, and the texts that the last assembly had to ask for, in order."""

    live: list[Registered] = field(default_factory=list)
    tool_orders: dict[int, tuple[str, ...] | None] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def takes(self, new: Registered) -> bool:
        """Whether a registration is accepted: no name twice in a layer."""
        named = new.kind in ("section", "context", "variable")
        return not named or not any(
            (old.kind, old.layer, old.name) == (new.kind, new.layer, new.name) for old in self.live
        )

    def assemble(self, layer: int, tools: Sequence[tuple[str, dict[str, Any]]]) -> Prompt:
        """The steps 1 to 9 of section 9.2."""
        self.asked = []
        chain = _chain(layer)

        def visible(kind: str) -> list[Registered]:
            """What is registered in the layers of the chain, the outermost layer first."""
            return [one for place in chain for one in self.live if (one.kind, one.layer) == (kind, place)]

        variables: dict[str, str | None] = {}
        for one in visible("variable"):
            variables[one.name] = one.content and one.content.value(one.name, _valued(variables))
        known = _valued(variables)
        sections, contexts = _effective(visible("section")), _effective(visible("context"))
        complete = [one for one in sections if one.complete]
        if len(complete) > 1:
            names = ", ".join(f'"{one.name}"' for one in complete)
            raise Failure(f"multiple complete prompt sections are active: {names}")
        texts = self._texts(sections, known)
        is_suppressed = len(visible("suppressor")) > 0
        prompt = Prompt(
            texts,
            [] if is_suppressed else self._texts(contexts, known),
            self._ordered(chain, copy.deepcopy(list(tools))),
            variables,
        )
        final = [text for one, text in zip(sections, texts, strict=True) if one.complete]
        prompt = _waterfall([one.name for one in visible("listener")], prompt)
        if final:
            prompt.sections = final
        if is_suppressed:
            prompt.contexts = []
        return prompt

    def _texts(self, sections: list[Registered], known: dict[str, str]) -> list[tuple[str, str]]:
        texts = []
        for one in sections:
            assert one.content is not None
            if one.content.called:
                self.asked.append(one.name)
            texts.append((one.name, one.content.value(one.name, known)))
        return texts

    def _ordered(
        self, chain: list[int], tools: list[tuple[str, dict[str, Any]]]
    ) -> list[tuple[str, dict[str, Any]]]:
        tools.sort(key=lambda tool: [unit for character in tool[0] for unit in _units(character)])
        orders = [order for layer in chain if (order := self.tool_orders.get(layer)) is not None]
        if not orders:
            return tools
        wanted = orders[-1]
        names = [name for name, _ in tools]
        for name in wanted:
            if name not in names and name != MARKER:
                raise Failure(f'the tool order names "{name}"')
        at = wanted.index(MARKER)
        before = [tool for name in wanted[:at] for tool in tools if tool[0] == name]
        after = [tool for name in wanted[at + 1 :] for tool in tools if tool[0] == name]
        return [*before, *(tool for tool in tools if tool[0] not in wanted), *after]


def render(prompt: Prompt) -> str:
    """Section 9.3."""
    texts = [_filled(name, text, prompt.variables) for name, text in prompt.sections]
    return "\n\n".join(text for text in texts if text != "")


def change(listener: str, prompt: Prompt) -> Prompt:
    """What a listener of that kind makes of a prompt, where it acts."""
    match listener.removesuffix(" afterwards"):
        case "append":
            prompt.sections.append(("late", "added for {{a}}"))
            prompt.contexts.append(("late", "added"))
        case "edit":
            prompt.sections = [(name, f"{text}!") for name, text in prompt.sections]
        case "delete":
            prompt.sections, prompt.contexts = prompt.sections[1:], []
        case "replace" | "cut short":
            prompt = Prompt([("new", "other {{b}}")], [("new", "x")], prompt.tools[::-1], {"b": "set"})
        case "spoil":
            for _, parameters in prompt.tools:
                parameters["properties"]["spoilt"] = {"type": "string"}
        case "drop":
            prompt.tools = prompt.tools[:-1]
        case "set":
            prompt.variables["a"] = "{{changed}}"
        case "void":
            prompt.variables["a"] = None
        case "forget":
            prompt.variables.pop("b", None)
        case "break":
            raise Failure("broken on purpose")
        case "give nothing":
            raise Failure("must give an Assembly, not None")
        case "hoard":
            pass
        case _:
            raise AssertionError(listener)
    return prompt


def _waterfall(listeners: list[str], prompt: Prompt) -> Prompt:
    if not listeners:
        return prompt
    first, *rest = listeners
    if first.endswith(" afterwards"):
        return change(first, _waterfall(rest, prompt))
    prompt = change(first, prompt)
    return prompt if first == "cut short" else _waterfall(rest, prompt)


def _chain(layer: int) -> list[int]:
    parent = PARENTS[layer]
    return [layer] if parent is None else [*_chain(parent), layer]


def _valued(variables: dict[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if value is not None}


def _effective(registered: list[Registered]) -> list[Registered]:
    """Those that no inner one of the same name shadows, by order, then by time."""
    inner = {one.name: one for one in registered}
    return sorted(inner.values(), key=lambda one: (one.order, one.number))


def _units(character: str) -> list[int]:
    """The UTF-16 code units of a character."""
    point = ord(character) - 0x10000
    return [ord(character)] if point < 0 else [0xD800 + (point >> 10), 0xDC00 + (point & 0x3FF)]


def _filled(section: str, text: str, variables: dict[str, str | None]) -> str:
    def value(reference: re.Match[str]) -> str:
        if reference[0] == "{{{{":
            return "{{"
        name = reference[1]
        if not re.fullmatch("[a-z][a-z0-9_]*", name):
            raise Failure(f'malformed prompt variable "{{{{{name}}}}}" in section "{section}"')
        if name not in variables:
            known = ", ".join(sorted(variables)) or "(none)"
            where = f'in section "{section}"; registered variables: {known}'
            raise Failure(f'unknown prompt variable "{{{{{name}}}}}" {where}')
        found = variables[name]
        if found is None:
            raise Failure("has no value for this assembly")
        return found

    return re.sub(r"\{\{\{\{|\{\{(.*?)\}\}", value, text, flags=re.DOTALL)

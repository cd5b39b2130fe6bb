"""Sections, texts and variables that misbehave change nothing else in the prompt (`protocol.md` 9)."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from cordisd.errors import PromptError
from cordisd.services.prompt import (
    UNLISTED_TOOLS,
    PromptRegistry,
    RenderedSection,
    Section,
    render,
)
from cordisd.services.tools import ToolSchema


def tool(name: str) -> ToolSchema:
    return ToolSchema(name, f"runs {name}", {"type": "object", "properties": {"x": {"enum": ["a"]}}})


def text_of(registry: PromptRegistry) -> str:
    return render(registry.assemble([]))


@pytest.mark.parametrize("text", [None, 5, b"bytes", ["a"], True])
def test_a_text_that_is_no_string_is_an_error_that_names_the_section(text: Any) -> None:
    registry = PromptRegistry()
    with pytest.raises(PromptError, match='the text of prompt section "s" must be a string, not '):
        registry.add_section(Section("s", 0, text))
    registry.add_section(Section("s", 0, lambda _: text))
    with pytest.raises(PromptError, match='the text of prompt section "s" must be a string, not '):
        registry.assemble([])


def test_a_value_that_is_no_string_is_an_error_that_names_the_variable() -> None:
    registry = PromptRegistry()
    with pytest.raises(PromptError, match='the value of prompt variable "n" must be a string, not 5'):
        registry.add_variable("n", 5)  # type: ignore[arg-type]
    with pytest.raises(PromptError, match="the name of a prompt variable must be a string, not 5"):
        registry.add_variable(5, "n")  # type: ignore[arg-type]
    undo = registry.add_variable("n", lambda _: 5)  # type: ignore[arg-type, return-value]
    with pytest.raises(PromptError, match='prompt variable "n" must be a string, not 5'):
        registry.assemble([])
    undo()
    registry.add_section(Section("s", 0, "{{n}}"))
    registry.add_listener(lambda assembly, proceed: assembly.variables.update(n=5) or proceed(assembly))
    with pytest.raises(PromptError, match='the value of prompt variable "n" must be a string, not 5'):
        text_of(registry)


class Turncoat(str):
    """A string that says something else when it is looked into."""

    def find(self, *_: object) -> int:
        return -1

    def __getitem__(self, _: object) -> str:
        return "something else"

    def __str__(self) -> str:
        return "something else"


def test_of_a_string_that_says_something_else_the_characters_count() -> None:
    registry = PromptRegistry()
    registry.add_section(Section("a", 0, Turncoat("one {{x}}")))
    registry.add_section(Section("b", 1, lambda _: Turncoat("two {{y}}")))
    registry.add_variable("x", Turncoat("1"))
    registry.add_variable("y", lambda _: Turncoat("2"))
    assert text_of(registry) == "one 1\n\ntwo 2"


def test_a_section_is_kept_as_it_was_when_it_was_registered() -> None:
    registry = PromptRegistry()
    registry.add_section(Section("b", 1, "two"))
    mine = SimpleNamespace(name="a", order=0, text="one", complete=False)
    undo = registry.add_section(mine)  # type: ignore[arg-type]
    mine.name, mine.order, mine.text, mine.complete = "b", 2, "changed", True
    assert text_of(registry) == "one\n\ntwo"
    undo()
    assert text_of(registry) == "two"


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (RenderedSection("a", "b"), 'prompt section "a" needs a finite order, not None'),
        (Section("a", 10**400, "b"), 'prompt section "a" needs a finite order, not 1000'),
        (Section("a", Decimal(1), "b"), 'prompt section "a" needs a finite order'),  # type: ignore[arg-type]
        (Section(None, 0, "b"), "the name of a prompt section must be a string"),  # type: ignore[arg-type]
        (Section(["a"], 0, "b"), "the name of a prompt section must be a string"),  # type: ignore[arg-type]
        ("text", "the name of a prompt section must be a string"),
        (None, "the name of a prompt section must be a string"),
    ],
)
def test_what_is_no_section_is_refused(section: Any, message: str) -> None:
    registry = PromptRegistry()
    with pytest.raises(PromptError) as caught:
        registry.add_section(section)
    assert message in str(caught.value)
    assert registry.assemble([]).sections == []


@pytest.mark.parametrize(
    "name", ["", " ", 'q"uote', "new\nline", "{{cwd}}", "\0", "\ud800", "__class__", "é" * 500]
)
def test_any_string_can_be_a_name(name: str) -> None:
    registry = PromptRegistry()
    undo = registry.add_section(Section(name, 0, "{{nope}}"))
    with pytest.raises(PromptError, match="is already registered"):
        registry.add_section(Section(name, 1, ""))
    with pytest.raises(PromptError) as caught:
        text_of(registry)
    assert f'in section "{name}"' in str(caught.value)
    undo()
    assert text_of(registry) == ""


def test_a_complete_text_is_asked_for_once_per_assembly() -> None:
    registry, asked = PromptRegistry(), []
    registry.add_section(Section("a", 0, lambda _: asked.append("a") or f"text {len(asked)}", complete=True))
    for _ in range(2):
        registry.add_listener(lambda assembly, proceed: proceed(proceed(assembly)))
    assert [text_of(registry) for _ in range(3)] == ["text 1", "text 2", "text 3"]


def test_a_text_function_cannot_change_the_variables_of_others() -> None:
    registry = PromptRegistry()
    registry.add_variable("cwd", "/w")

    def change(known: Mapping[str, str]) -> str:
        with pytest.raises(TypeError):
            known["cwd"] = "/elsewhere"  # type: ignore[index]
        return "asked"

    registry.add_variable("late", change)
    registry.add_section(Section("host", -1, change))
    registry.add_section(Section("persona", 0, lambda known: known["cwd"] + " {{cwd}}", complete=True))
    assert text_of(registry) == "/w /w"


def test_what_a_text_function_registers_belongs_to_the_next_assembly() -> None:
    host = PromptRegistry()
    session = PromptRegistry(host)
    later: list[Any] = []

    def meddle(_: Mapping[str, str]) -> str:
        if not later:
            for registry in (host, session):
                later.append(registry.add_section(Section("more", 5, "more", complete=registry is session)))
                later.append(registry.add_context(Section("more", 5, "more")))
                later.append(registry.add_variable("more", "more"))
            undo()
        return "one"

    session.add_section(Section("a", 0, meddle))
    undo = session.add_section(Section("b", 1, "two"))
    first = session.assemble([])
    assert (render(first), first.contexts, first.variables) == ("one\n\ntwo", [], {})
    second = session.assemble([])
    assert (render(second), second.variables) == ("more", {"more": "more"})
    assert second.contexts == [RenderedSection("more", "more")]


def test_a_variable_that_another_one_registers_is_there_at_once() -> None:
    registry = PromptRegistry()

    def register(known: Mapping[str, str]) -> str:
        if "second" not in registry._variables:
            registry.add_variable("second", lambda known: f"{known['first']}, 2")
        return "1"

    registry.add_variable("first", register)
    registry.add_section(Section("s", 0, "{{second}}"))
    assert [text_of(registry), text_of(registry)] == ["1, 2", "1, 2"]


def test_a_variable_that_another_one_takes_back_is_gone() -> None:
    registry = PromptRegistry()
    registry.add_variable("first", lambda _: undo() or "1")
    undo = registry.add_variable("second", "2")
    assert registry.assemble([]).variables == {"first": "1"}


def test_the_marker_of_a_tool_order_is_no_tool_s_name() -> None:
    registry = PromptRegistry()
    with pytest.raises(PromptError, match='no tool can be named "<unlisted-tools>"'):
        registry.assemble([tool(UNLISTED_TOOLS)])


def test_a_lone_brace_pair_does_not_hide_a_literal_one_behind_it() -> None:
    registry = PromptRegistry()
    registry.add_section(Section("s", 0, "lone {{ and {{{{ and {{{"))
    assert text_of(registry) == "lone {{ and {{ and {{{"

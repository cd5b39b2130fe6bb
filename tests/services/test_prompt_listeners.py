"""Listeners that misbehave change nothing but what section 9 of `protocol.md` gives them."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest

from cordisd.errors import PromptError
from cordisd.services.prompt import (
    Assembly,
    Proceed,
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


class Hoarder:
    """A listener that keeps everything and spoils it when told, or whenever it is called again."""

    def __init__(self) -> None:
        self.kept: list[Assembly] = []

    def __call__(self, assembly: Assembly, proceed: Proceed) -> Assembly:
        self.spoil()
        done = proceed(assembly)
        self.kept += [assembly, done]
        return done

    def spoil(self) -> None:
        for assembly in self.kept:
            for one in assembly.tools:
                one.parameters["properties"]["x"]["enum"].append("spoilt")
            assembly.sections[:] = [RenderedSection("x", "spoilt", True)]
            assembly.contexts[:] = [RenderedSection("x", "spoilt")]
            assembly.tools.clear()
            assembly.variables.clear()


@pytest.mark.parametrize("complete", [True, False])
def test_what_a_listener_keeps_and_changes_later_is_no_prompt_any_more(complete: bool) -> None:
    host = PromptRegistry()
    host.add_context(Section("env", 0, "here"))
    session = PromptRegistry(host)
    session.add_section(Section("persona", 0, "in {{cwd}}", complete=complete))
    session.add_variable("cwd", "/w")
    hoarders = [Hoarder(), Hoarder()]
    host.add_listener(hoarders[0])
    session.add_listener(hoarders[1])
    offered = [tool("b"), tool("a")]
    before = copy.deepcopy(offered)
    assemblies = []
    for _ in range(3):
        assemblies.append(session.assemble(offered))
        for hoarder in hoarders:
            hoarder.spoil()
    for assembly in assemblies:
        assert render(assembly) == "in /w"
        assert assembly.contexts == [RenderedSection("env", "here")]
        assert assembly.tools == before[::-1]
        assert assembly.variables == {"cwd": "/w"}
    assert offered == before


def test_a_tool_whose_owner_changes_it_is_changed_from_the_next_assembly_on() -> None:
    registry, offered = PromptRegistry(), [tool("a")]
    registry.add_listener(lambda assembly, proceed: proceed(assembly))
    first = registry.assemble(offered)
    offered[0].parameters["properties"]["y"] = {}
    assert list(first.tools[0].parameters["properties"]) == ["x"]
    assert list(registry.assemble(offered).tools[0].parameters["properties"]) == ["x", "y"]


class Clinging(dict[str, Any]):
    """Parameters that will not be copied."""

    def __deepcopy__(self, memo: object) -> Clinging:
        return self


def test_parameters_that_refuse_to_be_copied_are_copied() -> None:
    registry = PromptRegistry()

    def spoil(assembly: Assembly, proceed: Proceed) -> Assembly:
        assembly.tools[0].parameters["properties"]["y"] = {}
        return proceed(assembly)

    registry.add_listener(spoil)
    parameters = Clinging(type="object", properties=Clinging())
    registry.assemble([ToolSchema("a", "", parameters)])
    assert parameters == {"type": "object", "properties": {}}


def test_a_listener_that_raises_spoils_no_later_assembly() -> None:
    registry = PromptRegistry()
    registry.add_section(Section("a", 0, "one"))

    def broken(assembly: Assembly, proceed: Proceed) -> Assembly:
        assembly.sections.clear()
        raise RuntimeError("broken")

    undo = registry.add_listener(broken)
    with pytest.raises(RuntimeError, match="broken"):
        registry.assemble([])
    undo()
    assert text_of(registry) == "one"


@pytest.mark.parametrize(
    "given", [None, {}, "text", [RenderedSection("a", "b")], SimpleNamespace(sections=[])]
)
def test_a_listener_must_give_an_assembly_and_pass_one_on(given: Any) -> None:
    registry, seen = PromptRegistry(), []
    registry.add_section(Section("a", 0, "final", complete=True))
    registry.add_listener(lambda assembly, proceed: seen.append(proceed(assembly)) or seen[-1])
    undo = registry.add_listener(lambda assembly, proceed: given)
    with pytest.raises(PromptError, match="a prompt listener must give an Assembly, not "):
        registry.assemble([])
    assert seen == [], "the first listener was given what the second gave"
    undo()
    registry.add_listener(lambda assembly, proceed: proceed(given))
    with pytest.raises(PromptError, match="a prompt listener must give an Assembly, not "):
        registry.assemble([])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sections": ["text"]}, "left 'text' in the place of a RenderedSection"),
        ({"sections": [Section("a", 0, "b")]}, "in the place of a RenderedSection"),
        (
            {"sections": [RenderedSection("a", None)]},
            'the text of prompt section "a" must be a string, not None',
        ),
        ({"contexts": [RenderedSection("a", 5)]}, 'the text of prompt section "a" must be a string, not 5'),
        ({"tools": [{"name": "a"}]}, "in the place of a ToolSchema"),
    ],
)
def test_what_a_listener_leaves_must_be_what_belongs_there(change: dict[str, Any], message: str) -> None:
    registry = PromptRegistry()
    registry.add_section(Section("a", 0, "one"))

    def leave(assembly: Assembly, proceed: Proceed) -> Assembly:
        for name, value in change.items():
            setattr(assembly, name, value)
        return proceed(assembly)

    registry.add_listener(leave)
    with pytest.raises(PromptError) as caught:
        registry.assemble([])
    assert message in str(caught.value)


def test_beside_a_complete_section_nobody_looks_at_what_a_listener_leaves_as_sections() -> None:
    registry = PromptRegistry()
    registry.add_section(Section("a", 0, "final", complete=True))
    registry.suppress_contexts()

    def leave(assembly: Assembly, proceed: Proceed) -> Assembly:
        assembly.sections = assembly.contexts = None  # type: ignore[assignment]
        return proceed(assembly)

    registry.add_listener(leave)
    assert text_of(registry) == "final"


def test_a_listener_that_is_added_twice_is_called_twice_and_taken_back_once_each() -> None:
    registry, called = PromptRegistry(), []

    def first(assembly: Assembly, proceed: Proceed) -> Assembly:
        called.append("first")
        return proceed(assembly)

    def second(assembly: Assembly, proceed: Proceed) -> Assembly:
        called.append("second")
        return proceed(assembly)

    undo = [registry.add_listener(listener) for listener in (first, second, first)]
    registry.assemble([])
    undo[2]()
    undo[2]()
    registry.assemble([])
    assert called == ["first", "second", "first", "first", "second"]


def test_a_listener_that_takes_back_the_next_one_or_adds_one_is_heard_from_the_next_assembly_on() -> None:
    registry, heard = PromptRegistry(), []

    def meddle(assembly: Assembly, proceed: Proceed) -> Assembly:
        undo()
        registry.add_listener(lambda assembly, proceed: heard.append("added") or proceed(assembly))
        return proceed(assembly)

    registry.add_listener(meddle)
    undo = registry.add_listener(lambda assembly, proceed: heard.append("second") or proceed(assembly))
    registry.assemble([])
    assert heard == ["second"]
    registry.assemble([])
    assert heard == ["second", "added"]


def test_the_host_s_listeners_come_before_a_session_s_whoever_was_there_first() -> None:
    host = PromptRegistry()
    session, heard = PromptRegistry(host), []
    session.add_listener(lambda assembly, proceed: heard.append("session") or proceed(assembly))
    host.add_listener(lambda assembly, proceed: heard.append("host") or proceed(assembly))
    session.assemble([])
    host.assemble([])
    assert heard == ["host", "session", "host"]

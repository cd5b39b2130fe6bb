"""The prompt registry keeps every rule of `protocol.md` section 9."""

from __future__ import annotations

import pytest

from cordisd.errors import PromptError
from cordisd.services.prompt import (
    UNLISTED_TOOLS,
    Assembly,
    Proceed,
    PromptRegistry,
    RenderedSection,
    Section,
    check_tool_order,
    render,
)
from cordisd.services.tools import ToolSchema


def tool(name: str) -> ToolSchema:
    return ToolSchema(name, f"runs {name}", {"type": "object", "properties": {}})


def text_of(registry: PromptRegistry) -> str:
    return render(registry.assemble([]))


def test_sections_are_joined_by_order_and_then_by_registration() -> None:
    registry = PromptRegistry()
    for name, order in (("late", 5), ("tie-1", 1), ("first", -3.5), ("tie-2", 1)):
        registry.add_section(Section(name, order, name))
    assert text_of(registry) == "first\n\ntie-1\n\ntie-2\n\nlate"


def test_an_empty_section_leaves_no_blank_line() -> None:
    registry = PromptRegistry()
    for name, text in (("a", "one"), ("b", ""), ("c", "two")):
        registry.add_section(Section(name, 0, text))
    assert text_of(registry) == "one\n\ntwo"


@pytest.mark.parametrize("order", [float("nan"), float("inf"), "0"])
def test_an_order_that_is_no_finite_number_is_refused(order: float) -> None:
    with pytest.raises(PromptError, match='section "x" needs a finite order'):
        PromptRegistry().add_section(Section("x", order, ""))


def test_a_name_is_taken_until_its_contribution_is_undone() -> None:
    registry = PromptRegistry()
    undo = registry.add_section(Section("x", 0, "old"))
    with pytest.raises(PromptError, match='section "x" is already registered'):
        registry.add_section(Section("x", 0, "new"))
    undo()
    undo()
    registry.add_section(Section("x", 0, "new"))
    assert text_of(registry) == "new"


def test_a_session_section_shadows_the_hosts_before_any_text_is_evaluated() -> None:
    host = PromptRegistry()

    def never(_: object) -> str:
        raise AssertionError("a shadowed section was evaluated")

    host.add_section(Section("persona", 0, never, complete=True))
    session = PromptRegistry(host)
    session.add_section(Section("persona", 0, "mine"))
    session.add_section(Section("more", 1, "and more"))
    assert text_of(session) == "mine\n\nand more"


def test_two_effective_complete_sections_are_refused_before_any_text_is_evaluated() -> None:
    registry = PromptRegistry()

    def never(_: object) -> str:
        raise AssertionError("evaluated")

    registry.add_section(Section("a", 0, never, complete=True))
    registry.add_section(Section("b", 1, never, complete=True))
    with pytest.raises(PromptError, match='multiple complete prompt sections are active: "a", "b"'):
        registry.assemble([])


def append(assembly: Assembly, proceed: Proceed) -> Assembly:
    assembly.sections.append(RenderedSection("spy", "added"))
    return proceed(assembly)


def append_after(assembly: Assembly, proceed: Proceed) -> Assembly:
    done = proceed(assembly)
    done.sections.append(RenderedSection("late", "added"))
    return done


def rewrite(assembly: Assembly, proceed: Proceed) -> Assembly:
    assembly.sections[:] = [RenderedSection(one.name, "changed", one.complete) for one in assembly.sections]
    return proceed(assembly)


def clear(assembly: Assembly, proceed: Proceed) -> Assembly:
    assembly.sections.clear()
    return proceed(assembly)


def short_circuit(assembly: Assembly, proceed: Proceed) -> Assembly:
    return Assembly(
        [RenderedSection("x", "instead", True)], [], list(assembly.tools), dict(assembly.variables)
    )


@pytest.mark.parametrize("listener", [append, append_after, rewrite, clear, short_circuit])
def test_a_complete_section_survives_every_listener(listener: object) -> None:
    host = PromptRegistry()
    host.add_section(Section("identity", -100, "I am the host"))
    host.add_listener(listener)  # type: ignore[arg-type]
    session = PromptRegistry(host)
    session.add_section(Section("persona", 0, "final in {{cwd}}", complete=True))
    session.add_listener(listener)  # type: ignore[arg-type]
    session.add_variable("cwd", "/w")
    for _ in range(2):
        assert render(session.assemble([])) == "final in /w"


@pytest.mark.parametrize(
    ("listener", "expected"),
    [(append, "one\n\nadded"), (rewrite, "changed"), (clear, ""), (short_circuit, "instead")],
)
def test_without_a_complete_section_the_listeners_have_the_last_word(listener: object, expected: str) -> None:
    registry = PromptRegistry()
    registry.add_section(Section("a", 0, "one"))
    registry.add_listener(listener)  # type: ignore[arg-type]
    assert text_of(registry) == expected
    assert text_of(registry) == expected, "one assembly leaked into the next"


def test_a_listeners_tools_and_variables_are_kept_beside_a_complete_section() -> None:
    registry = PromptRegistry()
    registry.add_section(Section("p", 0, "for {{who}}", complete=True))
    registry.add_variable("who", "nobody")

    def change(assembly: Assembly, proceed: Proceed) -> Assembly:
        assembly.variables["who"] = "you"
        assembly.tools.pop()
        return proceed(assembly)

    registry.add_listener(change)
    assembly = registry.assemble([tool("a"), tool("b")])
    assert render(assembly) == "for you"
    assert [one.name for one in assembly.tools] == ["a"]


def test_a_listener_cannot_reach_the_registered_tool_parameters() -> None:
    registry = PromptRegistry()
    offered = [tool("a")]

    def spoil(assembly: Assembly, proceed: Proceed) -> Assembly:
        assembly.tools[0].parameters["properties"]["x"] = {}
        return proceed(assembly)

    registry.add_listener(spoil)
    registry.assemble(offered)
    assert offered[0].parameters["properties"] == {}


def test_suppressed_contexts_are_never_called_and_cannot_be_added_by_a_listener() -> None:
    host = PromptRegistry()

    def never(_: object) -> str:
        raise AssertionError("a suppressed context was evaluated")

    host.add_context(Section("env", 0, never))
    session = PromptRegistry(host)
    first, second = session.suppress_contexts(), session.suppress_contexts()

    def add(assembly: Assembly, proceed: Proceed) -> Assembly:
        assembly.contexts.append(RenderedSection("x", "sneaked in"))
        return proceed(assembly)

    session.add_listener(add)
    first()
    first()
    assert session.assemble([]).contexts == []
    second()
    with pytest.raises(PromptError, match='"env" cannot be told: AssertionError: a suppressed context'):
        session.assemble([])


def test_a_hosts_suppressor_holds_for_every_session() -> None:
    host = PromptRegistry()
    host.add_context(Section("env", 0, "here"))
    release = host.suppress_contexts()
    session = PromptRegistry(host)
    assert session.assemble([]).contexts == []
    release()
    assert [one.text for one in session.assemble([]).contexts] == ["here"]


def test_a_variable_function_sees_those_registered_before_it() -> None:
    registry = PromptRegistry()
    registry.add_variable("first", "1")
    registry.add_variable("second", lambda known: known["first"] + "2")
    registry.add_section(Section("s", 0, "{{second}}"))
    assert text_of(registry) == "12"


def test_values_are_not_scanned_again_and_literal_braces_can_be_written() -> None:
    registry = PromptRegistry()
    registry.add_variable("x", "{{y}}")
    registry.add_section(Section("s", 0, "{{x}} {{{{x}} and a lone {{"))
    assert text_of(registry) == "{{y}} {{x}} and a lone {{"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "{{nope}}",
            r'unknown prompt variable "\{\{nope\}\}" in section "s"; registered variables: cwd, empty',
        ),
        ("{{constructor}}", "unknown prompt variable"),
        ("{{ cwd }}", "malformed prompt variable"),
        ("{{CWD}}", "malformed prompt variable"),
        ("{{}}", "malformed prompt variable"),
        ("{{empty}}", "has no value for this assembly"),
    ],
)
def test_a_reference_that_cannot_be_resolved_is_an_error(text: str, message: str) -> None:
    registry = PromptRegistry()
    registry.add_variable("cwd", "/w")
    registry.add_variable("empty", lambda _: None)
    registry.add_section(Section("s", 0, text))
    with pytest.raises(PromptError, match=message):
        text_of(registry)


def test_tools_are_ordered_by_name_or_as_listed() -> None:
    registry = PromptRegistry()
    offered = [tool("zip"), tool("bash"), tool("edit"), tool("Alpha")]
    assert [one.name for one in registry.assemble(offered).tools] == ["Alpha", "bash", "edit", "zip"]
    registry.tool_order = check_tool_order(["zip", UNLISTED_TOOLS, "bash"])
    assert [one.name for one in registry.assemble(offered).tools] == ["zip", "Alpha", "edit", "bash"]
    registry.tool_order = check_tool_order(["nope", UNLISTED_TOOLS])
    with pytest.raises(PromptError, match='names "nope", which no entry offers'):
        registry.assemble(offered)


@pytest.mark.parametrize("order", [["a"], [UNLISTED_TOOLS, UNLISTED_TOOLS], ["a", "a", UNLISTED_TOOLS]])
def test_a_tool_order_has_the_marker_once_and_no_name_twice(order: list[str]) -> None:
    with pytest.raises(PromptError, match="tool order"):
        check_tool_order(order)

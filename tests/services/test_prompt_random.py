"""Random registries assemble to what an independent model of `protocol.md` section 9 says."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cordisd.errors import PromptError
from cordisd.services.prompt import (
    Assembly,
    Listener,
    Proceed,
    PromptRegistry,
    RenderedSection,
    Section,
    render,
)
from cordisd.services.tools import ToolSchema
from services import prompt_model
from services.prompt_model import MARKER, PARENTS, Failure, Model, Registered, Text

TOOLS = ("bash", "B", "zip", "\N{FULLWIDTH TILDE}", "\N{GRINNING FACE}", "é")
LISTENERS = ("append", "edit", "delete", "replace", "cut short", "spoil", "drop", "set", "void", "forget")
AFTERWARDS = ("append", "edit", "delete", "replace", "spoil", "drop", "set")
RARE = ("break", "give nothing")

good_words = ("", "one", "two\nlines é", "{{a}}", "{{b}}{{a}}", "{{{{a}}", "lone {{", "{{ {{{{", "}} {{{{{")
wrong_words = ("{{zz}}", "{{ a }}", "{{A}}", "{{}}", "{{{a}}}", "{{constructor}}", "{{c}}")


def rarely(usual: st.SearchStrategy[Any], rare: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """One in twenty is `rare`: most prompts must come out, for their contents to be compared."""
    return st.integers(0, 19).flatmap(lambda number: rare if number == 7 else usual)


texts = st.builds(Text, rarely(st.sampled_from(good_words), st.sampled_from(wrong_words)), st.booleans())
layers = st.sampled_from((0, 0, 1, 1, 2, 3))
orders = st.sampled_from((0, 0, 1, -100, -1.5, 1.0, 2.5, 10**30))
names = st.sampled_from(("persona", "identity", "x y", 'q"uote', "\ud800", "é"))
usual_listeners = (*LISTENERS, *(f"{kind} afterwards" for kind in AFTERWARDS), *["hoard"] * 5)

sections = st.tuples(st.just("section"), layers, names, orders, texts, rarely(st.just(False), st.just(True)))
complete = st.tuples(st.just("section"), layers, names, orders, texts, st.just(True))
contexts = st.tuples(st.just("context"), layers, names, orders, texts, st.booleans())
contents = rarely(st.builds(Text, st.sampled_from(("A", "{{b}}", "")), st.booleans()), st.none())
variables = st.tuples(st.just("variable"), layers, st.sampled_from("abc"), contents)
listeners = st.tuples(
    st.just("listener"), layers, rarely(st.sampled_from(usual_listeners), st.sampled_from(RARE))
)
suppressors = st.tuples(st.just("suppressor"), layers, st.integers(0, 2))
tool_orders = st.sampled_from((None, (MARKER,), ("zip", MARKER, "bash"), ("é", MARKER), (MARKER, "bash")))
undone = st.tuples(st.just("undo"), st.integers(0, 7))
assembled = st.tuples(st.just("assemble"), layers, st.sets(st.sampled_from(TOOLS)).map(sorted))
ordered = st.tuples(st.just("order"), layers, tool_orders)
operations = st.lists(
    st.one_of(
        *[sections] * 3, *[listeners] * 3, *[undone] * 3, contexts, variables, suppressors, assembled, ordered
    ),
    min_size=12,
    max_size=45,
)


class Bench:
    """The registries under test beside the model, and what hostile listeners have kept."""

    def __init__(self) -> None:
        self.registries: list[PromptRegistry] = []
        for parent in PARENTS:
            self.registries.append(PromptRegistry(None if parent is None else self.registries[parent]))
        self.model = Model()
        self.asked: list[str] = []
        self.kept: list[Assembly] = []
        self.undo: list[tuple[Registered, Callable[[], None]]] = []
        self.schemas = {
            name: ToolSchema(name, f"runs {name}", {"type": "object", "properties": {"x": {"enum": [1]}}})
            for name in TOOLS
        }
        self.pristine = {name: copy.deepcopy(one.parameters) for name, one in self.schemas.items()}

    def register(self, kind: Any, layer: int, *given: Any) -> None:
        """Register in both, or see it refused where the model refuses it."""
        name, order, content, complete = "", 0.0, None, False
        if kind in ("section", "context"):
            name, order, content, complete = given
        elif kind == "variable":
            name, content = given
        elif kind == "listener":
            (name,) = given
        new = Registered(len(self.undo), kind, layer, name, order, content, complete)
        try:
            undo = self._register(self.registries[layer], new)
        except PromptError as error:
            assert "is already registered in this scope" in str(error)
            assert not self.model.takes(new)
            return
        assert self.model.takes(new)
        self.model.live.append(new)
        self.undo.append((new, undo))

    def take_back(self, number: int) -> None:
        """Undo a registration, counted from the newest; the second time does nothing."""
        if number < len(self.undo):
            new, undo = self.undo[-number - 1]
            undo()
            undo()
            self.model.live = [one for one in self.model.live if one is not new]

    def assemble(self, layer: int, tools: list[str]) -> None:
        """Both must give the same prompt, or the same failure; nobody was asked without need."""
        expected: Any
        actual: Any
        self.asked = []
        try:
            prompt = self.model.assemble(layer, [(name, self.pristine[name]) for name in tools])
            expected = (prompt_model.render(prompt), prompt.contexts, prompt.tools, prompt.variables)
        except Failure as failure:
            expected = failure
        try:
            assembly = self.registries[layer].assemble([self.schemas[name] for name in tools])
            self.wreck()
            contexts = [(one.name, one.text) for one in assembly.contexts]
            shown = [(tool.name, tool.parameters) for tool in assembly.tools]
            actual = (render(assembly), contexts, shown, assembly.variables)
            assert all(tool.description == f"runs {tool.name}" for tool in assembly.tools)
        except (PromptError, _Broken) as error:
            assert isinstance(expected, Failure), error
            assert str(expected) in str(error)
        else:
            assert actual == expected
        assert self.asked == self.model.asked
        assert {name: one.parameters for name, one in self.schemas.items()} == self.pristine

    def wreck(self) -> None:
        """Spoil whatever a listener could get hold of."""
        for assembly in self.kept:
            assembly.sections.clear()
            assembly.contexts.append(RenderedSection("spoilt", "spoilt"))
            for tool in assembly.tools:
                tool.parameters.clear()
            assembly.tools.clear()
            assembly.variables.clear()
        self.kept.clear()

    def _register(self, registry: PromptRegistry, new: Registered) -> Callable[[], None]:
        match new.kind:
            case "section":
                return registry.add_section(Section(new.name, new.order, self._text(new), new.complete))
            case "context":
                return registry.add_context(Section(new.name, new.order, self._text(new)))
            case "variable":
                content = new.content
                if content is None or content.called:
                    return registry.add_variable(
                        new.name, lambda known: content and content.value(new.name, dict(known))
                    )
                return registry.add_variable(new.name, content.words)
            case "listener":
                return registry.add_listener(self._listener(new.name))
            case "suppressor":
                return registry.suppress_contexts()

    def _text(self, new: Registered) -> str | Callable[[Mapping[str, str]], str]:
        content = new.content
        assert content is not None
        if not content.called:
            return content.words

        def text(known: Mapping[str, str]) -> str:
            self.asked.append(new.name)
            return content.value(new.name, dict(known))

        return text

    def _listener(self, kind: str) -> Listener:
        def listen(assembly: Assembly, proceed: Proceed) -> Assembly:
            if kind == "hoard":
                self.wreck()
                done = proceed(assembly)
                self.kept += [assembly, done]
                return done
            if kind.endswith(" afterwards"):
                return _change(kind.removesuffix(" afterwards"), proceed(assembly))
            assembly = _change(kind, assembly)
            return assembly if kind in ("cut short", "give nothing") else proceed(assembly)

        return listen


class _Broken(Exception):
    pass


def _change(kind: str, assembly: Assembly) -> Assembly:
    """What the model's `change` does, done to a real assembly."""
    match kind:
        case "append":
            assembly.sections.append(RenderedSection("late", "added for {{a}}", True))
            assembly.contexts += [RenderedSection("late", "added")]
        case "edit":
            assembly.sections[:] = [one._replace(text=f"{one.text}!") for one in assembly.sections]
        case "delete":
            del assembly.sections[:1], assembly.contexts[:]
        case "replace" | "cut short":
            return Assembly(
                [RenderedSection("new", "other {{b}}")],
                [RenderedSection("new", "x")],
                assembly.tools[::-1],
                {"b": "set"},
            )
        case "spoil":
            for tool in assembly.tools:
                tool.parameters["properties"]["spoilt"] = {"type": "string"}
        case "drop":
            del assembly.tools[-1:]
        case "set":
            assembly.variables["a"] = "{{changed}}"
        case "void":
            assembly.variables["a"] = None
        case "forget":
            assembly.variables.pop("b", None)
        case "break":
            raise _Broken("broken on purpose")
        case "give nothing":
            return None  # type: ignore[return-value]
    return assembly


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(operations, st.lists(complete, max_size=2))
def test_random_registries_assemble_as_section_9_says(
    made: list[tuple[Any, ...]], final: list[tuple[Any, ...]]
) -> None:
    bench = Bench()
    known = [("variable", 0, "a", Text("A")), ("variable", 0, "b", Text("B", called=True))]
    last = [("assemble", layer, list(TOOLS)) for layer in (0, 1, 2, 3, 3)]
    for what, *given_ in [*known, *made, *final, *last]:
        match what:
            case "assemble":
                bench.assemble(*given_)
            case "undo":
                bench.take_back(*given_)
            case "order":
                layer, order = given_
                bench.registries[layer].tool_order = order
                bench.model.tool_orders[layer] = order
            case "suppressor":
                layer, n_undone = given_
                for _ in range(2):
                    bench.register(what, layer)
                for number in range(n_undone):
                    bench.take_back(number)
            case _:
                bench.register(what, *given_)

"""`isolate`: a group has services of its own (`protocol.md` 8.4)."""

from __future__ import annotations

import asyncio

import pytest

from cordisd.errors import CompositionError
from cordisd.kernel.mount import mount
from cordisd.kernel.scope import Scope, names_of
from kernel.conftest import Folder
from kernel.sample_entries import Engine, Journal, Tank


def _host(journal: Journal) -> Scope:
    """A scope as a daemon makes one: the journal is unique, of the tank there are private instances."""
    scope = Scope("host")
    scope.provide(Journal, journal)
    tank = Tank(journal)
    scope.provide(Tank, tank, private=tank.private)
    return scope


def _lines(folder: Folder, text: str) -> list[str]:
    """What the entries of a composition write down while they are mounted, then all undone."""
    journal = Journal()

    async def steps() -> None:
        scope = _host(journal)
        try:
            await mount(folder.load(text).entries, scope)
        finally:
            await scope.close()
        assert scope.depth == 0
        assert scope.find(Tank) is scope.find(Engine) is None

    asyncio.run(steps())
    return journal.lines


def _refusal(folder: Folder, text: str) -> list[str]:
    with pytest.raises(CompositionError) as caught:
        _lines(folder, text)
    return [folder.short(str(problem)) for problem in caught.value.problems]


def _row(entry: str, name: str, isolate: str = "") -> str:
    more = f", isolate: {isolate}" if isolate else ""
    return f"- {{id: {name}, name: ${entry}, config: {{text: {name}}}{more}}}\n"


def _group(name: str, isolate: str, *rows: str) -> str:
    head = f"- id: {name}\n  name: cordis:group\n  isolate: {isolate}\n  config:\n"
    return head + "".join(f"    {line}\n" for row in rows for line in row.splitlines())


def test_a_service_is_called_by_its_class_and_by_the_names_it_declares() -> None:
    assert names_of(Engine) == ("engine",)
    assert names_of(Tank) == ("tank", "fuel", "water")


def test_two_groups_have_each_their_own_and_nobody_else_sees_either(folder: Folder) -> None:
    text = (
        _row("Provider", "outside")
        + _group("g", "{engine: true}", _row("Provider", "one"), _row("Driver", "a"))
        + _group("h", "{engine: true}", _row("Provider", "two"), _row("Driver", "b"))
        + _row("Driver", "c")
    )
    seen = [line for line in _lines(folder, text) if ":" in line]
    assert seen == ["a: one", "b: two", "c: outside"]


def test_inside_a_group_the_outer_service_is_not_there(folder: Folder) -> None:
    text = _row("Provider", "outside") + _group("g", "{engine: true}", _row("Driver", "a"))
    assert "a: None" in _lines(folder, text)


def test_an_entry_that_needs_a_service_waits_for_the_one_of_its_own_realm(folder: Folder) -> None:
    text = _row("Provider", "outside") + _group("g", "{engine: true}", _row("Consumer", "a"))
    assert _refusal(folder, text) == [
        'c.yml:6, entry "a": entry "$Consumer" did not activate: waiting for service Engine'
    ]
    text = _group("g", "{engine: true}", _row("Consumer", "a"), _row("Provider", "late"))
    assert _lines(folder, text) == ["+late", "+a", "-a", "-late"]


def test_a_label_is_one_realm_for_all_who_use_it(folder: Folder) -> None:
    text = (
        _group("g", "{engine: common}", _row("Provider", "one"))
        + _row("Driver", "a", "{engine: common}")
        + _row("Driver", "b", "{engine: other}")
        + _row("Driver", "c")
    )
    assert [line for line in _lines(folder, text) if ":" in line] == ["a: one", "b: None", "c: None"]


def test_of_nested_wishes_the_inner_one_counts_and_false_returns_to_the_outside(folder: Folder) -> None:
    inner = _group("h", "{engine: true}", _row("Provider", "inner"), _row("Driver", "a"))
    text = (
        _row("Provider", "outside")
        + _group(
            "g",
            "{engine: true}",
            _row("Provider", "middle"),
            inner,
            _row("Driver", "b"),
            _row("Driver", "c", "{engine: false}"),
            _row("Driver", "d", "{engine: common}"),
        )
        + _row("Driver", "e")
    )
    assert [line for line in _lines(folder, text) if ":" in line] == [
        "a: inner",
        "b: middle",
        "c: outside",
        "d: None",
        "e: outside",
    ]


def test_two_providers_in_one_realm_are_an_error_that_names_the_realm(folder: Folder) -> None:
    text = _group("g", "{engine: common}", _row("Provider", "one"), _row("Provider", "two"))
    refused = "failed to mount: service Engine is already provided in host, realm shared common"
    assert _refusal(folder, text) == [f'c.yml:6, entry "two": {refused}']


def test_a_realm_has_one_private_instance_of_what_the_host_provides(folder: Folder) -> None:
    text = (
        _row("Tanker", "a")
        + _group("g", "{fuel: true}", _row("Tanker", "b"), _row("Tanker", "c"))
        + _row("Tanker", "d", "{tank: true}")
        + _row("Tanker", "e")
    )
    lines = _lines(folder, text)
    assert [line for line in lines if line[1] == ":"] == [
        "a: the host's",
        "b: tank 1",
        "c: tank 1",
        "d: tank 2",
        "e: the host's",
    ]
    assert [line for line in lines if line[0] == "-"] == ["-e", "-d", "-tank 2", "-c", "-b", "-tank 1", "-a"]


def test_the_names_of_one_service_are_one_wish_and_the_innermost_counts(folder: Folder) -> None:
    text = _group(
        "g",
        "{fuel: true, water: true}",
        _row("Tanker", "a"),
        _row("Tanker", "b", "{fuel: true}"),
        _row("Tanker", "c", "{water: common}"),
        _row("Tanker", "d", "{tank: common}"),
    )
    assert [line for line in _lines(folder, text) if line[1] == ":"] == [
        "a: tank 1",
        "b: tank 2",
        "c: tank 3",
        "d: tank 3",
    ]


def test_an_entry_may_provide_the_instance_of_its_group_itself(folder: Folder) -> None:
    async def steps() -> None:
        journal = Journal()
        host = _host(journal)
        view = host.isolated({"tank": "mine"})
        view.provide(Tank, Tank(journal, "home-made"))
        assert host.isolated({"water": "mine"}).get(Tank).name == "home-made"
        assert host.get(Tank).name == "the host's"
        await host.close()
        assert journal.lines == []

    asyncio.run(steps())


def test_looking_whether_an_entry_can_mount_makes_no_instance(folder: Folder) -> None:
    text = _group("g", "{tank: true, engine: true}", _row("Consumer", "a"))
    assert "waiting for service Engine" in _refusal(folder, text)[0]
    journal = Journal()
    view = _host(journal).isolated({"tank": "x"})
    assert view.offers(Tank)
    assert journal.lines == []


def test_a_failing_mount_undoes_the_private_instances_too(folder: Folder) -> None:
    async def steps() -> None:
        journal = Journal()
        scope = _host(journal)
        depth = scope.depth
        text = _group("g", "{tank: true}", _row("Tanker", "a"), _row("Failing", "bug"))
        with pytest.raises(CompositionError, match="a bug"):
            await mount(folder.load(text).entries, scope)
        assert journal.lines == ["+tank 1", "+a", "a: tank 1", "-a", "-tank 1"]
        assert scope.depth == depth
        await mount(folder.load(_group("g", "{tank: true}", _row("Tanker", "a"))).entries, scope)
        assert journal.lines[5:] == ["+tank 2", "+a", "a: tank 2"]

    asyncio.run(steps())


def test_what_the_daemon_itself_works_with_cannot_be_isolated(folder: Folder) -> None:
    text = (
        _row("Recorder", "first")
        + _group("g", "{journal: true}", _row("Driver", "a"))
        + _row("Driver", "b", "{journal: common}")
        + _row("Driver", "c", "{journal: false}")
    )
    reason = (
        'entry "$Driver" did not activate: journal cannot be isolated: the daemon itself works with the one '
        "there is; what can be: tank, fuel, water, and the services that other entries provide"
    )
    assert _refusal(folder, text) == [f'c.yml:6, entry "a": {reason}', f'c.yml:7, entry "b": {reason}']


def test_a_name_that_stands_for_no_service_changes_nothing(folder: Folder) -> None:
    text = _row("Provider", "outside") + _row("Driver", "a", "{browsers: true, subagents: common}")
    assert "a: outside" in _lines(folder, text)
    assert folder.load(text).warnings == ()


def test_a_session_s_entry_finds_what_a_host_entry_of_its_group_provides(folder: Folder) -> None:
    text = _group("g", "{engine: true}", _row("Provider", "one"), _row("SessionDriver", "a")) + _row(
        "SessionDriver", "b"
    )
    journal = Journal()

    async def steps() -> None:
        composition, host = folder.load(text), _host(journal)
        await mount(composition.host, host)
        for name in ("s1", "s2"):
            session = Scope(name, host)
            await mount(composition.session, session)
            await session.close()
        await host.close()

    asyncio.run(steps())
    assert [line for line in journal.lines if ":" in line] == ["a: one", "b: None"] * 2


def test_a_child_of_an_isolated_view_sees_what_the_view_sees() -> None:
    host = _host(Journal())
    view = host.isolated({"tank": "mine", "engine": "mine"})
    child = Scope("child", view)
    assert child.get(Tank) is view.get(Tank)
    child.provide(Engine, Engine("the child's"))
    assert child.isolated({"engine": "mine"}).get(Engine).maker == "the child's"
    assert child.isolated({"engine": "other"}).find(Engine) is None
    assert view.find(Engine) is host.find(Engine) is None


def test_a_file_that_is_included_twice_has_two_private_realms(folder: Folder) -> None:
    folder.write(_group("g", "{engine: true}", _row("Provider", "one"), _row("Driver", "a")), "part.yml")
    text = "".join(f"- {{id: i{n}, name: cordis:include, config: {{path: part.yml}}}}\n" for n in (1, 2))
    assert [line for line in _lines(folder, text) if ":" in line] == ["a: one", "a: one"]


@pytest.mark.parametrize(
    ("isolate", "problem"),
    [
        ("true", "isolate maps services to true or a name, not 'true'"),
        ("[engine]", "isolate maps services to true or a name, not a list"),
        ("{engine: 5}", "isolate.engine must be true, false or a name, not '5'"),
        ("{engine: }", "isolate.engine must be true, false or a name, not nothing"),
        ("{engine: ''}", "isolate.engine must be true, false or a name, not ''"),
        ("{engine: [a]}", "isolate.engine must be true, false or a name, not a list"),
    ],
)
def test_a_wish_that_makes_no_sense_is_a_problem_at_its_place(
    folder: Folder, isolate: str, problem: str
) -> None:
    text = f"- id: a\n  name: $Sample\n  isolate: {isolate}\n"
    assert folder.problems(text) == [f'c.yml:3, entry "a": {problem}']

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

import pytest

from cordisd.errors import CompositionError
from cordisd.kernel.load import load
from cordisd.kernel.mount import mount
from cordisd.kernel.scope import Scope
from kernel.conftest import Folder
from kernel.sample_entries import Engine, Journal


def _scope() -> tuple[Scope, list[str]]:
    scope, journal = Scope("host"), Journal()
    scope.provide(Journal, journal)
    return scope, journal.lines


def _run(steps: Coroutine[None, None, None]) -> None:
    asyncio.run(steps)


def _row(entry: str, name: str) -> str:
    return f"- {{id: {name}, name: ${entry}, config: {{text: {name}}}}}\n"


def test_entries_mount_in_file_order_and_unmount_in_reverse(folder: Folder) -> None:
    async def steps() -> None:
        scope, lines = _scope()
        await mount(folder.load(_row("Recorder", "a") + _row("Recorder", "b")).entries, scope)
        assert lines == ["+a", "+b"]
        await scope.close()
        assert lines == ["+a", "+b", "-b", "-a"]

    _run(steps())


def test_an_entry_waits_for_a_service_of_a_later_one(folder: Folder) -> None:
    async def steps() -> None:
        scope, lines = _scope()
        text = _row("Recorder", "a") + _row("Consumer", "b") + _row("Recorder", "c") + _row("Provider", "d")
        await mount(folder.load(text).entries, scope)
        assert lines == ["+a", "+c", "+d", "+b"]
        await scope.close()
        assert lines[4:] == ["-b", "-d", "-c", "-a"]
        assert scope.find(Engine) is None

    _run(steps())


def test_a_session_s_entries_see_the_services_of_the_host(folder: Folder) -> None:
    async def steps() -> None:
        host, lines = _scope()
        await mount(folder.load(_row("Provider", "p")).entries, host)
        session = Scope("session", parent=host)
        await mount(folder.load(_row("Consumer", "c")).entries, session)
        await session.close()
        assert lines == ["+p", "+c", "-c"]
        assert host.find(Engine) is not None

    _run(steps())


def test_entries_whose_services_nobody_provides_are_named_and_the_others_undone(folder: Folder) -> None:
    async def steps() -> None:
        scope, lines = _scope()
        entries = folder.load(_row("Recorder", "a") + _row("Consumer", "b") + _row("Consumer", "c")).entries
        with pytest.raises(CompositionError) as caught:
            await mount(entries, scope)
        assert [folder.short(str(problem)) for problem in caught.value.problems] == [
            'c.yml:2, entry "b": entry "$Consumer" did not activate: waiting for service Engine',
            'c.yml:3, entry "c": entry "$Consumer" did not activate: waiting for service Engine',
        ]
        assert lines == ["+a", "-a"]

    _run(steps())


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (_row("Failing", "bug"), "failed to mount: RuntimeError: a bug"),
        (_row("Failing", "refused"), "failed to mount: no room here"),
        (_row("Provider", "second"), "failed to mount: service Engine is already provided in host"),
    ],
)
def test_a_failing_mount_is_named_and_undoes_only_what_was_mounted_with_it(
    folder: Folder, row: str, problem: str
) -> None:
    async def steps() -> None:
        scope, lines = _scope()
        await mount(folder.load(_row("Recorder", "earlier")).entries, scope)
        with pytest.raises(CompositionError) as caught:
            await mount(folder.load(_row("Provider", "first") + row).entries, scope)
        assert str(caught.value).endswith(f'": {problem}')
        assert "c.yml:2, entry" in str(caught.value)
        assert lines == ["+earlier", "+first", "-first"]
        assert scope.find(Engine) is None
        assert scope.find(Journal) is not None
        await scope.close()
        assert lines[3:] == ["-earlier"]

    _run(steps())


def test_a_failing_undo_does_not_hide_why_mounting_failed(folder: Folder) -> None:
    async def steps() -> None:
        scope, lines = _scope()
        text = _row("Recorder", "a") + _row("Failing", "undo") + _row("Failing", "bug")
        with pytest.raises(CompositionError, match="a bug") as caught:
            await mount(folder.load(text).entries, scope)
        assert caught.value.__notes__ == ["undoing it failed too: OSError('undo failed')"]
        assert lines == ["+a", "-a"]

    _run(steps())


def test_cancelling_a_mount_undoes_what_was_mounted(folder: Folder) -> None:
    async def steps() -> None:
        scope, lines = _scope()
        task = asyncio.create_task(
            mount(folder.load(_row("Recorder", "a") + _row("Stuck", "b")).entries, scope)
        )
        while lines != ["+a", "stuck"]:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert lines == ["+a", "stuck", "-a"]

    _run(steps())


def test_a_loaded_composition_mounts_many_times(folder: Folder) -> None:
    async def steps() -> None:
        composition = load(folder.write(_row("Recorder", "a")))
        for _ in range(3):
            scope, lines = _scope()
            await mount(composition.entries, scope)
            await scope.close()
            assert lines == ["+a", "-a"]

    _run(steps())

"""A session's realm, and the private ones that isolated entries get within it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from cordisd.entries.bash import BashEntry
from cordisd.entries.str_replace_editor import StrReplaceEditorEntry
from cordisd.kernel.entry import Entry
from cordisd.kernel.scope import Scope
from cordisd.services.tools import Tool, ToolCall, ToolRegistry
from cordisd.session.realm import Realm
from cordisd.shell.guardian import Guardian
from launches import needs_root, open_to_all
from processes import descendants

CALL = ToolCall("c1", "bash", 1, 1)


class Bench:
    """One session's scope, and shells mounted in views of it."""

    def __init__(self, guardian: Guardian, cwd: str, mounted: AsyncExitStack) -> None:
        self.guardian = guardian
        self.scope = Scope("session")
        self.realm = Realm("s1", cwd, guardian)
        self.scope.provide(Realm, self.realm, private=self.realm.private)
        self._mounted = mounted

    async def tool(self, kind: type[Entry], isolate: dict[str, str], **config: object) -> Tool:
        """The tool of an entry that sees the session so."""
        registry = ToolRegistry()
        apart = Scope("tools", self.scope.isolated(isolate))
        apart.provide(ToolRegistry, registry)
        await self._mounted.enter_async_context(kind(kind.read_config(config)).mount(apart))
        return next(iter(registry.all().values()))

    async def bash(self, isolate: dict[str, str], **config: object) -> Tool:
        return await self.tool(BashEntry, isolate, **config)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Callable[[Callable[[Bench], Awaitable[None]]], None]]:
    guardian = Guardian.fork()

    def run(body: Callable[[Bench], Awaitable[None]]) -> None:
        async def main() -> None:
            async with AsyncExitStack() as mounted:
                bench = Bench(guardian, str(tmp_path), mounted)
                await body(bench)
            await bench.scope.close()
            await bench.realm.close()
            assert descendants(guardian.pid) == set()
            await guardian.close()

        asyncio.run(main())

    yield run
    if guardian.pid:
        asyncio.run(guardian.close())


async def bash(tool: Tool, command: str) -> str:
    return (await tool.run({"command": command}, CALL)).text


def test_private_realms_have_shells_of_their_own_that_follow_the_session(
    bench: Callable[[Callable[[Bench], Awaitable[None]]], None], tmp_path: Path
) -> None:
    async def body(bench: Bench) -> None:
        (tmp_path / "sub").mkdir()
        shells = [await bench.bash(isolate) for isolate in ({}, {"terminals": "a"}, {"fs": "b"})]
        for name, shell in zip("xyz", shells, strict=True):
            await bash(shell, f"me={name}")
        bench.realm.move(str(tmp_path / "sub"))
        told = [await bash(shell, 'echo "$me ${PWD##*/} $BASHPID"') for shell in shells]
        assert [words.split()[:2] for words in told] == [["x", "sub"], ["y", "sub"], ["z", "sub"]]
        assert len({words.split()[2] for words in told}) == 3

    bench(body)


def test_a_realm_that_closes_ends_its_own_processes_only(
    bench: Callable[[Callable[[Bench], Awaitable[None]]], None],
) -> None:
    async def body(bench: Bench) -> None:
        spawned = {}
        for isolate in ("", "a", "b"):
            shell = await bench.bash({"terminal": isolate} if isolate else {})
            spawned[isolate] = int(
                (await bash(shell, "nohup sleep 600 >/dev/null 2>&1 & echo $!")).split()[-1]
            )
        private = bench.scope.isolated({"subprocess": "a"}).get(Realm)
        await private.close()
        assert not os.path.exists(f"/proc/{spawned['a']}")
        await bench.realm.close()
        assert not os.path.exists(f"/proc/{spawned['']}")
        assert os.path.exists(f"/proc/{spawned['b']}")
        await bench.scope.close()
        assert descendants(bench.guardian.pid) == set()

    bench(body)


def test_a_private_realm_of_a_resumed_session_announces_the_lost_shell_once(
    bench: Callable[[Callable[[Bench], Awaitable[None]]], None],
) -> None:
    async def body(bench: Bench) -> None:
        bench.realm.restored = True
        shell = await bench.bash({"terminals": "a"})
        told = [await bash(shell, "echo hello") for _ in range(2)]
        assert "shell was reset" in told[0]
        assert told[1] == "hello"

    bench(body)


def test_a_call_that_is_cancelled_leaves_the_private_shell_usable(
    bench: Callable[[Callable[[Bench], Awaitable[None]]], None], tmp_path: Path
) -> None:
    async def body(bench: Bench) -> None:
        shell = await bench.bash({"terminals": "a"})
        await bash(shell, "kept=yes")
        running = asyncio.create_task(bash(shell, "touch begun; sleep 600"))
        while not (tmp_path / "begun").exists():
            await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await bash(shell, "echo $kept; pgrep -P $$ sleep") == "yes\n[exit code: 1]"

    bench(body)


@needs_root
@pytest.mark.parametrize(
    ("shells", "files"),
    [
        ({"terminals": "a"}, {"fs": "a"}),
        ({"terminals": "a"}, {"fs": "b"}),
        ({"terminals": "a"}, {}),
        ({}, {"fs": "b"}),
    ],
)
def test_an_editor_has_the_rights_of_the_session_s_shell_whatever_is_isolated(
    bench: Callable[[Callable[[Bench], Awaitable[None]]], None],
    tmp_path: Path,
    shells: dict[str, str],
    files: dict[str, str],
) -> None:
    async def body(bench: Bench) -> None:
        open_to_all(tmp_path)
        editor = await bench.tool(StrReplaceEditorEntry, files)
        shell = await bench.bash(shells, user="nobody")
        assert (await bash(shell, "id -un")).strip() == "nobody"
        path = tmp_path / "made"
        await editor.run({"command": "create", "path": str(path), "file_text": "x"}, CALL)
        assert path.owner() == "nobody"

    bench(body)


@needs_root
def test_two_shells_in_realms_of_their_own_keep_their_own_users(
    bench: Callable[[Callable[[Bench], Awaitable[None]]], None], tmp_path: Path
) -> None:
    async def body(bench: Bench) -> None:
        open_to_all(tmp_path)
        users = {"a": "nobody", "b": "root"}
        for realm, user in users.items():
            editor = await bench.tool(StrReplaceEditorEntry, {"fs": realm})
            shell = await bench.bash({"terminals": realm, "fs": realm}, user=user if user != "root" else None)
            path = tmp_path / realm
            await editor.run({"command": "create", "path": str(path), "file_text": "x"}, CALL)
            assert (await bash(shell, "id -un")).strip() == path.owner() == user
        assert bench.realm.home is bench.scope.isolated({"fs": "a"}).get(Realm)
        await bench.scope.close()
        assert bench.realm.home is bench.realm and bench.realm.place is None

    bench(body)

"""bash and editor together, where the shell is launched elsewhere or as another user: both see the same."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from cordisd.entries.bash import BashEntry
from cordisd.entries.str_replace_editor import StrReplaceEditorEntry
from cordisd.entries.terminal import TerminalEntry
from cordisd.errors import ToolError
from cordisd.kernel.scope import Scope
from cordisd.services.tools import ToolCall, ToolRegistry
from cordisd.session.realm import Realm
from cordisd.shell.guardian import Guardian
from cordisd.shell.reaper import descendants
from launches import NAMESPACES, can_unshare, image, needs_root, open_to_all
from measure import comes_meanwhile

__all__ = ["image"]

pytestmark = needs_root
CALL = ToolCall("c1", "bash", 1, 1)


class Pair:
    """The tools of one session."""

    def __init__(self, registry: ToolRegistry, guardian: Guardian) -> None:
        self._tools = registry.all()
        self.guardian = guardian

    async def bash(self, command: str) -> str:
        return (await self._tools["bash"].run({"command": command}, CALL)).text

    async def terminal(self, **arguments: object) -> str:
        return (await self._tools["terminal"].run(arguments, CALL)).text

    async def edit(self, command: str, path: str, **arguments: object) -> str:
        given: dict[str, Any] = {"command": command, "path": path, **arguments}
        return (await self._tools["str_replace_editor"].run(given, CALL)).text


@pytest.fixture
def guardian() -> Iterator[Guardian]:
    made = Guardian.fork()
    yield made
    if made.pid:
        asyncio.run(made.close())


@pytest.fixture
def both(guardian: Guardian, tmp_path: Path) -> Callable[..., None]:
    """`both(body, cwd=…, **bash config)`: runs `await body(pair)`; the editor is mounted before bash."""

    def run(body: Callable[[Pair], Awaitable[None]], *, cwd: str | None = None, **config: Any) -> None:
        async def main() -> None:
            scope = Scope("test")
            registry = ToolRegistry()
            scope.provide(Realm, Realm("s1", cwd or str(tmp_path), guardian))
            scope.provide(ToolRegistry, registry)
            async with AsyncExitStack() as mounted:
                for entry in (
                    StrReplaceEditorEntry(StrReplaceEditorEntry.read_config({"undoEdit": True})),
                    TerminalEntry(TerminalEntry.read_config({})),
                    BashEntry(BashEntry.read_config(config)),
                ):
                    await mounted.enter_async_context(entry.mount(scope))
                await body(Pair(registry, guardian))
            await guardian.close_realm("s1")
            assert descendants(guardian.pid) == []
            await scope.close()
            await guardian.close()

        asyncio.run(main())

    return run


async def every_command(pair: Pair, folder: str) -> None:
    path = f"{folder}/new/a.txt"
    assert (
        await pair.edit("create", path, file_text="one\ntwo\n") == f"New file created successfully at: {path}"
    )
    assert await pair.bash(f"cat {path}") == "one\ntwo"
    before = await pair.bash(f"echo {path}/../* ; ls -di {path}")
    assert "     2  2" in await pair.edit("str_replace", path, old_str="two", new_str="2")
    after = await pair.bash(f"echo {path}/../* ; ls -di {path}")
    assert before.split("\n")[0] == after.split("\n")[0] and before != after, "replaced, not written over"
    assert "     3  three" in await pair.edit("insert", path, insert_line=2, new_str="three")
    assert (await pair.edit("view", path)).endswith("     1  one\n     2  2\n     3  three\n")
    assert f"f\t{path}\n" in await pair.edit("view", folder)
    await pair.edit("undo_edit", path)
    assert await pair.bash(f"cat {path}") == "one\n2"
    with pytest.raises(ToolError, match="already exists"):
        await pair.edit("create", path, file_text="")
    with pytest.raises(ToolError, match="absent"):
        await pair.edit("str_replace", path, old_str="absent", new_str="")
    with pytest.raises(ToolError, match="does not exist"):
        await pair.edit("view", f"{folder}/nowhere")
    await pair.bash(f"mkfifo {folder}/pipe")
    with pytest.raises(ToolError, match="named pipe"):
        await pair.edit("view", f"{folder}/pipe")
    assert await pair.edit("create", f"{folder}/big", file_text="x\n" * 1_000_000)
    assert "     1  y\n" in await pair.edit("insert", f"{folder}/big", insert_line=0, new_str="y")
    assert "total of 1000001 lines" in await pair.edit("view", f"{folder}/big", view_range=[9, 9])


def test_every_command_works_as_another_user_and_with_that_users_rights_only(both, tmp_path: Path) -> None:
    open_to_all(tmp_path)
    (tmp_path / "secret").write_text("of root")
    (tmp_path / "secret").chmod(0o600)

    async def body(pair: Pair) -> None:
        await every_command(pair, str(tmp_path))
        assert (tmp_path / "new" / "a.txt").stat().st_uid == os.stat("/proc/self").st_uid + 65_534
        with pytest.raises(ToolError, match="permission denied"):
            await pair.edit("view", str(tmp_path / "secret"))
        with pytest.raises(ToolError, match="permission denied"):
            await pair.edit("create", "/etc/cordisd-test", file_text="x")
        await pair.bash("ln new/a.txt other")
        await pair.edit("str_replace", str(tmp_path / "other"), old_str="one", new_str="1")
        assert (tmp_path / "new" / "a.txt").read_text() == "1\n2\n"

    both(body, user="nobody")


@pytest.mark.parametrize(
    "become", ["exec su", "exec unshare -Ur sleep 100", "exec unshare -Um sleep 100", "exec sleep 100"]
)
def test_whatever_the_shell_turns_into_the_editor_keeps_the_rights_of_the_user(
    both, tmp_path: Path, become: str
) -> None:
    open_to_all(tmp_path)
    (tmp_path / "secret").write_text("of root")
    (tmp_path / "secret").chmod(0o600)

    async def body(pair: Pair) -> None:
        arm = f"trap '{become}' USR1; (sleep 0.1; kill -USR1 $$) >/dev/null 2>&1 & echo $$"
        shell = (await pair.bash(arm)).split("\n")[-1]
        assert await comes_meanwhile(lambda: Path(f"/proc/{shell}/comm").read_text() != "bash\n")
        for path in (tmp_path / "secret", Path("/etc/shadow")):
            with pytest.raises(ToolError):
                await pair.edit("view", str(path))
        with pytest.raises(ToolError):
            await pair.edit("create", "/etc/cordisd-test", file_text="x")
        with contextlib.suppress(ToolError):
            await pair.edit("create", str(tmp_path / "made"), file_text="x")
            assert (tmp_path / "made").stat().st_uid == 65_534
        assert not os.path.exists("/etc/cordisd-test")

    both(body, user="nobody")


def test_in_a_user_namespace_the_editor_is_whom_the_daemon_chose(both, tmp_path: Path) -> None:
    open_to_all(tmp_path)
    (tmp_path / "secret").write_text("of root")
    (tmp_path / "secret").chmod(0o600)

    async def body(pair: Pair) -> None:
        if "not permitted" in await pair.bash("id -u"):
            pytest.skip("no user namespaces here")
        assert await pair.bash("id -u") == "0"
        await every_command(pair, str(tmp_path))
        assert (tmp_path / "new" / "a.txt").stat().st_uid == 65_534
        for path in (tmp_path / "secret", Path("/etc/shadow")):
            with pytest.raises(ToolError, match="permission denied"):
                await pair.edit("view", str(path))

    both(body, user="nobody", argv=["unshare", "-U", "-r", "-m"])


def test_every_command_works_below_another_root(both, image: Path) -> None:
    async def body(pair: Pair) -> None:
        await pair.edit("create", "/work/a", file_text="inside\n")
        assert (image / "work" / "a").read_text() == "inside\n"
        assert "/work/a" in await pair.edit("view", "/")
        await pair.edit("str_replace", "/work/a", old_str="inside", new_str="changed")
        assert (image / "work" / "a").read_text() == "changed\n"
        with pytest.raises(ToolError, match="does not exist"):
            await pair.edit("view", str(image))

    both(body, cwd="/work", argv=["chroot", str(image)])


def test_the_editor_follows_the_shell_into_its_mounts_and_to_its_successor(both, tmp_path: Path) -> None:
    if not can_unshare():
        pytest.skip("cannot make namespaces")
    (tmp_path / "m").mkdir()

    async def body(pair: Pair) -> None:
        await pair.bash("mount -t tmpfs none m")
        await pair.edit("create", str(tmp_path / "m" / "a"), file_text="in the mount\n")
        assert await pair.bash("cat m/a") == "in the mount"
        assert os.listdir(tmp_path / "m") == []
        await pair.bash("exit")
        with pytest.raises(ToolError, match="does not exist"):
            await pair.edit("view", str(tmp_path / "m" / "a"))
        await every_command(pair, str(tmp_path))

    both(body, argv=list(NAMESPACES))


def test_the_editor_has_no_more_rights_than_the_launcher_left(both, tmp_path: Path) -> None:
    open_to_all(tmp_path)
    (tmp_path / "secret").write_text("of nobody")
    os.chown(tmp_path / "secret", 65_534, 65_534)
    (tmp_path / "secret").chmod(0o600)

    async def body(pair: Pair) -> None:
        assert "denied" in await pair.bash("cat secret")
        with pytest.raises(ToolError, match="permission denied"):
            await pair.edit("view", str(tmp_path / "secret"))
        await pair.edit("create", str(tmp_path / "made"), file_text="x")
        assert (tmp_path / "made").stat().st_mode & 0o777 == 0o600

    launcher = 'umask 077; exec setpriv --bounding-set=-all --inh-caps=-all "$@"'
    both(body, argv=["sh", "-c", launcher, "sh"])


def test_terminals_are_launched_like_the_shell(both, tmp_path: Path) -> None:
    open_to_all(tmp_path)

    async def body(pair: Pair) -> None:
        told = await pair.terminal(action="start", command="id -un; echo $HOME; ulimit -c; tty; read x")
        assert told.startswith("nobody\n/nonexistent\n7\n/dev/pts/")

    both(body, user="nobody", rlimits={"core": 7 * 1024})


def test_a_killed_process_is_an_error_once_and_started_again(both, tmp_path: Path) -> None:
    open_to_all(tmp_path)

    async def body(pair: Pair) -> None:
        await pair.edit("create", str(tmp_path / "a"), file_text="x\n")
        [worker] = [
            process.pid
            for process in descendants(pair.guardian.pid)
            if Path(f"/proc/{process.pid}/comm").read_text() != "bash\n"
        ]
        os.kill(worker, signal.SIGKILL)
        try:
            await pair.edit("view", str(tmp_path / "a"))
        except ToolError as failure:
            assert "has ended" in str(failure)
        assert "x" in await pair.edit("view", str(tmp_path / "a"))

    both(body, user="nobody")


def test_a_cancelled_edit_leaves_the_editor_usable(both, tmp_path: Path) -> None:
    open_to_all(tmp_path)

    async def body(pair: Pair) -> None:
        path = str(tmp_path / "a")
        await pair.edit("create", path, file_text="x\n" * 500_000)
        for n in range(20):
            task = asyncio.create_task(pair.edit("insert", path, insert_line=0, new_str=f"n{n}"))
            await asyncio.sleep(n % 10 * 0.002)
            task.cancel()
            await asyncio.wait([task])
        assert (await pair.edit("view", path, view_range=[1, 1])).count("\n") == 2
        content = (tmp_path / "a").read_text()
        assert content.endswith("x\n" * 500_000) and content.count("\n") <= 500_020

    both(body, user="nobody")

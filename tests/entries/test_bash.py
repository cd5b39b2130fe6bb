"""The entry `bash`, mounted in a real scope with a real realm and guardian."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from cordisd.entries.bash import BashEntry
from cordisd.errors import ShellError, ToolError
from cordisd.kernel.scope import Scope
from cordisd.services.secrets import SecretNames
from cordisd.services.tools import Tool, ToolCall, ToolRegistry
from cordisd.session.realm import Realm
from cordisd.shell.guardian import Guardian
from cordisd.shell.reaper import descendants
from cordisd.shell.report import WAS_RESET_NOTICE

CALL = ToolCall("c1", "bash", 1, 1)


@pytest.fixture
def guardian() -> Iterator[Guardian]:
    made = Guardian.fork()
    yield made
    if made.pid:
        asyncio.run(made.close())


@pytest.fixture
def mounted(guardian: Guardian, tmp_path: Path) -> Callable[..., Any]:
    """`mounted(body, **config)`: runs `await body(tool, realm)` while the entry is mounted."""

    def run(body: Callable[[Tool, Realm], Awaitable[None]], **config: Any) -> None:
        async def main() -> None:
            scope = Scope("test")
            realm = Realm("s1", str(tmp_path), guardian)
            registry = ToolRegistry()
            scope.provide(Realm, realm)
            scope.provide(ToolRegistry, registry)
            scope.provide(SecretNames, SecretNames({"TEST_SECRET"}))
            entry = BashEntry(BashEntry.read_config(config))
            async with entry.mount(scope):
                assert descendants(guardian.pid) == []
                await body(registry.all()["bash"], realm)
            assert registry.all() == {}
            assert descendants(guardian.pid) == []
            await realm.close()
            await scope.close()
            await guardian.close()

        asyncio.run(main())

    return run


async def _text(tool: Tool, command: str) -> str:
    return (await tool.run({"command": command}, CALL)).text


def test_the_tool_has_one_required_string_parameter(mounted):
    async def body(tool: Tool, realm: Realm) -> None:
        assert tool.schema.name == "bash" and not tool.parallel_safe
        assert list(tool.schema.parameters["properties"]) == tool.schema.parameters["required"] == ["command"]
        assert tool.schema.parameters["properties"]["command"]["type"] == "string"
        assert "network" not in tool.schema.description and "mirror" not in tool.schema.description

    mounted(body)


def test_a_command_runs_in_the_workspace_and_its_facts_are_logged(mounted, tmp_path: Path):
    async def body(tool: Tool, realm: Realm) -> None:
        result = await tool.run({"command": "pwd; exit 3"}, CALL)
        assert result.text.startswith(f"{tmp_path}\nexit\n[shell exited: code 3]\n")
        assert not result.is_error and result.meta == {"exitCode": 3, "shellReset": True}
        assert (await tool.run({"command": "kill -9 $$"}, CALL)).meta == {
            "signal": "SIGKILL",
            "shellReset": True,
        }
        assert (await tool.run({"command": "true"}, CALL)).meta is None
        assert (await tool.run({"command": "sleep 10"}, CALL)).meta == {"exitCode": 130, "timedOut": True}
        assert (await tool.run({"command": "seq 9999"}, CALL)).meta == {"truncated": True}

    mounted(body, timeoutMs=1000)


@pytest.mark.parametrize("command", ["", " \n\t", "echo a\0b"])
def test_a_command_that_cannot_be_run_is_a_tool_error(mounted, command: str):
    async def body(tool: Tool, realm: Realm) -> None:
        with pytest.raises(ToolError, match="command"):
            await tool.run({"command": command}, CALL)
        assert await _text(tool, "echo ok") == "ok"

    mounted(body)


def test_secrets_stay_out_of_the_shell_unless_passed(mounted, monkeypatch):
    for name in ("TEST_SECRET", "DEEPSEEK_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.setenv(name, "hidden")

    async def body(tool: Tool, realm: Realm) -> None:
        assert await _text(tool, "env | grep -c hidden; echo $OPENAI_BASE_URL$ADDED") == "1\nhiddenyes"

    mounted(body, env={"ADDED": "yes"}, passEnv=["OPENAI_BASE_URL"])


def test_the_shell_follows_its_session(mounted, tmp_path: Path):
    async def body(tool: Tool, realm: Realm) -> None:
        (tmp_path / "a").mkdir()
        realm.move(str(tmp_path / "a"))
        assert await _text(tool, "pwd") == f"{tmp_path}/a"
        realm.move(str(tmp_path))
        assert await _text(tool, "pwd; exit") == f"{tmp_path}\n" + (await _exit_text())
        assert await _text(tool, "pwd") == str(tmp_path)

    async def _exit_text() -> str:
        from cordisd.shell.report import RESET_NOTICE

        return f"exit\n[shell exited: code 0]\n{RESET_NOTICE}"

    mounted(body)


def test_the_first_result_of_a_restored_session_says_that_state_was_lost(mounted):
    async def body(tool: Tool, realm: Realm) -> None:
        realm.restored = True
        assert await _text(tool, "echo a") == f"{WAS_RESET_NOTICE}\na"
        assert await _text(tool, "echo b") == "b"

    mounted(body)


def test_a_lost_guardian_is_a_tool_error(mounted, guardian: Guardian):
    async def body(tool: Tool, realm: Realm) -> None:
        await guardian.close()
        with pytest.raises(ToolError, match="guardian"):
            await _text(tool, "echo a")

    mounted(body)


@pytest.mark.parametrize(
    "config",
    [{"timeoutMs": 0}, {"description": " "}, {"trailer": "never"}, {"rows": 40}, {"maxOutputChars": "5"}],
)
def test_a_wrong_configuration_is_refused(config: dict[str, Any]):
    with pytest.raises(ValidationError):
        BashEntry.read_config(config)


def test_without_a_guardian_the_entry_does_not_mount(tmp_path: Path):
    async def main() -> None:
        scope = Scope("test")
        scope.provide(Realm, Realm("s1", str(tmp_path), None))
        scope.provide(ToolRegistry, ToolRegistry())
        with pytest.raises(ShellError, match="guardian"):
            async with BashEntry(BashEntry.read_config({})).mount(scope):
                pass
        await scope.close()

    asyncio.run(main())

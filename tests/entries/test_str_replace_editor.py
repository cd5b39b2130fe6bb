from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from cordisd.entries.str_replace_editor import StrReplaceEditorEntry
from cordisd.errors import ToolError
from cordisd.kernel.scope import Scope
from cordisd.services.tools import Tool, ToolCall, ToolRegistry
from cordisd.session.realm import Realm

CALL = ToolCall("c1", "str_replace_editor", turn=1, step=1)
REFERENCE_LOG = Path("/work/shared/fixtures/reference-logs/persistent-tools/session.jsonl")


class Mounted:
    """The entry in a session's scope whose working directory is `cwd`."""

    def __init__(self, cwd: Path, **config: object) -> None:
        self.scope = Scope("session")
        self.registry = ToolRegistry()
        self.realm = Realm("s1", str(cwd), None)
        self.scope.provide(ToolRegistry, self.registry)
        self.scope.provide(Realm, self.realm)
        self.entry = StrReplaceEditorEntry(StrReplaceEditorEntry.read_config(config))

    def run(self, *calls: dict[str, object]) -> list[str]:
        async def run_all() -> list[str]:
            async with self.entry.mount(self.scope):
                return [(await self.tool.run(arguments, CALL)).text for arguments in calls]

        return asyncio.run(run_all())

    @property
    def tool(self) -> Tool:
        return self.registry.all()["str_replace_editor"]


def test_the_tool_is_there_while_the_entry_is_mounted(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path)

    async def look() -> None:
        async with mounted.entry.mount(mounted.scope):
            assert mounted.tool.parallel_safe is False
        assert mounted.registry.all() == {}

    asyncio.run(look())


def test_the_schema_is_that_of_the_published_tool(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path)

    async def schema() -> dict:
        async with mounted.entry.mount(mounted.scope):
            return mounted.tool.schema.as_json()

    parameters = asyncio.run(schema())["parameters"]
    json.dumps(parameters)
    assert parameters["required"] == ["command", "path"]
    assert parameters["properties"]["command"]["enum"] == ["view", "create", "str_replace", "insert"]
    assert {name: field["type"] for name, field in parameters["properties"].items()} == {
        "command": "string",
        "path": "string",
        "file_text": "string",
        "old_str": "string",
        "new_str": "string",
        "insert_line": "integer",
        "view_range": "array",
    }
    assert parameters["properties"]["view_range"]["items"] == {"type": "integer"}


def test_the_description_can_be_configured(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path, description=" Edit things. ")

    async def description() -> str:
        async with mounted.entry.mount(mounted.scope):
            return mounted.tool.schema.description

    assert asyncio.run(description()) == " Edit things. "


@pytest.mark.parametrize(
    "config",
    [
        {"description": "  "},
        {"description": ""},
        {"maxOutputChars": 0},
        {"snippetLines": -1},
        {"maxOutput": 5},
        {"lineNumbers": "none"},
        {"undoEdit": 1},
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(config: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        StrReplaceEditorEntry.read_config(config)


def test_a_file_is_created_viewed_changed_and_viewed_again(tmp_path: Path) -> None:
    path = f"{tmp_path}/a.py"
    created, viewed, changed, inserted, listed = Mounted(tmp_path).run(
        {"command": "create", "path": path, "file_text": "def f():\n\treturn 1\n", "view_range": None},
        {"command": "view", "path": path, "unknown": 1},
        {"command": "str_replace", "path": path, "old_str": "return 1", "new_str": "return 2"},
        {"command": "insert", "path": path, "insert_line": 0, "insert_text": "# f"},
        {"command": "view", "path": str(tmp_path)},
    )
    assert created == f"New file created successfully at: {path}"
    assert viewed.endswith(":\n     1  def f():\n     2  \treturn 1\n")
    edited = f"The file {path} has been edited successfully.\n"
    assert changed == f"{edited}Lines 1-2 are now:\n     1  def f():\n     2  \treturn 2"
    assert inserted == f"{edited}Lines 1-3 are now:\n     1  # f\n     2  def f():\n     3  \treturn 2"
    assert listed.endswith(f"\nd\t{tmp_path}\nf\t{path}\n")


def test_limits_come_from_the_configuration(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("x\n" * 100)
    viewed, inserted = Mounted(tmp_path, maxOutputChars=50, snippetLines=0).run(
        {"command": "view", "path": str(path)},
        {"command": "insert", "path": str(path), "insert_line": 0, "new_str": "y"},
    )
    assert "lines 1-5 of 100" in viewed
    assert inserted == f"The file {path} has been edited successfully."


def test_suggestions_follow_the_working_directory(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path)
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "a").touch()
    mounted.realm.cwd = f"{tmp_path}/inner"
    with pytest.raises(ToolError, match=f"{tmp_path}/inner/a"):
        mounted.run({"command": "view", "path": "a"})


def test_the_calls_of_a_log_of_the_reference_give_its_first_lines(tmp_path: Path) -> None:
    if not REFERENCE_LOG.exists():
        pytest.skip("the logs of the reference are not on this machine")
    calls, results = {}, {}
    for line in REFERENCE_LOG.read_text().replace("{{cwd}}", str(tmp_path)).splitlines():
        event = json.loads(line)
        if event["type"] == "tool/call" and event["data"]["name"] == "str_replace_editor":
            calls[event["data"]["callId"]] = json.loads(event["data"]["arguments"])
        elif event["type"] == "tool/result":
            block = event["data"]["message"]["content"][0]
            results[block["toolCallId"]] = block["content"][0]["text"]
    ours = Mounted(tmp_path).run(*calls.values())
    assert len(ours) == 3
    for text, call_id in zip(ours, calls, strict=True):
        # A final line end is not a line here, which the reference counts as one.
        assert text.splitlines()[0] == results[call_id].splitlines()[0].replace("3 lines", "2 lines")


def test_nothing_but_the_files_of_the_model_is_touched(tmp_path: Path) -> None:
    Mounted(tmp_path).run({"command": "create", "path": f"{tmp_path}/a/b", "file_text": ""})
    assert os.listdir(tmp_path) == ["a"]
    assert os.listdir(tmp_path / "a") == ["b"]

"""Entries of your own: a tool, a prompt section and a model from outside cordisd, with no change in it.

    python tutorials/02_write_an_entry.py

A composition names entries. An entry is a class with a `Config` and a `mount`; an installed package offers it
under a name. Every claim below is checked; the script fails if one is not true.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from cordisd_sdk import Client

PLUG_IN = '''
import json
from contextlib import asynccontextmanager
from pathlib import Path

from cordisd.errors import ToolError
from cordisd.kernel.entry import Entry
from cordisd.services.models import ModelAdapter, ModelRegistry
from cordisd.services.prompt import PromptRegistry, Section
from cordisd.services.tools import Tool, ToolRegistry, ToolResult, ToolSchema
from cordisd.settings import EntryConfig


# 1. A tool. The arguments of a call are checked against the schema before `run` is called.
class TicketTool(Tool):
    parameters = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
    schema = ToolSchema("ticket", "Show the text of a ticket.", parameters)
    parallel_safe = True  # several calls of one step may run at the same time
    contract = 1  # grows when the wording or the shape of a result changes

    def __init__(self, folder):
        self.folder = folder

    async def run(self, arguments, call):
        file = self.folder / f"{arguments['number']}.txt"
        if not file.is_file():
            raise ToolError(f"there is no ticket {arguments['number']}")  # the model reads this
        return ToolResult(file.read_text())


class TicketsConfig(EntryConfig):
    """Which tickets the model may read."""

    folder: str
    """Folder with one text file for each ticket, `7.txt` for instance."""  # `cordisd schema` shows it


# `mount` adds the tool to the session's registry and defers its removal; a clean-up goes after the `yield`.
class TicketsEntry(Entry):
    """Offers the tool `ticket`."""

    Config = TicketsConfig
    lifetime = "session"  # mounted in each new session; "host" would be once, for all of them
    needs = (ToolRegistry,)  # it is mounted when these are there

    @asynccontextmanager
    async def mount(self, scope):
        tool = TicketTool(Path(self.config.folder))
        scope.defer(scope.get(ToolRegistry).add(tool))
        yield


# 2. A section of the system prompt. Sections are sorted by their order; the persona's is 0.
class RulesConfig(EntryConfig):
    """What every agent of this house is told."""

    rules: list[str]
    """One sentence each."""


class RulesEntry(Entry):
    """Adds the section `acme:rules` below the persona."""

    Config = RulesConfig
    lifetime = "session"
    needs = (PromptRegistry,)

    @asynccontextmanager
    async def mount(self, scope):
        text = "House rules:\\n" + "\\n".join(f"- {rule}" for rule in self.config.rules)
        scope.defer(scope.get(PromptRegistry).add_section(Section("acme:rules", 50, text)))
        yield


# 3. A model. This one needs no key: it asks for a ticket, then repeats what the tool has said.
class ScriptedModel(ModelAdapter):
    provider = "acme"

    def __init__(self, record):
        self.record = record

    def encode_message(self, message):  # called once for each message; requests join the bytes
        return json.dumps({"role": message["role"], "content": message["content"]}).encode()

    def encode_request(self, request):
        head = {"system": request.system, "tools": [tool.as_json() for tool in request.tools]}
        return json.dumps(head).encode()[:-1] + b', "messages": [%b]}' % b", ".join(request.messages)

    async def stream(self, request):  # an HTTP client would post the body, and yield as it reads
        body = self.encode_request(request)
        with self.record.open("ab") as file:
            file.write(body + b"\\n")
        [last] = json.loads(body)["messages"][-1]["content"]
        if last["type"] == "tool-result":
            block, kind = {"type": "text", "text": "It says: " + last["content"][0]["text"]}, "stop"
        else:
            call = {"type": "tool-call", "id": "call-1", "name": "ticket", "arguments": '{"number": 7}'}
            block, kind = call, "tool-calls"
        yield [
            {"type": "block-start", "index": 0, "blockType": block["type"]},
            {"type": "block-end", "index": 0, "block": block},
            {"type": "finish", "reason": {"kind": kind}},
        ]


class ScriptConfig(EntryConfig):
    """How the scripted model behaves."""

    record: str
    """File to which every request is appended, one line of JSON each."""


class ScriptEntry(Entry):
    """Serves the provider `acme` with a scripted model."""

    Config = ScriptConfig
    needs = (ModelRegistry,)

    @asynccontextmanager
    async def mount(self, scope):
        scope.defer(scope.get(ModelRegistry).add(ScriptedModel(Path(self.config.record))))
        yield
'''

# 4. What an installer makes of `[project.entry-points."cordisd.entries"]` in the package's pyproject.toml.
# The last line tries to take a name that cordisd has itself.
ENTRY_POINTS = """\
[cordisd.entries]
acme-tickets = acme_cordisd:TicketsEntry
acme-rules = acme_cordisd:RulesEntry
acme-model = acme_cordisd:ScriptEntry
bash = acme_cordisd:TicketsEntry
"""

# 5. A composition that uses them by these names.
COMPOSITION = """\
- {id: model, name: acme-model, config: {record: requests.jsonl}}
- {id: persona, name: persona, config: {text: You answer questions about tickets.}}
- {id: rules, name: acme-rules, config: {rules: [Quote the ticket.]}}
- {id: tickets, name: acme-tickets, config: {folder: tickets}}
- {id: sessions, name: sessions-jsonl, config: {root: logs}}
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        os.chdir(temporary)
        write("site/acme_cordisd.py", PLUG_IN)
        write("site/acme_cordisd-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
        write("site/acme_cordisd-1.0.dist-info/entry_points.txt", ENTRY_POINTS)
        write("tickets/7.txt", "The printer is on fire.")
        write("acme.cordis.yml", COMPOSITION)
        path = [os.path.abspath("site"), os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))
        roll_out()
        make_mistakes()


def write(path: str, text: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)


def roll_out() -> None:
    """One prompt, and what the model received for it."""
    with Client(composition="acme.cordis.yml", provider="acme", model="script-1") as client:
        result = client.session().run("What is ticket 7 about?")
    print(result.final_response)
    assert result.final_response == "It says: The printer is on fire."

    first, second = map(json.loads, Path("requests.jsonl").read_text().splitlines())
    assert first["system"] == "You answer questions about tickets.\n\nHouse rules:\n- Quote the ticket."
    assert [tool["name"] for tool in first["tools"]] == ["ticket"]
    assert second["messages"][: len(first["messages"])] == first["messages"], "a history only grows"
    [returned] = second["messages"][-1]["content"]
    assert returned["content"] == [{"type": "text", "text": "The printer is on fire."}]


def make_mistakes() -> None:
    """A wrong key is found before anything runs, and a name of cordisd's own keeps its meaning."""
    shadowed = "- {id: shell, name: bash, config: {folder: tickets}}\n"
    write("wrong.cordis.yml", COMPOSITION.replace("{folder:", "{foldr:") + shadowed)
    check = [sys.executable, "-m", "cordisd", "check", "wrong.cordis.yml"]
    missing, unknown, shell = subprocess.run(check, stderr=subprocess.PIPE, text=True).stderr.splitlines()
    print(missing, unknown, shell, sep="\n")
    where = 'wrong.cordis.yml:4, entry "tickets": invalid config: '
    assert missing == f"{where}$.folder is required: a string"
    assert unknown == f'{where}unknown key $.foldr (did you mean "folder"?); allowed: folder'
    assert 'wrong.cordis.yml:6, entry "shell": invalid config: unknown key $.folder' in shell
    assert "timeoutMs" in shell, "that is the configuration of cordisd's own bash"


if __name__ == "__main__":
    main()

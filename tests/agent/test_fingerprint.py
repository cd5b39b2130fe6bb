"""The digest: equal for agents that are the same to their model, different for all others."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import Field, field_validator

from agents import Agents
from cordisd.agent.fingerprint import canonical_json
from cordisd.entries.bash import BashTool
from cordisd.errors import PresetError
from cordisd.kernel.entry import Entry
from cordisd.kernel.scope import Scope
from cordisd.services.prompt import Assembly, PromptRegistry, Section
from cordisd.services.tools import ToolSchema
from cordisd.settings import EntryConfig

PLAIN = """
- {id: persona, name: persona, config: {text: Be brief., complete: true}}
- {id: bash, name: bash, config: {timeoutMs: 300000}}
- {id: editor, name: str-replace-editor}
- {id: extra, name: "agents:OfferEntry", config: {description: d}}
- {id: agent, name: agent, config: {parameters: {temperature: 0.5, seed: 1}}}
"""

SAME = {
    "other ids": PLAIN.replace("id: bash", "id: shell").replace("id: editor, ", ""),
    "comments and blanks": PLAIN.replace("\n-", "\n\n# why\n-"),
    "rows in another order": "\n".join(reversed(PLAIN.strip().splitlines())),
    "keys in another order": PLAIN.replace(
        "{text: Be brief., complete: true}", "{complete: true, text: Be brief.}"
    ),
    "a default written out": PLAIN.replace("{description: d}", "{description: d, contract: 1}").replace(
        "timeoutMs: 300000", "timeoutMs: 300000, argv: [], trailer: reference, user: null"
    ),
    "a default left out": PLAIN.replace(", config: {timeoutMs: 300000}", ""),
    "a number as a float": PLAIN.replace("300000", "3.0e+5"),
    "published names": PLAIN.replace("name: bash", 'name: "@deepseek-ai/dsh-tool-bash-persistent"').replace(
        "name: persona", "name: dsh-persona"
    ),
    "the class's own name": PLAIN.replace("name: bash", 'name: "cordisd.entries.bash:BashEntry"'),
    "a group": PLAIN.replace(
        "- {id: editor, name: str-replace-editor}",
        "- {id: g, group: true, isolate: {fs: false}, config: [{id: e, name: str-replace-editor}]}",
    ),
    "a disabled row": PLAIN + "- {id: off, name: section, disabled: true, config: {name: s, text: t}}\n",
}

OTHER = {
    "a letter of the prompt": PLAIN.replace("brief.", "brief!"),
    "not complete": PLAIN.replace("complete: true", "complete: false"),
    "a section that the complete one hides": PLAIN + "- {name: section, config: {name: s, text: t}}\n",
    "a limit": PLAIN.replace("300000", "300001"),
    "a blank in a description": PLAIN.replace("description: d", 'description: "d "'),
    "a tool's name": PLAIN.replace("description: d", "description: d, tool: other"),
    "a tool more": PLAIN + '- {name: "agents:OfferEntry", config: {tool: more}}\n',
    "a tool less": PLAIN.replace("- {id: editor, name: str-replace-editor}\n", ""),
    "the order of tools": PLAIN.replace(
        "config: {parameters", 'config: {toolOrder: [offered, "<unlisted-tools>"], parameters'
    ),
    "a schema's type": PLAIN.replace("description: d", "description: d, parameters: {type: object, x: 1}"),
    "a parameter": PLAIN.replace("seed: 1", "seed: 2"),
    "a parameter as a float": PLAIN.replace("seed: 1", "seed: 1.0"),
    "parameters in another order": PLAIN.replace("temperature: 0.5, seed: 1", "seed: 1, temperature: 0.5"),
    "a behavioural key": PLAIN.replace(
        "name: str-replace-editor", "name: str-replace-editor, config: {snippetLines: 3}"
    ),
    "no runtime context": PLAIN.replace("complete: true", "complete: true, includeRuntimeContext: false"),
}


@pytest.mark.parametrize("kind", SAME)
def test_what_makes_no_difference_to_a_model_makes_none_to_the_digest(kind: str, agents: Agents) -> None:
    assert SAME[kind] != PLAIN
    assert agents.digest(SAME[kind]) == agents.digest(PLAIN)


def test_everything_that_makes_an_agent_another_makes_another_digest(agents: Agents) -> None:
    digests = {kind: agents.digest(text) for kind, text in OTHER.items()} | {"": agents.digest(PLAIN)}
    assert len(set(digests.values())) == len(OTHER) + 1


def test_a_tool_whose_results_read_otherwise_makes_another_digest(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = agents.digest(PLAIN)
    monkeypatch.setattr(BashTool, "contract", BashTool.contract + 1)
    assert agents.digest(PLAIN) != before


def test_the_digest_is_the_hash_of_the_document_and_the_hashes_are_those_of_fp_4(agents: Agents) -> None:
    found = agents.fingerprint(PLAIN)
    text = json.dumps(found.document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert found.digest == "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    tools = json.dumps(found.document["tools"], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert found.hashes.tools_sha256 == hashlib.sha256(tools.encode()).hexdigest()
    assert found.hashes.prompt_sha256 == hashlib.sha256(b"Be brief.").hexdigest()


def test_sessions_of_equal_agents_share_one_fingerprint(agents: Agents) -> None:
    with (
        agents.mounted(PLAIN) as agent,
        agents.mounted(SAME["other ids"], "two") as same,
        agents.mounted(OTHER["a limit"], "three") as other,
    ):
        assert agent.fingerprint is same.fingerprint
        assert agent.fingerprint.digest != other.fingerprint.digest


TWO_AND_TWO = """
- {group: true, isolate: {fs: true}, config: [{name: bash}, {name: str-replace-editor}]}
- {name: "agents:OfferEntry"}
- {name: terminal}
"""


def test_which_entries_isolation_parts_is_in_the_digest_and_how_realms_are_called_is_not(
    agents: Agents,
) -> None:
    named = TWO_AND_TWO.replace("fs: true", "terminals: mine")
    by_row = """
- {name: terminal}
- {name: str-replace-editor, isolate: {fs: x}}
- {name: "agents:OfferEntry"}
- {name: bash, isolate: {fs: x}}
"""
    assert len({agents.digest(text) for text in (TWO_AND_TWO, named, by_row)}) == 1
    together = by_row.replace("{name: terminal}", "{name: terminal, isolate: {fs: x}}")
    assert agents.digest(together) == agents.digest(by_row.replace(", isolate: {fs: x}", ""))
    others = [
        by_row.replace("fs: x", "fs: true"),
        by_row.replace("editor, isolate: {fs: x}", "editor"),
        together,
    ]
    assert len({agents.digest(text) for text in (by_row, *others)}) == 4


def test_isolating_what_an_entry_provides_makes_another_digest(agents: Agents) -> None:
    loop = PLAIN.replace("name: agent,", "name: agent, isolate: {loopSettings: true},")
    quiet = [
        text.replace("parameters: {temperature: 0.5, seed: 1}", "maxParallelToolCalls: 2")
        for text in (PLAIN, loop)
    ]
    assert agents.fingerprint(quiet[0]).document["parameters"] == {}
    assert agents.digest(quiet[0]) != agents.digest(quiet[1])


def test_the_order_of_a_schemas_keys_is_text_to_a_model_so_it_is_in_the_digest(agents: Agents) -> None:
    def reversed_keys(assembly: Assembly, proceed: Any) -> Assembly:
        assembly.tools = [
            tool._replace(parameters=dict(reversed(tool.parameters.items()))) for tool in assembly.tools
        ]
        return proceed(assembly)

    plain = agents.fingerprint(PLAIN)
    turned = agents.fingerprint(PLAIN, host=lambda prompts: prompts.add_listener(reversed_keys))
    assert turned.hashes.tools_sha256 == plain.hashes.tools_sha256, "FP-4 sorts the keys"
    assert turned.digest != plain.digest


def test_a_host_section_counts_where_it_reaches_the_prompt_and_not_beside_a_complete_one(
    agents: Agents,
) -> None:
    open_prompt = PLAIN.replace("complete: true", "complete: false")

    def host(prompts: PromptRegistry) -> None:
        prompts.add_section(Section("house", -5, "House rules."))

    assert agents.fingerprint(open_prompt, host=host).digest != agents.digest(open_prompt)
    assert agents.fingerprint(PLAIN, host=host).digest == agents.digest(PLAIN)


def test_variables_and_text_functions_stand_in_the_digest_as_such(agents: Agents) -> None:
    def host(day: str) -> Any:
        def add(prompts: PromptRegistry) -> None:
            prompts.add_variable("day", day)
            prompts.add_context(Section("today", 0, lambda _: f"It is {day}."))

        return add

    text = PLAIN.replace("Be brief.", '"Today is {{day}} in {{cwd}}."')
    monday, friday = (agents.fingerprint(text, host=host(day)) for day in ("monday", "friday"))
    assert monday.digest == friday.digest
    assert monday.document["system"] == "Today is {{day}} in {{cwd}}."
    assert monday.document["contexts"] == [["today", "{{%s:%s}}" % (__name__, _lambda_name())]]  # noqa: UP031


def _lambda_name() -> str:
    here = test_variables_and_text_functions_stand_in_the_digest_as_such.__qualname__
    return f"{here}.<locals>.host.<locals>.add.<locals>.<lambda>"


def test_the_document_keeps_what_a_tool_was_when_its_schema_changes_later(agents: Agents) -> None:
    schemas: list[ToolSchema] = []

    def keep(assembly: Assembly, proceed: Any) -> Assembly:
        schemas.extend(assembly.tools)
        return proceed(assembly)

    found = agents.fingerprint(PLAIN, host=lambda prompts: prompts.add_listener(keep))
    before = canonical_json(found.document)
    for schema in schemas:
        schema.parameters["properties"]["late"] = {"type": "string"}
    assert canonical_json(found.document) == before


class SetConfig(EntryConfig):
    """A key that is a set."""

    numbers: frozenset[int] = frozenset()
    hidden: str = Field(default="", exclude=True)
    limit: float = Field(default=1, allow_inf_nan=True)

    @field_validator("numbers", mode="before")
    @classmethod
    def _as_set(cls, numbers: object) -> object:
        return frozenset(numbers) if isinstance(numbers, list) else numbers


class SetEntry(Entry):
    """Contributes nothing."""

    Config = SetConfig
    lifetime = "session"

    @asynccontextmanager
    async def mount(self, scope: Scope) -> AsyncIterator[None]:
        yield


def test_sets_count_by_their_members_whatever_order_python_keeps_them_in(agents: Agents) -> None:
    rows = [
        f'- {{name: "{__name__}:SetEntry", config: {{numbers: [{numbers}]}}}}' for numbers in ("8, 0", "0, 8")
    ]
    assert list(frozenset([8, 0])) != list(frozenset([0, 8])), "or this shows nothing"
    assert agents.digest(rows[0]) == agents.digest(rows[1])
    assert agents.digest(rows[0]) != agents.digest(rows[0].replace("8", "16"))


def test_a_key_that_leaves_itself_out_of_dumps_is_in_the_digest(agents: Agents) -> None:
    rows = [f'- {{name: "{__name__}:SetEntry", config: {{hidden: {word}}}}}' for word in ("a", "b")]
    assert agents.digest(rows[0]) != agents.digest(rows[1])


def test_an_agent_that_cannot_be_written_as_json_is_refused(agents: Agents) -> None:
    with pytest.raises(PresetError, match="cannot be written as JSON"):
        agents.digest(f'- {{name: "{__name__}:SetEntry", config: {{limit: .inf}}}}')


FROZEN = PLAIN.replace("config: {text", "config: {includeRuntimeContext: false, text") + (
    "- {id: profile, name: profile, config: {id: one-v1}}\n"
)


def test_a_frozen_digest_holds_what_is_written_and_nothing_else(agents: Agents) -> None:
    frozen = agents.fingerprint(FROZEN, "one-v1")
    behaviour = dict(frozen.document["behaviour"])
    assert behaviour["bash"] == {"timeoutMs": 300000.0}
    assert behaviour["str-replace-editor"] == {}
    written = FROZEN.replace("timeoutMs: 300000", "timeoutMs: 300000, argv: []")
    assert agents.fingerprint(written, "one-v1").digest != frozen.digest

"""What an agent is, in one digest: the same on every machine, for every user, in every directory.

    {"system": …, "contexts": [[name, text], …], "tools": […], "parameters": {…},
     "behaviour": [[entry, {key: value, …}], …], "contracts": {tool: integer}}

as canonical JSON (sorted keys, no spaces, UTF-8), hashed with SHA-256. Prompts are taken with their variables
not put in. Behaviour is every key of the agent's entries with the value it has, defaults included; of a
frozen preset it is every key that is written, which was every key there was when it was locked. What the
daemon's other entries and the client choose (provider, model, limits of an answer) is recorded in each
`request/header` and not part of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cordisd.agent.settings import LoopSettings
from cordisd.events import JsonObject
from cordisd.kernel.load import LoadedEntry
from cordisd.kernel.names import canonical
from cordisd.kernel.scope import Scope
from cordisd.services.prompt import Assembly, PromptRegistry, template
from cordisd.services.tools import ToolRegistry, ToolSchema


def canonical_json(value: object) -> bytes:
    """`value` as JSON that is the same for equal values: sorted keys, no spaces, UTF-8."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "surrogatepass")


def sha256(data: bytes) -> str:
    """Hexadecimal SHA-256."""
    return hashlib.sha256(data).hexdigest()


def prompt_hash(system: str) -> str:
    """`prompt_sha256` of a system prompt (FP-4)."""
    return sha256(system.encode("utf-8", "surrogatepass"))


def tools_hash(tools: Sequence[ToolSchema]) -> str:
    """`tools_sha256` of a tool list: its order counts (FP-4)."""
    return sha256(canonical_json([tool.as_json() for tool in tools]))


class Hashes(NamedTuple):
    """The three hashes of a profile, hexadecimal."""

    prompt_sha256: str
    tools_sha256: str
    profile_sha256: str


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What an agent resolved to. `document` is what the digest is taken of."""

    assembly: Assembly
    """As a template: variables not put in."""
    document: JsonObject
    hashes: Hashes

    @property
    def digest(self) -> str:
        """`sha256:` and 64 hexadecimal digits."""
        return f"sha256:{self.hashes.profile_sha256}"

    @property
    def system(self) -> str:
        """The system prompt, variables not put in."""
        return template(self.assembly.sections)


def take_fingerprint(scope: Scope, entries: Sequence[LoadedEntry]) -> Fingerprint:
    """The fingerprint of the agent whose `entries` are mounted in `scope`.

    Raises:
        PromptError: the prompt cannot be assembled.
    """
    tools = scope.get(ToolRegistry).all()
    assembly = scope.get(PromptRegistry).assemble([tool.schema for tool in tools.values()], as_template=True)
    system = template(assembly.sections)
    settings = scope.find(LoopSettings) or LoopSettings()
    only_written = any(entry.entry_class.freezes for entry in entries)
    behaviour = [[canonical(entry.name), _keys(entry, only_written=only_written)] for entry in entries]
    document: JsonObject = {
        "system": system,
        "contexts": [[context.name, context.text] for context in assembly.contexts],
        "tools": [tool.as_json() for tool in assembly.tools],
        "parameters": dict(settings.parameters),
        "behaviour": sorted(behaviour, key=canonical_json),
        "contracts": {name: tool.contract for name, tool in tools.items()},
    }
    hashes = Hashes(prompt_hash(system), tools_hash(assembly.tools), sha256(canonical_json(document)))
    return Fingerprint(assembly, document, hashes)


def _keys(entry: LoadedEntry, *, only_written: bool) -> JsonObject:
    keys: JsonObject = entry.config.model_dump(mode="json", by_alias=True, exclude_unset=only_written)
    return keys

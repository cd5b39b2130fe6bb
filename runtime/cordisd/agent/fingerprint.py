"""What an agent is, in one digest: the same on every machine, for every user, in every directory.

    {"system": …, "contexts": [[name, text], …], "tools": […], "parameters": {…},
     "behaviour": [[entry, {key: value, …}], …], "isolated": {service: [[place, …], …], …},
     "contracts": {tool: integer}, "sent": sha256}

as canonical JSON (sorted keys, no spaces, UTF-8), hashed with SHA-256.

- Agents of one digest send the same bytes for the same model row, model, directory and messages, but for
  what the fourth point leaves out. To a model the order of a schema's keys is text, so `sent` is the hash of
  the tools and parameters as they are sent.
- Behaviour is every key of the agent's enabled entries with the value it has, defaults included: ids,
  comments, groups, the order of rows and keys, and published or own names make no difference of their own.
  Of a frozen preset it is every key that is written, which was every key there was when it was
  locked: what a later version adds must not change it.
- Entries that isolation parts from one another are told by their places in `behaviour`, whatever realms are
  called; where it parts none there is no `isolated`.
- Prompts are taken with their variables not put in, and a text that a function makes by the function's name.
  What these give at run time is in no digest; a frozen profile has neither (`Profile.check_rules`).
- What host entries and listeners do to the prompt and the tools is in it; their configurations are not, nor
  are provider, model, limits of an answer, and what the model's row sends. Each `request/header` has these.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from cordisd.agent.settings import LoopSettings
from cordisd.errors import PresetError
from cordisd.events import JsonObject, decode_json, encode_json
from cordisd.kernel.load import LoadedEntry
from cordisd.kernel.names import canonical
from cordisd.kernel.scope import Scope, names_of
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


def tools_as_sent(tools: Sequence[ToolSchema]) -> bytes:
    """A tool list as JSON whose keys stand as in a request; two lists that differ here differ to a model."""
    return encode_json([tool.as_json() for tool in tools])


class Hashes(NamedTuple):
    """The three hashes of a profile, hexadecimal."""

    prompt_sha256: str
    tools_sha256: str
    profile_sha256: str

    def unlike(self, locked: Hashes) -> dict[str, str]:
        """What is said of each hash that is not as `locked`, by its name, in the order of the three."""
        return {
            name: f"{name} is {now}, locked is {was}"
            for name, now, was in zip(self._fields, self, locked, strict=True)
            if now != was
        }


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Fingerprint:
    """What an agent resolved to. `document` is what the digest is taken of.

    Not to be changed: sessions of equal agents share one, which is a third of what a session costs in memory.
    """

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


_known: Final[WeakValueDictionary[str, Fingerprint]] = WeakValueDictionary()
"""Those in use, by their hashes."""


def take_fingerprint(scope: Scope, entries: Sequence[LoadedEntry]) -> Fingerprint:
    """The fingerprint of the agent whose `entries` are mounted in `scope`.

    Raises:
        PromptError: the prompt cannot be assembled.
        PresetError: an entry's configuration, or a tool's schema, cannot be written as JSON.
    """
    tools = scope.get(ToolRegistry).all()
    assembly = scope.get(PromptRegistry).assemble([tool.schema for tool in tools.values()], as_template=True)
    settings = scope.find(LoopSettings) or LoopSettings()
    contracts = {name: tool.contract for name, tool in tools.items()}
    try:
        document = _document(assembly, settings.parameters, entries, contracts)
        profile = sha256(canonical_json(document))
    except (TypeError, ValueError) as error:
        raise PresetError(f"the agent cannot be written as JSON: {error}") from error
    hashes = Hashes(prompt_hash(document["system"]), tools_hash(assembly.tools), profile)
    taken = Fingerprint(assembly, document, hashes)
    known = _known.setdefault(profile, taken)
    return known if known == taken else taken


def _document(
    assembly: Assembly,
    parameters: Mapping[str, Any],
    entries: Sequence[LoadedEntry],
    contracts: Mapping[str, int],
) -> JsonObject:
    only_written = any(entry.entry_class.freezes for entry in entries)
    rows = [[canonical(entry.name), _keys(entry.config, only_written=only_written)] for entry in entries]
    order = sorted(range(len(rows)), key=lambda number: canonical_json(rows[number]))
    tools, body = tools_as_sent(assembly.tools), encode_json(dict(parameters))
    document: JsonObject = {
        "system": template(assembly.sections),
        "contexts": [[context.name, context.text] for context in assembly.contexts],
        "tools": decode_json(tools),  # a copy: who offers a tool may change its schema later
        "parameters": decode_json(body),
        "behaviour": [rows[number] for number in order],
        "contracts": dict(contracts),
        "sent": sha256(tools + body),
    }
    if isolated := _isolated([entries[number] for number in order]):
        document["isolated"] = isolated
    return document


def _isolated(entries: Sequence[LoadedEntry]) -> dict[str, list[list[int]]]:
    """By service, the places of the entries that share each realm, where those who need it are parted.

    A realm that all of them share does to a model what no isolation does. Of a name that no entry needs, such
    as that of a service which one provides, it is not known what it does: its realms are told as they are.
    """
    services: dict[tuple[str, ...], set[int]] = {}
    for place, entry in enumerate(entries):
        for service in entry.entry_class.needs:
            services.setdefault(names_of(service), set()).add(place)
    found: dict[str, list[list[int]]] = {}
    for names, users in services.items():
        realms: dict[str, list[int]] = {}
        for place in sorted(users):
            isolate = reversed(list(entries[place].isolate.items()))
            realms.setdefault(next((realm for name, realm in isolate if name in names), ""), []).append(place)
        if len(realms) > 1:
            found[names[0]] = sorted(realms.values())
    needed = {name for names in services for name in names}
    others: dict[str, dict[str, list[int]]] = {}
    for place, entry in enumerate(entries):
        for name in entry.isolate.keys() - needed:
            others.setdefault(name, {}).setdefault(entry.isolate[name], []).append(place)
    return found | {name: sorted(shared.values()) for name, shared in others.items()}


def _keys(config: BaseModel, *, only_written: bool) -> JsonObject:
    """Every key with its value. Not by `model_dump`, from which a field can have itself left out."""
    names = type(config).model_fields
    written = config.model_fields_set if only_written else names
    found: JsonObject = {
        field.alias or name: _plain(getattr(config, name), only_written=only_written)
        for name, field in names.items()
        if name in written
    }
    return found | {name: _plain(value) for name, value in (config.model_extra or {}).items()}


def _plain(value: object, *, only_written: bool = False) -> Any:
    """`value` as JSON. Sets are sorted, for their own order differs from one process to the next; a whole
    number has one form, for a default is not converted as a written value is."""
    plain = partial(_plain, only_written=only_written)
    match value:
        case BaseModel():
            return _keys(value, only_written=only_written)
        case Mapping():
            return {str(plain(key)): plain(inner) for key, inner in value.items()}
        case set() | frozenset():
            return sorted(map(plain, value), key=canonical_json)
        case list() | tuple():
            return [plain(inner) for inner in value]
        case float() if value.is_integer():
            return int(value)
        case _:
            return to_jsonable_python(value)

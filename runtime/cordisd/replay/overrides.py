"""The sidecar of a replay fixture: scripted calls in the place of recorded ones (`protocol.md` 7.4).

[ENTRY, …]                              replaces the whole script
{"patches": [{"at": 1, "entry": ENTRY}]}  replaces single calls; `at` one past the end appends

ENTRY: {"kind": "chunks", "chunks": [CHUNK, …]}
     | {"kind": "throw", "chunks": [CHUNK, …], "message": TEXT, "code": TEXT}
     | {"kind": "hang", "readyFile": PATH}
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeGuard

from cordisd.errors import CompositionError, Problem, nearest
from cordisd.events import JsonObject, decode_json
from cordisd.replay.scripts import Call, Hang, Play, Unfinished
from cordisd.replay.tokens import check_tokens

CHUNK_TYPES: Final = (
    "block-start",
    "text-delta",
    "reasoning-delta",
    "tool-call-delta",
    "block-end",
    "usage",
    "finish",
)
_entry_keys = {
    "chunks": ({"kind", "chunks"}, set[str]()),
    "throw": ({"kind", "chunks", "message", "code"}, set[str]()),
    "hang": ({"kind"}, {"readyFile"}),
}


def apply_overrides(path: Path, calls: Sequence[Call | Unfinished]) -> list[Call | Unfinished]:
    """The calls as the sidecar at `path` changes them; as they are when there is no such file.

    Raises:
        CompositionError: the sidecar cannot be read or is malformed; with the place in it.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return list(calls)
    except OSError as problem:
        raise CompositionError(
            [Problem(str(path), f"cannot read the overrides: {problem.strerror}")]
        ) from problem
    try:
        return _apply(decode_json(content), calls)
    except (ValueError, RecursionError) as problem:
        raise CompositionError([Problem(str(path), str(problem))]) from problem


def _apply(raw: object, calls: Sequence[Call | Unfinished]) -> list[Call | Unfinished]:
    if isinstance(raw, list):
        return [_call(entry, f"entry {at}") for at, entry in enumerate(raw)]
    if not isinstance(raw, dict) or raw.keys() != {"patches"} or not isinstance(raw["patches"], list):
        raise ValueError('overrides must be an array of entries, or {"patches": [{"at": …, "entry": …}, …]}')
    changed = list(calls)
    seen: set[int] = set()
    for number, patch in enumerate(raw["patches"]):
        where = f"patch {number}"
        if not isinstance(patch, dict) or patch.keys() != {"at", "entry"}:
            raise ValueError(f"{where} must have exactly at and entry")
        at = patch["at"]
        if type(at) is not int or at < 0:
            raise ValueError(f"{where}: at must be a non-negative integer, not {at!r}")
        if at in seen:
            raise ValueError(f"{where}: at {at} is patched already")
        if at > len(changed):
            raise ValueError(f"{where}: at {at} is beyond the script, which has {len(changed)} calls")
        seen.add(at)
        changed[at : at + 1] = [_call(patch["entry"], where)]
    return changed


def _call(entry: object, where: str) -> Call:
    if not isinstance(entry, dict):
        raise ValueError(f"{where} must be an object")
    kind = entry.get("kind")
    if not isinstance(kind, str) or kind not in _entry_keys:
        known = ", ".join(_entry_keys)
        raise ValueError(
            f"{where}: kind must be one of {known}, not {kind!r}{nearest(str(kind), _entry_keys)}"
        )
    required, optional = _entry_keys[kind]
    if not required <= entry.keys() <= required | optional:
        keys = ", ".join([*sorted(required), *(f"{key} (optional)" for key in sorted(optional))])
        raise ValueError(f"{where}: a {kind} entry has exactly {keys}")
    if kind == "hang":
        return Hang(_text(entry, "readyFile", where) if "readyFile" in entry else None)
    chunks = entry["chunks"]
    if not _are_chunks(chunks):
        raise ValueError(f"{where}: chunks must be a list of chunk objects, of type {', '.join(CHUNK_TYPES)}")
    check_tokens(chunks)
    finishes = [at for at, chunk in enumerate(chunks) if chunk["type"] == "finish"]
    if kind == "throw":
        if finishes:
            raise ValueError(f"{where}: the chunks of a throw entry must not have a finish")
        message, code = _text(entry, "message", where), _text(entry, "code", where)
        return Play(chunks, failure={"message": message, "code": code})
    if finishes != [len(chunks) - 1]:
        raise ValueError(f"{where}: the last chunk, and no other, must be a finish")
    return Play(chunks)


def _are_chunks(value: object) -> TypeGuard[list[JsonObject]]:
    return isinstance(value, list) and all(
        isinstance(chunk, dict) and chunk.get("type") in CHUNK_TYPES for chunk in value
    )


def _text(entry: JsonObject, name: str, where: str) -> str:
    value = entry[name]
    if not isinstance(value, str) or not value:
        raise ValueError(f"{where}: {name} must be a string that is not empty")
    return value

"""Frozen profiles: presets whose every byte before the model is locked by hashes (FP-1 to FP-10).

The hashes of released profiles lie in `profiles.lock`, beside the presets' folders. They are compared when
a session is made or resumed, and again before every request; a request that differs is not sent.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from cordisd.agent.fingerprint import Fingerprint, Hashes, prompt_hash, tools_as_sent, tools_hash
from cordisd.agent.preset import Preset
from cordisd.errors import ProfileError, ProfileHashMismatchError, ProfileOverrideError, nearest
from cordisd.kernel.load import LoadedEntry
from cordisd.services.tools import ToolSchema
from cordisd.settings import EntryConfig

LOCK_FILE: Final = "profiles.lock"
OVERRIDES: Final = ("DSH_SYSTEM_PROMPT",)
"""Variables that change what the model sees in other compositions; a frozen profile stands beside none."""
PROFILE_ID: Final = r"[a-z0-9][a-z0-9-]*-v[1-9][0-9]*"
_WEB_TOOL: Final = re.compile(r"web_|fetch|browser", re.IGNORECASE)
_HASH: Final = re.compile(r"[0-9a-f]{64}")


class Pinned(NamedTuple):
    """What a locked agent sends, and the hashes of it; `as_sent` is what `tools_as_sent` makes of `tools`."""

    hashes: Hashes
    system: str
    tools: Sequence[ToolSchema]
    as_sent: bytes


@dataclass(slots=True)
class Profile:
    """A frozen profile as its entry declares it; `folder` is that of its preset."""

    id: str
    folder: Path
    pinned: Pinned | None = None
    """What the requests of this session must hold, once its agent has met its lock."""

    @property
    def lock_path(self) -> Path:
        """The file that holds the hashes."""
        return self.folder.parent / LOCK_FILE

    def check_rules(self, fingerprint: Fingerprint) -> None:
        """Go on only if the agent can be frozen at all.

        Raises:
            ProfileError: no complete section, a variable in it, a runtime context, or a web tool.
        """
        sections = fingerprint.assembly.sections
        if [section.complete for section in sections] != [True]:
            raise ProfileError(f'profile "{self.id}" needs one complete section as its system prompt')
        if "{{" in sections[0].text:
            raise ProfileError(
                f'profile "{self.id}": its system prompt must not hold {{{{variables}}}} or other braces '
                "in pairs; it is the same for every session"
            )
        if fingerprint.assembly.contexts:
            raise ProfileError(
                f'profile "{self.id}" must not send a runtime context: write includeRuntimeContext: false'
            )
        self._refuse_web_tools(fingerprint.assembly.tools)

    def check_locked(self, fingerprint: Fingerprint, environ: Mapping[str, str]) -> None:
        """Go on only if the agent is what was locked, and nothing asks for something else.

        Raises:
            ProfileOverrideError: a variable of `environ` would change a pinned value.
            ProfileHashMismatchError: the hashes differ, or the profile is not locked.
            ProfileError: the lock file cannot be read.
        """
        for name in OVERRIDES:
            if name in environ:
                raise ProfileOverrideError(
                    f'{name} is set, but the frozen profile "{self.id}" pins its system prompt; unset it, or '
                    "lock a profile of your own"
                )
        locked = self.locked()
        self._compare(fingerprint.hashes, locked)
        tools = [ToolSchema(**tool) for tool in fingerprint.document["tools"]]
        self.pinned = Pinned(locked, fingerprint.system, tools, tools_as_sent(tools))

    def check_request(
        self, system: str, tools: Sequence[ToolSchema], contexts: Sequence[object]
    ) -> Sequence[ToolSchema]:
        """The tools to send, if what is about to be sent is what was pinned; if nothing was, those given.

        Those pinned are a copy: who made the others may still hold them, and change them before a retry.
        Bytes are compared, not their hashes: it is cheaper (20 µs), and sees the order of a schema's keys.

        Raises:
            ProfileHashMismatchError: it is not.
        """
        pinned = self.pinned
        if pinned is None:
            return tools
        if contexts:
            raise ProfileHashMismatchError(f'profile "{self.id}": a runtime context would be sent')
        try:
            same_tools = tools_as_sent(tools) == pinned.as_sent
        except (TypeError, ValueError) as error:
            raise ProfileHashMismatchError(f'profile "{self.id}": its tools are not JSON: {error}') from error
        if system == pinned.system and same_tools:
            return pinned.tools
        found = pinned.hashes._replace(prompt_sha256=prompt_hash(system), tools_sha256=tools_hash(tools))
        self._compare(found, pinned.hashes)
        raise ProfileHashMismatchError(
            f'profile "{self.id}": the keys of its tools would be sent in another order than was locked'
        )

    def locked(self) -> Hashes:
        """The hashes that were locked for it.

        Raises:
            ProfileHashMismatchError: it is not locked.
            ProfileError: the lock file cannot be read.
        """
        locks = read_locks(self.lock_path)
        if self.id not in locks:
            raise ProfileHashMismatchError(
                f'profile "{self.id}" is not locked in {self.lock_path}{nearest(self.id, locks)}; '
                f"`cordisd profile lock {self.id}` locks it as it is now"
            )
        return locks[self.id]

    def _compare(self, found: Hashes, locked: Hashes) -> None:
        if differing := found.unlike(locked):
            raise ProfileHashMismatchError(
                f'profile "{self.id}" is not what {self.lock_path} says: {"; ".join(differing.values())}'
            )

    def _refuse_web_tools(self, tools: Iterable[ToolSchema]) -> None:
        web = [tool.name for tool in tools if _WEB_TOOL.match(tool.name)]
        if web:
            raise ProfileError(f'profile "{self.id}" must not offer the web tool "{web[0]}"')


def check_not_locked(preset: Preset) -> None:
    """Go on only if no profile is locked under the name of `preset`, which is not frozen.

    Raises:
        ProfileHashMismatchError: one is; who asks for it must not get an agent that nobody checks.
        ProfileError: the lock file cannot be read.
    """
    name, folder = preset.name, preset.folder
    if name is None or folder is None or not re.fullmatch(PROFILE_ID, name):
        return
    path = folder.parent / LOCK_FILE
    if name in read_locks(path):
        raise ProfileHashMismatchError(
            f'profile "{name}" is locked in {path}, but {folder} has no entry "profile" any more'
        )


def check_other_locks(preset: Preset, hashes: Hashes) -> None:
    """Go on only if no other folder of the roster has locked something else under the name of `preset`.

    Raises:
        ProfileHashMismatchError: one has: whichever is found first, one id must stand for one content.
        ProfileError: a lock file cannot be read.
    """
    name = preset.name
    if name is None or not re.fullmatch(PROFILE_ID, name):
        return
    for root in preset.other_roots:
        if read_locks(root / LOCK_FILE).get(name, hashes) != hashes:
            raise ProfileHashMismatchError(
                f'preset "{name}" in {preset.folder} is not the profile of that id that is locked in '
                f"{root / LOCK_FILE}; give it another name"
            )


def unwritten_keys(entries: Iterable[LoadedEntry]) -> list[str]:
    """What a preset leaves to defaults, as `entry "bash": $.trailer`; nothing, if it can be frozen."""
    return [f'entry "{entry.id}": ${path}' for entry in entries for path in _unwritten(entry.config)]


def _unwritten(config: EntryConfig) -> Iterator[str]:
    for name, field in type(config).model_fields.items():
        key, value = f".{field.alias or name}", getattr(config, name)
        if name not in config.model_fields_set:
            yield key
        elif isinstance(value, EntryConfig):
            yield from (key + inner for inner in _unwritten(value))
        elif isinstance(value, list):
            rows = [(place, row) for place, row in enumerate(value) if isinstance(row, EntryConfig)]
            yield from (f"{key}[{place}]{inner}" for place, row in rows for inner in _unwritten(row))


def read_locks(path: Path) -> dict[str, Hashes]:
    """The hashes of each locked profile by id; none when there is no such file.

    Raises:
        ProfileError: the file is not what `cordisd profile lock` writes.
    """
    if os.path.exists(path) and not os.path.isfile(path):  # to open a pipe could take for ever
        raise ProfileError(f"{path} cannot be read: it is no regular file")
    try:
        written = json.loads(path.read_bytes(), object_pairs_hook=_unique)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise ProfileError(f"{path} cannot be read: {error}") from error
    try:
        locks = {name: Hashes(**hashes) for name, hashes in written.items()}
        is_sound = all(_HASH.fullmatch(value) for hashes in locks.values() for value in hashes)
    except (AttributeError, TypeError) as error:
        raise ProfileError(f"{path} must map profile ids to their {', '.join(Hashes._fields)}") from error
    if not is_sound:
        raise ProfileError(f"{path}: a hash is 64 hexadecimal digits")
    return locks


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):  # a merge has kept both sides
        raise ValueError(f"a key is there twice, among {', '.join(found)}")
    return found


def write_lock(path: Path, profile_id: str, hashes: Hashes) -> None:
    """Add a profile to the lock file, in one step. What is locked stays as it is.

    Raises:
        ProfileError: other hashes are locked under this id, or the file cannot be written.
    """
    locks = read_locks(path)
    if locks.get(profile_id, hashes) != hashes:
        raise ProfileError(
            f'"{profile_id}" is locked in {path} with other hashes, and a released profile never changes: '
            "give the changed preset a new id"
        )
    locks[profile_id] = hashes
    text = json.dumps({name: locks[name]._asdict() for name in sorted(locks)}, indent=2) + "\n"
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}-") as folder:
            with open(os.path.join(folder, path.name), "w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(file.name, path)
    except OSError as error:
        raise ProfileError(f"{path} cannot be written: {error.strerror}") from error

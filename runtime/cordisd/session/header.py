"""The first line of a session log: who the session is, and what it was made of (`protocol.md` 4.2)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from cordisd.events import JsonObject

FORMAT_VERSION: Final = 0
RETIRED_FIELDS: Final = ("sandboxMode", "approvalPolicy")


@dataclass(frozen=True, slots=True)
class SessionHeader:
    """Facts of a session that never change. `created_at` is in milliseconds since the epoch.

    `cordisd` is the one key of ours (version, preset, digest, rolloutId, …); published readers ignore it.
    """

    id: str
    created_at: int
    cwd: str | None = None
    parent_session: str | None = None
    seed_length: int | None = None
    origin: str | None = None
    delegation_depth: int = 0
    agent_preset: str | None = None
    cordisd: JsonObject = field(default_factory=dict)

    def as_dict(self) -> JsonObject:
        """The header line as a JSON object, keys in the order of the format."""
        out: JsonObject = {
            "type": "session",
            "version": FORMAT_VERSION,
            "id": self.id,
            "createdAt": self.created_at,
            "cwd": self.cwd,
            "parentSession": self.parent_session,
            "seedLength": self.seed_length,
            "origin": self.origin,
            "delegationDepth": self.delegation_depth,
            "agentPreset": self.agent_preset,
            "cordisd": self.cordisd or None,
        }
        return {key: value for key, value in out.items() if value is not None}

    @classmethod
    def from_dict(cls, raw: JsonObject) -> SessionHeader:
        """The header of a decoded line. Keys that the format does not know are ignored, as readers of it do.

        Raises:
            ValueError: not a header of format 0; the message names the field.
        """
        if raw.get("type") != "session":
            raise ValueError('the first line is not a header: its type must be "session"')
        if type(raw.get("version")) is not int or raw["version"] != FORMAT_VERSION:
            raise ValueError(f"header version must be {FORMAT_VERSION}, not {raw.get('version')!r}")
        for name in RETIRED_FIELDS:
            if name in raw:
                raise ValueError(f"header field {name} is retired")
        extra = raw.get("cordisd", {})
        if not isinstance(extra, dict):
            raise ValueError("header field cordisd must be an object")
        return cls(
            id=_text(raw, "id"),
            created_at=_count(raw, "createdAt"),
            cwd=_text(raw, "cwd") if "cwd" in raw else None,
            parent_session=_text(raw, "parentSession") if "parentSession" in raw else None,
            seed_length=_count(raw, "seedLength") if "seedLength" in raw else None,
            origin=_text(raw, "origin") if "origin" in raw else None,
            delegation_depth=_count(raw, "delegationDepth"),
            agent_preset=_text(raw, "agentPreset") if "agentPreset" in raw else None,
            cordisd=extra,
        )


def _text(raw: JsonObject, name: str) -> str:
    value = raw.get(name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"header field {name} must be a string that is not empty, not {value!r}")
    return value


def _count(raw: JsonObject, name: str) -> int:
    value = raw.get(name)
    if type(value) is not int or value < 0:
        raise ValueError(f"header field {name} must be a non-negative integer, not {value!r}")
    return value

"""The shapes of the methods on presets and profiles; as `shapes`, they describe and do not validate."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from cordisd.events import JsonObject


class ProfileIdentity(TypedDict):
    """A frozen profile; hashes in hexadecimal."""

    id: str
    prompt_sha256: str
    tools_sha256: str
    profile_sha256: str


class AgentIdentity(TypedDict):
    """What a session's agent is. `preset` is null for the agent of the process composition itself."""

    preset: str | None
    digest: str
    """`sha256:…` of all that makes the agent: prompt, tools, parameters, behaviour."""
    profile: NotRequired[ProfileIdentity]


class PresetSelectParams(TypedDict):
    """Another preset for a session without an event."""

    sessionId: str
    preset: str


class PresetSummary(TypedDict):
    """One row of `preset/list`. `title` and `description` are for people."""

    name: str
    title: str | None
    description: str | None
    trust: Literal["system", "user"]
    path: str
    digest: str | None
    profile: ProfileIdentity | None
    problem: str | None
    """Why it cannot be mounted; its digest is then null."""


class PresetListResult(TypedDict):
    """The presets of the daemon, in the order in which people should see them."""

    default: str | None
    """Preset of the sessions that name none; null: the agent of the process composition."""
    presets: list[PresetSummary]


class PresetRenderParams(TypedDict, total=False):
    """A field left out takes the value of `initialize`; `prompt` is the user's first, by default empty."""

    preset: str
    prompt: str
    cwd: str
    provider: str
    model: str
    maxTokens: int


class PresetRenderResult(AgentIdentity):
    """The first model request of a session with that preset."""

    system: str
    tools: list[JsonObject]
    parameters: JsonObject
    request: str
    """The body of the request, byte for byte as UTF-8."""


class ProfileGetParams(TypedDict, total=False):
    """Either a live session or a preset."""

    sessionId: str
    preset: str


class ProfileGetResult(ProfileIdentity):
    """A frozen profile, and what its hashes are of."""

    system: str
    tools: list[JsonObject]

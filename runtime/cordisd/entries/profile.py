"""Entry `profile`: freezes the preset that it stands in (FP-1 to FP-10 of the product contract)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import ClassVar

from pydantic import Field

from cordisd.agent.preset import Preset
from cordisd.agent.profile import PROFILE_ID, Profile
from cordisd.errors import ProfileError
from cordisd.kernel.entry import Entry, Lifetime
from cordisd.kernel.scope import Scope
from cordisd.settings import EntryConfig


class ProfileConfig(EntryConfig):
    """Which locked profile the preset is."""

    id: str = Field(pattern=f"^{PROFILE_ID}$")
    """Name of the preset's folder, with its version at the end: `rl-minimal-v1`. The hashes locked under it
    are in `profiles.lock`, beside that folder; `cordisd profile lock` writes them."""


class ProfileEntry(Entry):
    """Has the agent compared with its lock when a session is made, and before every request."""

    Config = ProfileConfig
    lifetime: ClassVar[Lifetime] = "session"
    needs = (Preset,)
    freezes = True

    @asynccontextmanager
    async def mount(self, scope: Scope) -> AsyncIterator[None]:
        config: ProfileConfig = self.config
        preset = scope.get(Preset)
        if preset.folder is None:
            raise ProfileError("a profile freezes an agent preset; a process composition has none to freeze")
        if config.id != preset.name:
            raise ProfileError(f'the id of the profile must be the name of its folder, "{preset.name}"')
        scope.provide(Profile, Profile(config.id, preset.folder))
        yield

"""Entry `presets`: the agent presets that clients of the daemon can choose from."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

from pydantic import Field

from cordisd.agent.preset import Root, Roster
from cordisd.kernel.entry import Entry
from cordisd.kernel.scope import Scope
from cordisd.settings import EntryConfig, FolderPath
from cordisd.shipped import presets_folder

logger = logging.getLogger(__name__)

USER_FOLDER = ".agent-presets"


class RootRow(EntryConfig):
    """A folder that holds a folder for each preset."""

    path: FolderPath
    """The folder; a relative path starts at the file that it is written in."""
    trust: Literal["system", "user"] = "system"
    """Whose presets these are; shown to clients."""


class PresetsConfig(EntryConfig):
    """Where presets are looked for. Of two presets of one name the first found counts."""

    default: str | None = Field(default=None, min_length=1)
    """Preset of the sessions that name none. Null: the session entries of this composition."""
    roots: list[RootRow] | None = None
    """Folders of presets, in the order in which they are searched. Absent: the shipped presets."""
    include_user_root: bool = True
    """Search `.agent-presets` in DSH_HOME (else ~/.dsh) last."""


class PresetsEntry(Entry):
    """Provides the `Roster` of the daemon."""

    Config = PresetsConfig

    @asynccontextmanager
    async def mount(self, scope: Scope) -> AsyncIterator[None]:
        config: PresetsConfig = self.config
        if config.roots is None:
            roots = [Root(presets_folder())]
        else:
            roots = [Root(Path(row.path), row.trust) for row in config.roots]
            for root in roots:
                if not os.path.isdir(root.path):  # no error: it may be made, or mounted, later
                    logger.warning("presets: the root %s is no folder; there are no presets in it", root.path)
        if config.include_user_root:
            home = os.environ.get("DSH_HOME") or os.path.expanduser("~/.dsh")
            roots.append(Root(Path(home, USER_FOLDER), "user"))
        scope.provide(Roster, Roster(roots, config.default))
        yield

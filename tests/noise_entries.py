"""An entry that makes noise on stderr: `noise_entries:NoiseEntry` in a composition."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

from cordisd.kernel.entry import Entry
from cordisd.kernel.scope import Scope
from cordisd.settings import EntryConfig


class NoiseConfig(EntryConfig):
    by: Literal["log", "write"]
    """By our own diagnostics, or by a library that writes to the descriptor."""


class NoiseEntry(Entry):
    """Says a line that is no UTF-8, and 200 kB more, before anything is answered."""

    Config = NoiseConfig
    lifetime = "host"

    @asynccontextmanager
    async def mount(self, scope: Scope) -> AsyncIterator[None]:
        if self.config.by == "log":
            for number in range(2000):
                logging.getLogger(__name__).warning("warn \udcff é %d %s", number, "x" * 100)
        else:
            noise = b"warn \xff\n" + (b"x" * 99 + b"\n") * 2000
            while noise:
                noise = noise[os.write(2, noise) :]
        yield

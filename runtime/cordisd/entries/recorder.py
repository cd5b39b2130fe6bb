"""Entry `recorder`: writes what each session's model and tools say into a recording, for strict replay."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from pydantic import Field, field_validator

from cordisd.kernel.entry import Entry
from cordisd.kernel.scope import Scope
from cordisd.replay.canonical import read_masks
from cordisd.replay.recorder import Recorder
from cordisd.replay.secrets import check_patterns, secret_values
from cordisd.services.secrets import SecretNames
from cordisd.services.traffic import Traffic
from cordisd.settings import EntryConfig, FolderPath


class RecorderConfig(EntryConfig):
    """Where recordings go, and what in them is written as a token."""

    folder: FolderPath
    """Folder of the recordings, one file for each session; made if it is missing."""
    composition: str | None = Field(default=None, min_length=1)
    """What a replay is to load, a shipped name or a path; noted in each recording."""
    masks: dict[str, str] = {}
    """Text that is another each time, such as a time or a process id: regular expressions by name. What they
    find in requests and results is written `{{name}}`, when recorded and when compared."""
    secrets: list[str] = []
    """Environment variables whose values must not be recorded, besides those of the model rows' keys."""
    redact: list[str] = []
    """Regular expressions for other secrets: what they find anywhere is written `{{secret}}`."""

    @field_validator("redact")
    @classmethod
    def _are_for_secrets(cls, patterns: list[str]) -> list[str]:
        check_patterns(patterns)
        return patterns

    @field_validator("masks")
    @classmethod
    def _are_patterns(cls, masks: dict[str, str]) -> dict[str, str]:
        read_masks(masks)
        return masks


class RecorderEntry(Entry):
    """Records every session of the daemon."""

    Config = RecorderConfig
    needs = (Traffic, SecretNames)

    @asynccontextmanager
    async def mount(self, scope: Scope) -> AsyncIterator[None]:
        config: RecorderConfig = self.config
        names = scope.get(SecretNames).names  # filled by the entries that are still to be mounted
        recorder = Recorder(
            Path(config.folder),
            config.composition,
            read_masks(config.masks),
            lambda: secret_values({*names, *config.secrets}, os.environ),
            config.secrets,
            config.redact,
        )
        remove = scope.get(Traffic).add(recorder)
        try:
            yield
        finally:
            remove()
            recorder.close()

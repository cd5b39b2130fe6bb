"""Entries that the kernel's tests name in their compositions as `kernel.sample_entries:Class`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from cordisd.errors import CordisError
from cordisd.kernel.entry import Entry
from cordisd.kernel.scope import Scope
from cordisd.settings import EntryConfig


class ModelRow(EntryConfig):
    id: str
    context_window: int | None = None


class SampleConfig(EntryConfig):
    text: str = "default"
    timeout_ms: Annotated[int, Field(ge=1, le=1000)] = 10
    ratio: Annotated[float, Field(allow_inf_nan=False)] = 0.5
    label: Annotated[str, Field(min_length=1)] = "x"
    mode: Literal["keep", "reset"] = "keep"
    limit: Annotated[int, Field(ge=1)] | Literal["none"] = 1
    models: list[ModelRow] = []
    extra: Any = None

    @model_validator(mode="after")
    def _texts_agree(self) -> SampleConfig:
        if self.text == "contradiction":
            raise ValueError("text contradicts itself")
        return self


class Sample(Entry):
    """A host entry that contributes nothing."""

    Config = SampleConfig

    @asynccontextmanager
    async def mount(self, scope: Scope) -> AsyncIterator[None]:
        yield


class SessionSample(Sample):
    lifetime = "session"


class Required(Sample):
    class Config(EntryConfig):
        root: str


class LenientSample(Sample):
    lenient = True


class Journal:
    """A service that records what happens."""

    def __init__(self) -> None:
        self.lines: list[str] = []


class Engine:
    """A service that `Provider` provides."""


class Recorder(Sample):
    """Writes its text into the scope's journal when mounted and when undone."""

    needs = (Journal,)

    @asynccontextmanager
    async def mount(self, scope: Scope) -> AsyncIterator[None]:
        lines = scope.get(Journal).lines
        lines.append(f"+{self.config.text}")
        yield
        lines.append(f"-{self.config.text}")


class Provider(Recorder):
    @asynccontextmanager
    async def mount(self, scope: Scope) -> AsyncIterator[None]:
        scope.provide(Engine, Engine())
        async with super().mount(scope):
            yield


class Consumer(Recorder):
    needs = (Journal, Engine)


class Failing(Sample):
    @asynccontextmanager
    async def mount(self, scope: Scope) -> AsyncIterator[None]:
        if self.config.text == "bug":
            raise RuntimeError("a bug")
        if self.config.text == "refused":
            raise CordisError("no room here")
        yield
        raise OSError("undo failed")


class NotAnEntry:
    """Not an entry."""


class Stuck(Sample):
    """Never finishes mounting."""

    @asynccontextmanager
    async def mount(self, scope: Scope) -> AsyncIterator[None]:
        scope.get(Journal).lines.append("stuck")
        await asyncio.Event().wait()
        yield

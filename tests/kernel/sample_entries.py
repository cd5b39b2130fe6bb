"""Entries that the kernel's tests name in their compositions as `kernel.sample_entries:Class`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from cordisd.errors import CordisError
from cordisd.kernel.entry import Entry
from cordisd.kernel.scope import Scope
from cordisd.settings import EntryConfig, FolderPath


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


class RootRow(EntryConfig):
    path: FolderPath
    trust: Literal["system", "user"] = "user"


class Rooted(Sample):
    class Config(EntryConfig):
        path: FolderPath = "default"
        roots: list[RootRow] = []
        by_name: dict[str, FolderPath | None] = {}


class RootedInItsWay(Rooted):
    """Overrides `read_config` as it was before there were folders."""

    @classmethod
    def read_config(cls, raw: Mapping[str, Any]) -> EntryConfig:  # type: ignore[override]
        return super().read_config({**raw, "roots": [{"path": "mine"}]})


class RootedWithKeywords(Rooted):
    @classmethod
    def read_config(cls, raw: Mapping[str, Any], **more: Any) -> EntryConfig:
        return super().read_config({**raw, "roots": [{"path": "mine"}]}, **more)


class Journal:
    """A service that records what happens."""

    def __init__(self) -> None:
        self.lines: list[str] = []


class Engine:
    """A service that `Provider` provides; `maker` is its text."""

    def __init__(self, maker: str = "") -> None:
        self.maker = maker


class Tank:
    """A service that a test's host provides, with private instances that are named by their number."""

    service_names = ("fuel", "water")

    def __init__(self, journal: Journal, name: str = "the host's") -> None:
        self.journal = journal
        self.name = name
        self.n_private = 0

    def private(self, scope: Scope) -> Tank:
        self.n_private += 1
        tank = Tank(self.journal, f"tank {self.n_private}")
        self.journal.lines.append(f"+{tank.name}")
        scope.defer(lambda: self.journal.lines.append(f"-{tank.name}"))
        return tank


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
        scope.provide(Engine, Engine(self.config.text))
        async with super().mount(scope):
            yield


class Consumer(Recorder):
    needs = (Journal, Engine)


class Driver(Sample):
    """Writes down whose engine it sees, if it sees any."""

    @asynccontextmanager
    async def mount(self, scope: Scope) -> AsyncIterator[None]:
        engine = scope.find(Engine)
        scope.get(Journal).lines.append(f"{self.config.text}: {engine.maker if engine else None}")
        yield


class SessionDriver(Driver):
    lifetime = "session"


class Tanker(Recorder):
    """Writes down which tank it sees."""

    needs = (Journal, Tank)

    @asynccontextmanager
    async def mount(self, scope: Scope) -> AsyncIterator[None]:
        tank = scope.get(Tank)
        async with super().mount(scope):
            tank.journal.lines.append(f"{self.config.text}: {tank.name}")
            yield


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

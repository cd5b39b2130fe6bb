"""A place for a client of the real daemon: a workspace, a folder for logs, and proof that nothing is left."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import processes
from cordisd import mock as model
from cordisd_sdk import AsyncClient, RunResult

T = TypeVar("T")

SLEEP = model.call("c1", "bash", {"command": "echo begun; sleep 60"})


class Place:
    """A workspace, a folder for logs, and a mark on every process that is started for it."""

    def __init__(self, root: Path) -> None:
        self.workspace = root / "work"
        self.workspace.mkdir()
        self.sessions = root / "sessions"
        self.mark = f"TEST_{os.urandom(8).hex()}"

    def options(self, url: str, **more: Any) -> dict[str, Any]:
        inherited = {name: None for name in os.environ if name.startswith("DSH_")}
        return {
            "cwd": self.workspace,
            "session_root": self.sessions,
            "base_url": url,
            "env": inherited | {"DSH_SESSION_ROOT": str(self.sessions), self.mark: "1"},
            **more,
        }

    def clean(self) -> bool:
        """Whether everything that was started here is gone, or soon is."""
        return processes.gone_within(self.mark)


def with_client(
    place: Place, script: model.Script, work: Callable[[AsyncClient], Awaitable[T]], **options: Any
) -> T:
    async def main() -> T:
        async with (
            model.MockModel(script) as mock,
            AsyncClient(**place.options(mock.url, **options)) as client,
        ):
            return await work(client)

    try:
        return asyncio.run(main())
    finally:
        assert place.clean()


def result_texts(result: RunResult) -> list[str]:
    """What the model was told by the tools."""
    return [
        event["data"]["message"]["content"][0]["content"][0]["text"]
        for event in result.events
        if event["type"] == "tool/result"
    ]

"""A real guardian for each test, forked before its event loop, and helpers to drive a shell with it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cordisd.shell.bash import Bash, BashSettings
from cordisd.shell.environment import tool_environment
from cordisd.shell.guardian import Guardian
from cordisd.shell.launch import Launch
from cordisd.shell.spill import SpillFolder

Drive = Callable[..., Any]


@pytest.fixture
def guardian() -> Iterator[Guardian]:
    """Closed by the test's own loop through `drive`, or at the latest here."""
    made = Guardian.fork()
    yield made
    if made.pid:
        asyncio.run(made.close())


@pytest.fixture
def drive(guardian: Guardian, tmp_path: Path) -> Drive:
    """`drive(body, **settings)` runs `await body(bash)` in a loop with a Bash of those settings.

    `launch` and `spill_folder` go to the Bash itself.

    After the body the shell must answer `echo ok`, and afterwards no process of it may be left.
    """

    def run(
        body: Callable[[Bash], Awaitable[Any]],
        *,
        check: bool = True,
        launch: Launch | None = None,
        spill_folder: SpillFolder | None = None,
        **settings: Any,
    ) -> Any:
        async def main() -> Any:
            bash = Bash(
                guardian,
                "test",
                str(tmp_path),
                partial(tool_environment, os.environ),
                BashSettings(**settings),
                launch,
                spill_folder,
            )
            try:
                value = await body(bash)
                if check:
                    result = await bash.run("echo ok")
                    assert "ok" in result.text.split("\n"), result.text
            finally:
                await bash.close()
                await guardian.close()
            return value

        return asyncio.run(main())

    return run


@pytest.fixture
def texts(drive: Drive) -> Callable[..., list[str]]:
    """`texts(command, …, **settings)`: the result text of each command, run in one shell."""

    def run(*commands: str, **settings: Any) -> list[str]:
        async def body(bash: Bash) -> list[str]:
            return [(await bash.run(command)).text for command in commands]

        value: list[str] = drive(body, **settings)
        return value

    return run

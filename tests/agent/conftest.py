"""Fixtures for tests of agents that are mounted in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents import Agents
from cordisd.shell.guardian import Guardian


@pytest.fixture(scope="module")
def guardian() -> Iterator[Guardian]:
    """Who mounts a shell asks for one; no shell is started."""
    made = Guardian.fork()
    yield made
    asyncio.run(made.close())


@pytest.fixture
def agents(tmp_path: Path, guardian: Guardian) -> Agents:
    return Agents(tmp_path, guardian)

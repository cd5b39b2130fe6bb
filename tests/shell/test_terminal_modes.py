"""The terminal is plain from the first moment: bash never gets to know it with echo."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cordisd.shell import spawn
from cordisd.shell.bash import Bash


@pytest.fixture
def slow_modes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Stands for a guardian that gets the processor late; set before it is forked."""
    original: Callable[[int], None] = spawn.make_plain

    def late(terminal: int) -> None:
        time.sleep(0.3)
        original(terminal)

    monkeypatch.setattr(spawn, "make_plain", late)
    yield


def test_modes_that_bash_restores_after_a_killed_job_have_no_echo(slow_modes: None, drive: Any) -> None:
    async def body(bash: Bash) -> None:
        result = await bash.run("echo part; sleep 1000 | cat")
        assert result.timed_out and "builtin" not in result.text, result.text
        assert (await bash.run("kill -INT $$")).text.count("builtin") == 0

    drive(body, timeout_s=1)

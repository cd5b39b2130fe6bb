"""An interrupt that reaches bash late, because the processor was busy, cuts none of our own lines."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from cordisd.shell.bash import Bash


@contextmanager
def starved(pid: int) -> Iterator[None]:
    """Leave a process next to no processor time."""
    processors = os.sched_getaffinity(0)
    busy = subprocess.Popen(["/bin/sh", "-c", "while :; do :; done"])
    try:
        for one in (pid, busy.pid):
            os.sched_setaffinity(one, {min(processors)})
        os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))
        yield
    finally:
        os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))
        os.sched_setaffinity(pid, processors)
        busy.kill()
        busy.wait()


def test_a_cancel_before_bash_has_read_the_line_leaves_no_trace(drive: Any) -> None:
    async def body(bash: Bash) -> None:
        await bash.run("true")
        assert bash._live is not None
        for _ in range(10):
            with starved(bash._live.pid):
                task = asyncio.create_task(bash.run("echo hi"))
                while bash._live._exchange is None:
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.sleep(0.02)
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await bash.run("echo ok")).text == "ok"

    drive(body)

"""What is left when somebody kills the guardian: the daemon inherits it, and ends it."""

from __future__ import annotations

import asyncio
import ctypes
import os
from contextlib import suppress

from cordisd.shell.reaper import Process, Sweep, descendants

_STEP_S = 0.005
_LIMIT_S = 1.5
_PR_SET_CHILD_SUBREAPER = 36


def inherit() -> None:
    """Become the next parent of whatever the guardian leaves."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


async def end_orphans() -> None:
    """Kill every process below this one; returns when they are gone, in about 1.5 s at most."""
    seen: set[int] = set()

    def below() -> list[Process]:
        found = descendants(os.getpid())
        seen.update(process.pid for process in found)
        return found

    loop = asyncio.get_running_loop()
    sweep = Sweep(below, set, loop.time(), 0, _LIMIT_S)
    while not sweep.step(loop.time()):
        for pid in list(seen):
            with suppress(ChildProcessError):  # it is the child of another one of them
                if os.waitpid(pid, os.WNOHANG)[0]:  # noqa: ASYNC222, it does not block
                    seen.discard(pid)
        await asyncio.sleep(_STEP_S)

"""What is left when somebody kills the guardian: the daemon inherits it, and ends it."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

from cordisd.shell.reaper import Sweep, children, descendants

_STEP_S = 0.005
_LIMIT_S = 1.5


async def end_orphans() -> None:
    """Kill every process below this one; returns when they are gone, in about 1.5 s at most."""
    own = os.getpid()
    loop = asyncio.get_running_loop()
    sweep = Sweep(lambda: descendants(own), set, loop.time(), 0, _LIMIT_S)
    over = False
    while not over:
        over = sweep.step(loop.time())
        for pid in children(own):
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)  # noqa: ASYNC222, it does not block
        await asyncio.sleep(_STEP_S)

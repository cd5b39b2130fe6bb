"""How a command that goes on is ended, with as little lost as can be."""

from __future__ import annotations

import asyncio
from typing import Literal

from cordisd.shell.exchange import Ending, Exchange
from cordisd.shell.guardian import Moment
from cordisd.shell.live import LiveShell

USABLE = (Ending.FINISHED, Ending.PROMPTED)
"""After these, the shell can take the next command."""
UNFINISHED = (Ending.EXPIRED, Ending.WAITING)

Reason = Literal["time", "cancellation"]

_GRACE_S: dict[Reason, float] = {"time": 1.5, "cancellation": 0.3}
"""Between the interrupt and the kill."""
_AFTER_KILL_S = 0.4
_LOOK_S = 0.5
_N_KILLS = 2
_OWN_LINES_S = 0.02


async def last_moment(live: LiveShell, exchange: Exchange) -> Ending:
    """The end of a command that comes within moments, else `EXPIRED`.

    For when an interrupt might cut our own lines after the command, and with them the report of it.
    """
    return await live.limit(exchange, _OWN_LINES_S) if live.foreground == live.pid else Ending.EXPIRED


async def stop(live: LiveShell, exchange: Exchange, moment: Moment, reason: Reason) -> Ending:
    """End a command and all that it has started: interrupt, then kill, and give up in about 4 s.

    Any ending that is not in `USABLE` means that the shell is lost.

    Raises:
        ShellError: the guardian does not answer.
    """
    ending = await _interrupted(live, exchange, _GRACE_S[reason])
    for _ in range(_N_KILLS):
        if ending not in UNFINISHED:
            break
        await live.kill_since(moment)
        # Again, or bash goes on with the next command of the list.
        ending = await _interrupted(live, exchange, _AFTER_KILL_S)
    if ending in USABLE:
        await live.kill_since(moment)
        if ending is Ending.FINISHED and not await live.settle():
            return Ending.BROKEN
    return ending


async def _interrupted(live: LiveShell, exchange: Exchange, grace_s: float) -> Ending:
    """The ending within `grace_s` of an interrupt.

    One that meets a job just as bash starts it may be lost. So it is repeated when another job has come to
    the foreground, but not for a job that takes its time to end.
    """
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + grace_s
    interrupted: int | None = None
    ending = Ending.EXPIRED
    while ending in UNFINISHED and (left_s := deadline_s - loop.time()) > 0:
        if live.foreground != interrupted:
            interrupted = live.foreground
            live.interrupt()
        ending = await live.limit(exchange, min(left_s, _LOOK_S))
    return ending

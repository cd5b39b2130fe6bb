"""Measures of time that hold on a slow or busy machine, and in a process that has run many tests."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

ATTEMPTS = 5
SOON_S = 8.0
"""By the clock, for what happens at once, within 0.5 s on an idle machine. The limits of the product that
could hide a failure are from 10 s, and what it fails to end stays for ever."""
PATIENCE_S = 40.0
"""By the clock, for a situation that a test needs."""
QUICK_S = 0.2
"""By the clock, for the quickest of several calls of a shell, whatever was done to it: 0.003 s on an idle
machine, and from 0.25 s where its answer is missed."""


def comes(situation: Callable[[], object], limit_s: float = PATIENCE_S) -> bool:
    """Wait for a situation that others bring about; false if it has not come before `limit_s` seconds."""
    end_s = time.monotonic() + limit_s
    while not situation():
        if time.monotonic() > end_s:
            return False
        time.sleep(0.01)
    return True


async def comes_meanwhile(situation: Callable[[], object], limit_s: float = PATIENCE_S) -> bool:
    """As `comes`, while the event loop runs."""
    end_s = time.monotonic() + limit_s
    while not situation():
        if time.monotonic() > end_s:
            return False
        await asyncio.sleep(0.01)
    return True


@contextmanager
def no_collection() -> Iterator[None]:
    """Hold garbage collection off: it takes as long as all that the tests before left is much."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def in_some_attempt(work: Callable[[], object]) -> None:
    """Do `work` until it passes, `ATTEMPTS` times at most: for what hangs on who gets the processor first.

    A busy machine spoils one attempt; what is wrong is wrong every time.
    """
    for n_left in reversed(range(ATTEMPTS)):
        try:
            work()
            return
        except AssertionError:
            if not n_left:
                raise


def least_cpu_s(work: Callable[[], object], enough_s: float = 0.0, attempts: int = ATTEMPTS) -> float:
    """The least CPU time that `work()` took of `attempts` runs; a run within `enough_s` is the last.

    A slow core, a cold cache and a neighbour only ever add: what is slow by itself is so every time.
    """
    least_s = float("inf")
    with no_collection():
        for _ in range(attempts):
            began_s = time.process_time()
            work()
            least_s = min(least_s, time.process_time() - began_s)
            if least_s <= enough_s:
                break
    return least_s

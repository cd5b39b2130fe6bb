"""An entry that watches the daemon's event loop from inside: `loop_watch:WatchEntry` in a composition.

At its end it writes to the file that LOOP_WATCH names: the dearest callbacks in CPU time, and the most that
one turn of the loop cost and read from terminals. SIGUSR1 has it forget what was so far.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from cordisd.kernel.entry import Entry
from cordisd.kernel.scope import Scope
from cordisd.shell.live import LiveShell
from cordisd.shell.pty import Pty


class LoopWatch:
    """Counts what happens in callbacks; `attach` wraps the loop's own methods, `detach` undoes it."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget what was so far."""
        self.dearest: dict[str, float] = {}
        """Longest CPU time of a callback in ms, by its name."""
        self.turn_ms = self.max_turn_ms = 0.0
        """CPU time of the callbacks between two looks for events."""
        self.read_bytes = self.max_read_bytes = 0
        """Terminal bytes taken by one callback of one shell."""
        self.turn_bytes = self.max_turn_bytes = 0
        self.total_bytes = 0

    def attach(self) -> None:
        """Begin to watch the running loop."""
        self._run, self._take, self._read = asyncio.events.Handle._run, LiveShell._take, Pty._read
        selector: Any = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
        self._selector, select = selector, selector.select

        def run(handle: asyncio.events.Handle) -> None:
            name = _name(handle)  # before it runs: a task's place is where it waits
            start_s = time.thread_time()
            self._run(handle)
            took_ms = (time.thread_time() - start_s) * 1000
            self.turn_ms += took_ms
            if took_ms > self.dearest.get(name, 0.0):
                self.dearest[name] = took_ms

        def take(shell: LiveShell, data: bytes) -> None:
            self.read_bytes += len(data)
            self._take(shell, data)

        def read(pty: Pty) -> None:
            self.read_bytes = 0
            self._read(pty)
            self.max_read_bytes = max(self.max_read_bytes, self.read_bytes)
            self.turn_bytes += self.read_bytes
            self.total_bytes += self.read_bytes

        def select_next(timeout: float | None = None) -> Any:
            self.max_turn_ms = max(self.max_turn_ms, self.turn_ms)
            self.max_turn_bytes = max(self.max_turn_bytes, self.turn_bytes)
            self.turn_ms, self.turn_bytes = 0.0, 0
            return select(timeout)

        asyncio.events.Handle._run = run  # type: ignore[method-assign]
        LiveShell._take, Pty._read = take, read  # type: ignore[method-assign]
        selector.select = select_next

    def detach(self) -> None:
        """Put everything back."""
        asyncio.events.Handle._run = self._run  # type: ignore[method-assign]
        LiveShell._take, Pty._read = self._take, self._read  # type: ignore[method-assign]
        del self._selector.select

    def report(self) -> dict[str, Any]:
        """The figures, with the dearest callbacks first."""
        dearest = sorted(self.dearest.items(), key=lambda item: -item[1])[:8]
        return {
            "max_callback_ms": dearest[0][1],
            "max_turn_ms": self.max_turn_ms,
            "max_read_bytes": self.max_read_bytes,
            "max_turn_bytes": self.max_turn_bytes,
            "total_bytes": self.total_bytes,
            "dearest": [f"{name} {took_ms:.1f} ms" for name, took_ms in dearest],
        }


def _name(handle: asyncio.events.Handle) -> str:
    """Of the function that the handle calls; for a task, of its innermost coroutine."""
    callback: Any = handle._callback  # type: ignore[attr-defined]
    owner = getattr(callback, "__self__", None)
    if not isinstance(owner, asyncio.Task):
        return str(getattr(callback, "__qualname__", callback))
    coroutine: Any = owner.get_coro()
    while getattr(coroutine, "cr_await", None) is not None and hasattr(coroutine.cr_await, "cr_code"):
        coroutine = coroutine.cr_await
    return f"task {getattr(coroutine, '__qualname__', coroutine)}"


class WatchEntry(Entry):
    """Watches the loop from the mount of the composition to its end."""

    @asynccontextmanager
    async def mount(self, scope: Scope) -> AsyncIterator[None]:
        watch = LoopWatch()
        watch.attach()
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, watch.reset)
        try:
            yield
        finally:
            watch.detach()
            with open(os.environ["LOOP_WATCH"], "w") as file:
                json.dump(watch.report(), file)

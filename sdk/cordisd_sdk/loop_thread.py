"""An event loop on a thread of its own: what the synchronous client stands on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from cordisd_sdk.errors import SdkError

T = TypeVar("T")


class LoopThread:
    """An event loop on a thread of its own. It does not keep the interpreter alive."""

    def __init__(self) -> None:
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cordisd-sdk", daemon=True)
        self._thread.start()
        self._ready.wait()

    @property
    def alive(self) -> bool:
        """False once stopped."""
        return self._thread.is_alive()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin `work`.

        Raises:
            SdkError: on the loop's own thread, where waiting for the future would never end.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise SdkError("the synchronous client was called from its own event loop")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def stop(self) -> None:
        """Cancel what is left and end the thread."""
        if self.alive:
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            self._stopping = asyncio.Event()
            self._ready.set()
            runner.run(self._wait())

    async def _wait(self) -> None:
        await self._stopping.wait()

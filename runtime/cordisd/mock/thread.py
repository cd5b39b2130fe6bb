"""The mock model in a thread of its own, for clients that block."""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import Any

from cordisd.mock.server import MockModel, Script

_LIMIT_S = 30.0


class MockModelThread:
    """A context manager that gives a running `MockModel`; arguments are those of `MockModel`.

    A script that is a function is called in the server's thread.
    """

    def __init__(self, script: Script, **options: Any) -> None:
        self._mock = MockModel(script, **options)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> MockModel:
        self._thread.start()
        try:
            return asyncio.run_coroutine_threadsafe(self._mock.__aenter__(), self._loop).result(_LIMIT_S)
        except BaseException:
            self._end()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            asyncio.run_coroutine_threadsafe(self._mock.__aexit__(kind, error, trace), self._loop).result(
                _LIMIT_S
            )
        finally:
            self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_LIMIT_S)
        self._loop.close()

"""Scopes: typed service lookup, and the undo stack of everything that was mounted in them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

from cordisd.errors import CordisError, MissingServiceError

T = TypeVar("T")


class Scope:
    """Services by class, seen from one place; a session's scope is a child of the host's.

    Whatever is provided or deferred here is undone by `close`, in reverse order, each awaited.
    """

    def __init__(self, name: str, parent: Scope | None = None) -> None:
        self.name = name
        self.parent = parent
        self._services: dict[type[object], object] = {}
        self._undo: list[Callable[[], Awaitable[None] | None]] = []

    def provide(self, key: type[T], service: T) -> None:
        """Make `service` what `get(key)` returns here and in every child, until this scope closes.

        Raises:
            CordisError: this scope already provides `key`.
        """
        if key in self._services:
            raise CordisError(f"service {key.__name__} is already provided in {self.name}")
        self._services[key] = service

        def withdraw() -> None:
            self._services.pop(key, None)

        self.defer(withdraw)

    def find(self, key: type[T]) -> T | None:
        """The nearest service of class `key`, or None."""
        scope: Scope | None = self
        while scope is not None:
            if key in scope._services:
                return cast(T, scope._services[key])
            scope = scope.parent
        return None

    def get(self, key: type[T]) -> T:
        """The nearest service of class `key`.

        Raises:
            MissingServiceError: neither this scope nor a parent provides it.
        """
        found = self.find(key)
        if found is None:
            raise MissingServiceError(f"{self.name} has no service {key.__name__}")
        return found

    def defer(self, undo: Callable[[], Awaitable[None] | None]) -> None:
        """Have `undo` called (and awaited) when the scope closes."""
        self._undo.append(undo)

    @property
    def depth(self) -> int:
        """How many undo functions there are; `close(down_to=depth)` goes back to this point."""
        return len(self._undo)

    async def close(self, down_to: int = 0) -> None:
        """Undo everything, last first. Every undo is tried; the failures are raised together.

        Raises:
            BaseExceptionGroup: one or more undo functions failed.
        """
        failures: list[BaseException] = []
        while len(self._undo) > down_to:
            try:
                pending = self._undo.pop()()
                if pending is not None:
                    await pending
            except asyncio.CancelledError:
                raise
            except Exception as failure:
                failures.append(failure)
        if failures:
            raise BaseExceptionGroup(f"closing {self.name}", failures)

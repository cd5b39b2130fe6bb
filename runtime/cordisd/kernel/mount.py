"""Mounting: entries contribute to a scope as soon as what they need is there, and are undone in reverse."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Final

from cordisd.errors import CompositionError, CordisError, Problem
from cordisd.kernel.load import LoadedEntry
from cordisd.kernel.scope import Scope

MOUNT_LIMIT_S: Final = 30.0
UNMOUNT_LIMIT_S: Final = 5.0
"""How long one entry may take: whoever asked for a session, or for the end, waits for it."""


async def mount(entries: Sequence[LoadedEntry], scope: Scope) -> None:
    """Mount `entries` into `scope`, in their order but for those that wait for a service of a later one.

    Closing the scope unmounts them, last first, each awaited. When one fails, or the task is cancelled, all
    that was mounted here is undone before the error goes on; what the scope held before stays.

    Raises:
        CompositionError: an entry failed to mount, waits for a service that nobody provides, or isolates one
            that has no private instances.
    """
    depth = scope.depth
    waiting = _views(entries, scope)
    try:
        while waiting:
            ready = next((pair for pair in waiting if not _missing(*pair)), None)
            if ready is None:
                raise CompositionError([_still_waiting(*pair) for pair in waiting])
            waiting.remove(ready)
            await _mount_one(*ready)
    except BaseException as error:
        try:
            await scope.close(down_to=depth)
        except ExceptionGroup as failures:
            error.add_note(f"undoing it failed too: {', '.join(map(repr, failures.exceptions))}")
        raise


def _views(entries: Sequence[LoadedEntry], scope: Scope) -> list[tuple[LoadedEntry, Scope]]:
    """Each entry with the scope as it sees it."""
    views: list[tuple[LoadedEntry, Scope]] = []
    problems: list[Problem] = []
    for entry in entries:
        try:
            views.append((entry, scope.isolated(entry.isolate)))
        except CordisError as error:
            problems.append(Problem(entry.where, f'entry "{entry.name}" did not activate: {error}'))
    if problems:
        raise CompositionError(problems)
    return views


async def _mount_one(entry: LoadedEntry, scope: Scope) -> None:
    try:
        mounted = entry.entry_class(entry.config).mount(scope)
        await _within(MOUNT_LIMIT_S, mounted.__aenter__())
    except Exception as error:  # an entry may be anybody's code; the composition's author needs to know which
        cause = str(error) if isinstance(error, CordisError) else f"{type(error).__name__}: {error}"
        raise CompositionError([Problem(entry.where, f"failed to mount: {cause}")]) from error
    scope.defer(partial(_leave, mounted, entry.where))


async def _leave(mounted: AbstractAsyncContextManager[None], where: str) -> None:
    try:
        await _within(UNMOUNT_LIMIT_S, mounted.__aexit__(None, None, None))
    except Exception as error:
        error.add_note(f"{where}: failed to unmount")
        raise


async def _within(limit_s: float, work: Awaitable[object]) -> None:
    """Await `work`.

    Raises:
        CordisError: it was cancelled because it took longer than `limit_s`.
    """
    timer = asyncio.timeout(limit_s)
    try:
        async with timer:
            await work
    except TimeoutError as error:
        if not timer.expired():
            raise
        raise CordisError(f"it took longer than {limit_s:g} s") from error


def _missing(entry: LoadedEntry, scope: Scope) -> list[type[object]]:
    return [service for service in entry.entry_class.needs if not scope.offers(service)]


def _still_waiting(entry: LoadedEntry, scope: Scope) -> Problem:
    services = ", ".join(service.__name__ for service in _missing(entry, scope))
    return Problem(entry.where, f'entry "{entry.name}" did not activate: waiting for service {services}')

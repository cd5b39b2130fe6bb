"""Scopes: typed service lookup, and the undo stack of everything that was mounted in them."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TypeVar, cast

from cordisd.errors import CordisError, MissingServiceError

T = TypeVar("T")


def names_of(service: type[object]) -> tuple[str, ...]:
    """What a composition calls a service: its class's name in camelCase, and its `service_names`."""
    name = service.__name__
    return (name[:1].lower() + name[1:], *getattr(service, "service_names", ()))


class Scope:
    """Services by class, seen from one place; a session's scope is a child of the host's.

    Whatever is provided or deferred here is undone by `close`, in reverse order, each awaited.
    """

    def __init__(self, name: str, parent: Scope | None = None) -> None:
        self.name = name
        self.parent = parent
        self._services: dict[tuple[type[object], str], object] = {}
        """By class and realm; the realm that is not isolated has no name."""
        self._makers: dict[type[object], Callable[[Scope], object] | None] = {}
        """How private instances are made of a service that came with the scope; None: it has none."""
        self._undo: list[Callable[[], Awaitable[None] | None]] = []
        self._isolate: dict[str, str] = parent._isolate if parent else {}
        self._is_view = False

    def isolated(self, isolate: Mapping[str, str]) -> Scope:
        """This scope as one entry sees it: each service named in `isolate` is looked up in that realm only.

        What is provided or deferred there is undone with this scope, in one order. Several names of one
        service are one wish; the last counts.

        Raises:
            CordisError: a service that came with the scope has no private instances.
        """
        if isolate:
            self._check_private(isolate)
        view = copy.copy(self)
        view._isolate = {
            **{name: realm for name, realm in self._isolate.items() if name not in isolate},
            **isolate,
        }
        view._is_view = True
        return view

    def provide(self, key: type[T], service: T, *, private: Callable[[Scope], T] | None = None) -> None:
        """Make `service` what `get(key)` returns here and in every child, until this scope closes.

        `private` makes the instance of a realm that nobody has provided one for, when it is first looked
        up there; it defers what undoes that in the scope it is given. A service that does not come from an
        entry cannot be isolated without.

        Raises:
            CordisError: this scope already provides `key`, in the same realm.
        """
        realm = self._realm(key)
        if (key, realm) in self._services:
            where = f"{self.name}, realm {realm}" if realm else self.name
            raise CordisError(f"service {key.__name__} is already provided in {where}")
        if not realm and (private or not self._is_view):
            self._makers[key] = private
        self._put(key, realm, service)

    def find(self, key: type[T]) -> T | None:
        """The nearest service of class `key`, or None."""
        realm = self._realm(key)
        for scope in self._chain():
            if (key, realm) in scope._services:
                return cast(T, scope._services[key, realm])
        if realm:
            for scope in self._chain():
                maker = scope._makers.get(key)
                if maker is not None:
                    service = maker(scope)
                    scope._put(key, realm, service)
                    return cast(T, service)
        return None

    def offers(self, key: type[object]) -> bool:
        """Whether `find` would give something; nothing is made."""
        realm = self._realm(key)
        return any(
            (key, realm) in scope._services or (realm and scope._makers.get(key)) for scope in self._chain()
        )

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
            ExceptionGroup: one or more undo functions failed.
        """
        failures: list[Exception] = []
        while len(self._undo) > down_to:
            try:
                pending = self._undo.pop()()
                if pending is not None:
                    await pending
            except Exception as failure:
                failures.append(failure)
        if failures:
            raise ExceptionGroup(f"closing {self.name}", failures)

    def _chain(self) -> Iterator[Scope]:
        """This scope and those around it, the nearest first."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    def _realm(self, key: type[object]) -> str:
        """The realm in which `key` is looked up from here."""
        if not self._isolate:
            return ""
        names = names_of(key)
        return next((realm for name, realm in reversed(self._isolate.items()) if name in names), "")

    def _put(self, key: type[object], realm: str, service: object) -> None:
        self._services[key, realm] = service

        def withdraw() -> None:
            self._services.pop((key, realm), None)
            if not realm:
                self._makers.pop(key, None)

        self.defer(withdraw)

    def _check_private(self, isolate: Mapping[str, str]) -> None:
        chain = reversed(list(self._chain()))
        makers = {key: maker for scope in chain for key, maker in scope._makers.items()}
        for key, maker in makers.items():
            names = names_of(key)
            if maker is None and (named := [name for name in isolate if name in names]):
                able = ", ".join(name for one, made in makers.items() if made for name in names_of(one))
                raise CordisError(
                    f"{named[0]} cannot be isolated: the daemon itself works with the one there is; "
                    f"what can be: {able + ', and ' if able else ''}the services that other entries provide"
                )

"""What an entry is: a class with a configuration and a `mount`, known to the loader by name only."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar, Literal

from cordisd.kernel.scope import Scope
from cordisd.settings import EntryConfig

Lifetime = Literal["host", "session"]


class Entry:
    """One row of a composition, once loaded. Subclasses set the class variables and write `mount`.

    `lifetime` "host": mounted once, when the daemon starts. "session": mounted in each new session's scope.
    `needs`: services that must be there before `mount` is called; the loader orders rows by them.
    """

    Config: ClassVar[type[EntryConfig]] = EntryConfig
    lifetime: ClassVar[Lifetime] = "host"
    needs: ClassVar[tuple[type[object], ...]] = ()
    lenient: ClassVar[bool] = False
    """True for entries known by a published name: their unknown config keys are warnings, not errors."""

    inert: ClassVar[bool] = False
    """True for an entry that is only checked: it contributes nothing, so it may stand anywhere."""

    freezes: ClassVar[bool] = False
    """True for an entry that freezes its preset: every value of it is written out, without `!!js`."""

    def __init__(self, config: Any) -> None:
        self.config = config

    @classmethod
    def read_config(cls, raw: Mapping[str, Any], *, folder: str = "") -> EntryConfig:
        """The validated configuration. `folder` is where the file is that it is written in.

        A subclass may leave `folder` out; then it has no `FolderPath` in its configuration.

        Raises:
            pydantic.ValidationError: with one error per field.
        """
        return cls.Config.model_validate(raw, context={"folder": folder}, by_alias=True, by_name=False)

    def mount(self, scope: Scope) -> AbstractAsyncContextManager[None]:
        """Contribute to `scope`, yield, undo. Subclasses decorate theirs with `asynccontextmanager`."""
        raise NotImplementedError(f"{type(self).__name__} has no mount")

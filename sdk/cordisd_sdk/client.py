"""The asynchronous client: one daemon, its sessions, its end."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self, Unpack, cast

from cordisd import shapes, wire
from cordisd.events import JsonObject
from cordisd_sdk.connect import Connection
from cordisd_sdk.errors import ConnectionClosedError, SdkError
from cordisd_sdk.launch import (
    DEFAULT_MODEL,
    DEFAULT_PROVIDER,
    DaemonOptions,
    check_options,
    command_line,
    environment,
    workspace,
)
from cordisd_sdk.session import AsyncSession, SessionOptions

START_TIMEOUT_S: Final = 30.0
REQUEST_TIMEOUT_S: Final = 60.0
SHUTDOWN_TIMEOUT_S: Final = 2.0


class AsyncClient:
    """Starts a daemon of its own and talks to it over stdio. Options: `DaemonOptions`.

        async with AsyncClient(cwd="/srv/work", model="deepseek-v4-flash") as client:
            result = await client.session().run("Fix the failing test.")

    It belongs to one event loop. `close` (or leaving the `async with`) ends the daemon in bounded time.
    """

    def __init__(self, **options: Unpack[DaemonOptions]) -> None:
        check_options(options)
        self._options = options
        self._connection: Connection | None = None
        self._sessions: dict[str, AsyncSession] = {}
        self._closing: asyncio.Task[None] | None = None
        self.server: shapes.InitializeResult = {}
        """What the daemon said of itself when it was started."""

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self, **options: Unpack[DaemonOptions]) -> Self:
        """Start the daemon and wait until it is ready; nothing when it has been started before.

        Options given here win over those of the constructor.

        Raises:
            ConnectionClosedError: it ended at once; `stderr_tail` says why (a faulty composition?).
            RpcError: it refused `initialize`.
            RequestTimeoutError: it was not ready in time.
            SdkError: it cannot be started.
        """
        if self._closing is not None:
            raise ConnectionClosedError("the client was closed; make another one")
        if self._connection is not None:
            return self
        check_options(options)
        self._options |= options
        chosen = self._options
        connection = Connection(chosen.get("max_frame_bytes", wire.MAX_FRAME_BYTES))
        await connection.open(command_line(chosen), environment(chosen), chosen.get("on_stderr"))
        self._connection = connection
        try:
            timeout_s = chosen.get("start_timeout_s", START_TIMEOUT_S)
            answer = await connection.request(wire.INITIALIZE, self._initialize_params(), timeout_s)
        except BaseException:
            await self.close()
            raise
        self.server = cast(shapes.InitializeResult, answer)
        if "maxFrameBytes" in self.server:
            connection.max_request_bytes = self.server["maxFrameBytes"]
            if "max_frame_bytes" not in chosen:
                connection.accept_frames_of(self.server["maxFrameBytes"])
        return self

    async def close(self) -> None:
        """Shutdown request, end of stdin, SIGTERM, SIGKILL, each in bounded time; no process is left.

        Runs once, however often and from however many tasks it is called. Cancelling it kills the daemon.
        """
        if self._connection is None:
            return
        if self._closing is None:
            grace_s = self._options.get("shutdown_timeout_s", SHUTDOWN_TIMEOUT_S)
            self._closing = asyncio.create_task(self._connection.close(grace_s))
        try:
            await asyncio.shield(self._closing)
        except asyncio.CancelledError:
            self._connection.process.kill()
            raise

    def kill(self) -> None:
        """SIGKILL for the daemon: all under way ends with `ConnectionClosedError`. `close` is still due."""
        if self._connection is not None:
            self._connection.process.kill()

    def session(self, id: str | None = None, **options: Unpack[SessionOptions]) -> AsyncSession:
        """The session of that id, a new one without; nothing is sent before its first use.

        Raises:
            SdkError: options for a session that this client has already begun.
        """
        if id is not None and id in self._sessions:
            if options:
                raise SdkError(f"session {id!r} is open already; options apply to a new one")
            return self._sessions[id]
        for name in options.keys() - SessionOptions.__annotations__.keys():
            allowed = ", ".join(SessionOptions.__annotations__)
            raise TypeError(f"unknown session option {name!r}; allowed: {allowed}")
        session = AsyncSession(self, id, options)
        self._sessions[session.id] = session
        return session

    async def resume(self, id: str) -> AsyncSession:
        """A stored session, with its history, ready for the next prompt.

        Raises:
            RpcError: there is none, it is open already, or its log cannot be read.
        """
        await self.request(wire.SESSION_RESUME, {"sessionId": id})
        return self.session(id)

    async def list(self) -> builtins.list[shapes.SessionSummary]:
        """The live sessions of the daemon."""
        answer = await self.request(wire.SESSION_LIST, {})
        return cast(builtins.list[shapes.SessionSummary], answer["sessions"])

    async def ping(self) -> None:
        """Return when the daemon has answered."""
        await self.request(wire.PING, {})

    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, timeout_s: float | None = None
    ) -> JsonObject:
        """The result of any method. `timeout_s` defaults to the client's `request_timeout_s`.

        Raises:
            RpcError, RequestTimeoutError, ConnectionClosedError, ProtocolError.
        """
        if timeout_s is None:
            timeout_s = self._options.get("request_timeout_s", REQUEST_TIMEOUT_S)
        return await self.connection.request(method, params, timeout_s)

    def announces(self, notification: str) -> bool:
        """Whether the daemon said that it sends this notification."""
        return notification in self.server.get("capabilities", {}).get("notifications", ())

    def release(self, session: AsyncSession) -> None:
        """Forget a session that is over; its id may be used again."""
        self._sessions.pop(session.id, None)
        self.connection.forget(session)

    @property
    def connection(self) -> Connection:
        """The open connection.

        Raises:
            ConnectionClosedError: the client was not started.
        """
        if self._connection is None:
            raise ConnectionClosedError("the client is not started: use `async with`, or start()")
        return self._connection

    @property
    def pid(self) -> int | None:
        """Process id of the daemon, once started."""
        return None if self._connection is None else self._connection.process.pid

    @property
    def exit_code(self) -> int | None:
        """Exit code of the daemon, negative for a signal; None while it lives."""
        return None if self._connection is None else self._connection.process.exit_code

    @property
    def stderr_tail(self) -> str:
        """The last 400 lines of the daemon's stderr."""
        return "" if self._connection is None else self._connection.process.stderr_tail

    def _initialize_params(self) -> shapes.InitializeParams:
        params: shapes.InitializeParams = {
            "cwd": workspace(self._options),
            "provider": self._options.get("provider", DEFAULT_PROVIDER),
            "model": self._options.get("model", DEFAULT_MODEL),
        }
        if "max_tokens" in self._options:
            params["maxTokens"] = self._options["max_tokens"]
        if "reasoning_effort" in self._options:
            params["reasoningEffort"] = self._options["reasoning_effort"]
        if "preset" in self._options:
            params["preset"] = self._options["preset"]
        if "require_preset" in self._options:
            params["requirePreset"] = self._options["require_preset"]
        return params

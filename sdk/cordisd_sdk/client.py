"""The asynchronous client: one daemon, its sessions, its end."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self, Unpack, cast

from cordisd import shapes, wire
from cordisd.events import JsonObject
from cordisd_sdk.address import Address, UnixAddress, parse_url
from cordisd_sdk.attachment import AsyncAttachment
from cordisd_sdk.connect import Connection
from cordisd_sdk.errors import ConnectionClosedError, RequestTimeoutError, RpcError, SdkError
from cordisd_sdk.initialize import initialize_params
from cordisd_sdk.launch import DaemonOptions, check_options, command_line, environment
from cordisd_sdk.process import DaemonProcess
from cordisd_sdk.session import AsyncSession, SessionOptions
from cordisd_sdk.shared import connect_or_spawn
from cordisd_sdk.stream import SocketStream
from cordisd_sdk.transport import Transport

START_TIMEOUT_S: Final = 30.0
REQUEST_TIMEOUT_S: Final = 60.0
SHUTDOWN_TIMEOUT_S: Final = 2.0
AGAIN_S: Final = 0.05
SHUTTING_DOWN: Final = -32004


class AsyncClient:
    """Talks to a daemon: one of its own, over stdio, or the one at a URL. Options: `DaemonOptions`.

        async with AsyncClient(cwd="/srv/work", model="deepseek-v4-flash") as client:
            result = await client.session().run("Fix the failing test.")

    With `url` it connects to a daemon that runs there, with `spawn` it starts that first if it has to:

        async with AsyncClient(url="unix:/run/user/1000/agents.sock", spawn=True) as client: ...

    It belongs to one event loop. `close` (or leaving the `async with`) ends a daemon of its own in bounded
    time, and only disconnects from another.
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
        """Start the daemon, or connect to it, and wait until it is ready; nothing when that is done.

        Options given here win over those of the constructor.

        Raises:
            NotListeningError: there is no daemon at the URL.
            ConnectionClosedError: it ended at once; `stderr_tail` says why (a faulty composition?). Or the
                one at the URL cannot be reached.
            RpcError: it refused `initialize`; -32006: the token is not the right one.
            RequestTimeoutError: it was not ready in time.
            ProtocolError: what listens at the URL is something else.
            SdkError: it cannot be started; the URL or the token's file is no such thing.
        """
        if self._closing is not None:
            raise ConnectionClosedError("the client was closed; make another one")
        if self._connection is not None:
            return self
        check_options(self._options | options)
        self._options |= options
        try:
            answer = await self._start_up()
        except BaseException:
            await self.close()
            raise
        self.server = cast(shapes.InitializeResult, answer)
        if "maxFrameBytes" in self.server:
            self.connection.max_request_bytes = self.server["maxFrameBytes"]
            if "max_frame_bytes" not in self._options:
                self.connection.accept_frames_of(self.server["maxFrameBytes"])
        return self

    async def close(self) -> None:
        """Shutdown request, end of stdin, SIGTERM, SIGKILL, each in bounded time; no process is left.

        From a daemon at a URL it disconnects: what runs there goes on. Runs once, however often and from
        however many tasks it is called. Cancelling it kills the daemon, or drops the connection.
        """
        if self._connection is None:
            return
        if self._closing is None:
            closing = self._connection.close(self._grace_s, shut_down="url" not in self._options)
            self._closing = asyncio.create_task(closing)
        try:
            await asyncio.shield(self._closing)
        except asyncio.CancelledError:
            self._connection.transport.kill()
            raise

    async def shutdown(self) -> None:
        """End the daemon, also one at a URL that others use too, and close this client.

        Turns that run are aborted and their logs closed; the sessions can be resumed.

        Raises:
            RpcError, RequestTimeoutError, ConnectionClosedError: the daemon at the URL has not agreed to end.
        """
        try:
            if "url" in self._options:
                await self.request(wire.SHUTDOWN, None, timeout_s=self._grace_s)
                await self.connection.ended(self._grace_s)
        finally:
            await self.close()

    def kill(self) -> None:
        """SIGKILL for a daemon of its own, else an end of the connection; `close` is still due.

        All under way ends with `ConnectionClosedError`.
        """
        if self._connection is not None:
            self._connection.transport.kill()

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

    async def attach(self, id: str, from_seq: int | None = 0) -> AsyncAttachment:
        """The events of a live session, whoever owns it, from the one of number `from_seq` on.

        0: all there are, then each as it comes; None: those to come.

        Raises:
            RpcError: it is not live, or has no such event yet.
        """
        is_new = id not in self._sessions
        session = self.session(id)
        try:
            return await session.attach(from_seq)
        except RpcError:
            if is_new:
                self.release(session)
            raise

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
        """Process id of a daemon of its own, once started."""
        return None if self._connection is None else self._connection.transport.pid

    @property
    def exit_code(self) -> int | None:
        """Exit code of a daemon of its own, negative for a signal; None while it lives."""
        return None if self._connection is None else self._connection.transport.exit_code

    @property
    def stderr_tail(self) -> str:
        """The last 400 lines of the stderr of a daemon of its own."""
        return "" if self._connection is None else self._connection.transport.stderr_tail

    @property
    def _grace_s(self) -> float:
        return self._options.get("shutdown_timeout_s", SHUTDOWN_TIMEOUT_S)

    async def _start_up(self) -> JsonObject:
        options = self._options
        limit_s = options.get("start_timeout_s", START_TIMEOUT_S)
        if "url" in options:
            return await self._reach(parse_url(options["url"]), limit_s)
        process = DaemonProcess(command_line(options), environment(options), options.get("on_stderr"))
        connection = self._connection_over(process)
        await connection.open()
        self._connection = connection
        return await connection.request(wire.INITIALIZE, initialize_params(options), limit_s)

    async def _reach(self, address: Address, limit_s: float) -> JsonObject:
        """Connect to the daemon at `address`; the answer to `initialize`."""
        params = initialize_params(self._options)
        clock = asyncio.get_running_loop().time
        deadline_s = clock() + limit_s
        while True:
            connection = self._connection_over(SocketStream(address, deadline_s))
            if self._options.get("spawn") and isinstance(address, UnixAddress):
                await connect_or_spawn(connection.open, address, self._options, deadline_s)
            else:
                await connection.open()
            self._connection = connection
            may_be_gone = self._options.get("spawn") and clock() < deadline_s
            try:
                return await connection.request(wire.INITIALIZE, params, max(0.0, deadline_s - clock()))
            except RequestTimeoutError as error:
                late = f"{address.url}: no answer to initialize within {limit_s:g} s"
                raise RequestTimeoutError(late) from error
            except RpcError as error:
                if not may_be_gone or error.code != SHUTTING_DOWN:
                    raise RpcError(error.code, f"{address.url}: {error.message}", error.data) from error
            except ConnectionClosedError:
                if not may_be_gone:
                    raise
            # It was idle for long enough just now, or could not start for the client that has started it.
            await connection.close(0, shut_down=False)
            await asyncio.sleep(AGAIN_S)

    def _connection_over(self, transport: Transport) -> Connection:
        return Connection(transport, self._options.get("max_frame_bytes", wire.MAX_FRAME_BYTES))

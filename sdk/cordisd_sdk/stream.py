"""A socket that a daemon listens on, as a transport."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from typing import Final, cast

from cordisd_sdk.address import Address, UnixAddress
from cordisd_sdk.errors import ConnectionClosedError, NotListeningError, RequestTimeoutError, SdkError
from cordisd_sdk.transport import Sink

MAX_SHOWN_BYTES: Final = 200
FULL_BACKLOG_PAUSE_S: Final = 0.02
KEEPALIVE: Final = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 20), (socket.TCP_KEEPCNT, 3))
"""A machine that has gone without a word is noticed after two minutes, not after two hours."""


class SocketStream(asyncio.Protocol):
    """A `Transport`: a connection to a daemon of others, of whose process nothing is known."""

    pid: Final = None
    exit_code: Final = None
    stderr_tail: Final = ""

    def __init__(self, address: Address, deadline_s: float) -> None:
        """`deadline_s`: until when it has to be connected, by the clock of the event loop."""
        self.place = f"{address.url}: "
        self._address = address
        self._deadline_s = deadline_s
        self._is_closing = False
        self._was_killed = False
        self._closed = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()

    async def start(self, sink: Sink) -> None:
        """Connect. The caller must `close` it then.

        Raises:
            NotListeningError: nobody listens there.
            RequestTimeoutError: nobody answers in time.
            ConnectionClosedError: it cannot be reached for another reason, which is told.
            SdkError: who listens there is a stranger.
        """
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(self._deadline_s):
                await self._connect()
        except (FileNotFoundError, ConnectionRefusedError) as error:
            raise NotListeningError(f"{self.place}no daemon listens there: {error.strerror}") from error
        except TimeoutError as error:
            raise RequestTimeoutError(f"{self.place}cannot be reached in time") from error
        except OSError as error:
            raise ConnectionClosedError(f"{self.place}cannot connect: {error.strerror or error}") from error

    async def write(self, data: bytes) -> None:
        """Hand `data` over whole; waits while the daemon has not read what was written before."""
        await self._writable.wait()
        self.write_soon(data)

    def write_soon(self, data: bytes) -> None:
        """Like `write`, without waiting."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def take_noise(self, line: bytes) -> str | None:
        """What a line says that no daemon sends: on a socket there is nothing but frames."""
        return f"what listens there is no cordisd; it says {line[:MAX_SHOWN_BYTES]!r}"

    def kill(self) -> None:
        """Drop the connection at once. As a signal to a process, it may come from any thread."""
        self._was_killed = True
        with contextlib.suppress(RuntimeError):  # the loop is closed, and so is the connection
            self._loop.call_soon_threadsafe(self._transport.abort)

    async def close(self, grace_s: float) -> None:
        """Disconnect when what was written is sent, at the latest after `grace_s` seconds."""
        self._is_closing = True
        self._transport.close()
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closed.wait(), grace_s)
        finally:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._sink.receive(data)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed.set()
        self._writable.set()
        if self._is_closing:
            return
        if self._was_killed:
            how = "dropped here"
        elif exc is None:
            how = "closed at the other end"
        else:
            how = f"lost: {getattr(exc, 'strerror', None) or exc}"
        self._sink.end(f"the connection was {how}")

    async def _connect(self) -> None:
        if isinstance(self._address, UnixAddress):
            connected = await self._connect_to_path(self._address.path)
            await self._loop.create_connection(lambda: self, sock=connected)
        else:
            await self._loop.create_connection(lambda: self, self._address.host, self._address.port)
            self._keep_alive()

    async def _connect_to_path(self, path: str) -> socket.socket:
        # By hand, for asyncio takes a socket whose backlog is full for one that is connected.
        while True:
            connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                connected.setblocking(False)
                connected.connect(path)
                self._check_owner(connected)
                return connected
            except BlockingIOError:
                connected.close()
                await asyncio.sleep(FULL_BACKLOG_PAUSE_S)
            except BaseException:
                connected.close()
                raise

    def _check_owner(self, connected: socket.socket) -> None:
        # In a folder like /tmp anybody can make a socket of this name, and would be told the prompts.
        size = struct.calcsize("3i")
        _, uid, _ = struct.unpack("3i", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
        if os.geteuid() not in (uid, 0) and uid != 0:
            raise SdkError(f"{self.place}who listens there is user {uid}, neither root nor you")

    def _keep_alive(self) -> None:
        connected = self._transport.get_extra_info("socket")
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in KEEPALIVE:
            connected.setsockopt(socket.IPPROTO_TCP, option, value)

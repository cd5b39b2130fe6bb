"""Files where the session's shell is: behind a launcher, or with the rights of another user.

A process there serves `LocalFiles` over a socket, one operation at a time. A message is two lengths, a JSON
object and bytes. While it works, the other side may ask back, with the content of the file:

    {"do": "rewrite", "path": "/a"}  ->   <-  {"ask": true} + content
    {"report": "..."} + new content  ->   <-  {"done": ["...", false]}

Instead of an answer, {"stop": true} leaves the file as it is; {"failed": words} ends an operation too.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread
import difflib
import json
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

from cordisd.editor.files import Kind, Listing, Rewritten, Row
from cordisd.editor.local import LocalFiles, lock_of
from cordisd.errors import ToolError

P = TypeVar("P")
Answer = Callable[[bytes], tuple[str, bytes]]
_LENGTHS = struct.Struct(">QQ")
_MAX_INLINE_BYTES = 256 * 1024
_CANCEL_LIMIT_S = 1.0
_IMPORTED_LATE_ELSEWHERE = (concurrent.futures.thread, difflib)
"""Below another root, the process finds no module that it has not imported by then."""


class RemoteFiles(Generic[P]):
    """`FileAccess` through a process where the shell is; `place` tells where that is, `connect` starts one.

    A shell that was started anew may be elsewhere, so `place` is asked before each operation.
    """

    def __init__(
        self, place: Callable[[], Awaitable[P]], connect: Callable[[P], Awaitable[socket.socket]]
    ) -> None:
        self._place = place
        self._connect = connect
        self._connected_to: P | None = None
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._lock = asyncio.Lock()

    async def kind(self, path: str) -> Kind:
        kind: Kind = await self._call("kind", path)
        return kind

    async def feed(self, path: str, sink: Callable[[bytes], None]) -> None:
        def take(block: bytes) -> tuple[str, bytes]:
            sink(block)
            return "", b""

        await self._call("feed", path, answer=take)

    async def listing(self, path: str) -> Listing:
        rows, n_omitted, complete = await self._call("listing", path)
        return Listing(tuple(Row(*row) for row in rows), n_omitted, complete)

    async def create(self, path: str, content: bytes) -> None:
        async with lock_of(await self._call("lock_name", path)):
            await self._call("create", path, content)

    async def resolve(self, path: str) -> str:
        resolved: str = await self._call("resolve", path)
        return resolved

    async def remove(self, path: str, check: Callable[[bytes], None]) -> None:
        def look(content: bytes) -> tuple[str, bytes]:
            check(content)
            return "", b""

        async with lock_of(await self._call("lock_name", path)):
            await self._call("remove", path, answer=look)

    async def rewrite(self, path: str, change: Callable[[bytes], tuple[bytes, str]]) -> Rewritten:
        def answer(content: bytes) -> tuple[str, bytes]:
            new, report = change(content)
            return report, new

        async with lock_of(await self._call("lock_name", path)):
            return Rewritten(*await self._call("rewrite", path, answer=answer))

    def close(self) -> None:
        """End the process."""
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None

    async def _call(
        self, operation: str, path: str, content: bytes = b"", answer: Answer | None = None
    ) -> Any:
        """What the operation gives. One that is cancelled goes to its end first, but for very long ones."""
        job = asyncio.ensure_future(self._done(operation, path, content, answer))
        try:
            return await asyncio.shield(job)
        except asyncio.CancelledError:
            await asyncio.wait([job], timeout=_CANCEL_LIMIT_S)
            raise
        finally:
            if not job.done():
                job.cancel()
            elif not job.cancelled():
                job.exception()  # seen, if nobody waits for it any more

    async def _done(self, operation: str, path: str, content: bytes, answer: Answer | None) -> Any:
        async with self._lock:
            try:
                reader, writer = await self._connected()
                _send(writer, {"do": operation, "path": path}, content)
                return await self._converse(reader, writer, answer)
            except (ConnectionError, asyncio.IncompleteReadError) as failure:
                self.close()
                raise ToolError(
                    "The process that reaches the session's files has ended. Look at the file before you "
                    "try again."
                ) from failure
            except ToolError:  # an answer like another
                raise
            except BaseException:  # it may still go to its end there; nobody here knows how far it is
                self.close()
                raise

    async def _converse(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: Answer | None
    ) -> Any:
        stopped: ToolError | None = None
        while True:
            message, content = await _receive(reader)
            if "done" in message:
                return message["done"]
            if "failed" in message:
                raise stopped or ToolError(message["failed"])
            assert answer is not None, "only operations with an answer ask back"
            try:
                if len(content) > _MAX_INLINE_BYTES:
                    report, new = await asyncio.to_thread(answer, content)
                else:
                    report, new = answer(content)
            except ToolError as failure:
                stopped = failure
                _send(writer, {"stop": True})
            else:
                _send(writer, {"report": report}, new)
            await writer.drain()

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        place = await self._place()
        if self._streams is None or self._streams[0].at_eof() or place != self._connected_to:
            self.close()
            self._streams = await asyncio.open_unix_connection(sock=await self._connect(place))
            self._connected_to = place
        return self._streams


def _send(writer: asyncio.StreamWriter, message: dict[str, Any], content: bytes = b"") -> None:
    writer.write(_packed(message, content))


async def _receive(reader: asyncio.StreamReader) -> tuple[dict[str, Any], bytes]:
    head = await reader.readexactly(_LENGTHS.size)
    n_text, n_content = _LENGTHS.unpack(head)
    text = await reader.readexactly(n_text)
    return json.loads(text), await reader.readexactly(n_content)


def _packed(message: dict[str, Any], content: bytes) -> bytes:
    text = json.dumps(message).encode()
    return _LENGTHS.pack(len(text), len(content)) + text + content


class _Stopped(ToolError):
    """The other side wants nothing done."""


class _Server:
    """The process's side, without an event loop of its own between operations."""

    def __init__(self, connection: socket.socket) -> None:
        self._stream = connection.makefile("rwb")
        self._files = LocalFiles(apart=False)

    def run(self, obstacle: str) -> None:
        """Serve until the daemon's end is closed."""
        while message := self._receive():
            request, content = message
            try:
                if obstacle:
                    raise ToolError(obstacle)
                done = asyncio.run(self._do(request["do"], request["path"], content))
            except ToolError as failure:
                self._send({"failed": str(failure)})
            else:
                self._send({"done": done})

    async def _do(self, operation: str, path: str, content: bytes) -> Any:
        files = self._files
        match operation:
            case "kind":
                return await files.kind(path)
            case "feed":
                return await files.feed(path, lambda block: self._ask(block) and None)
            case "listing":
                return await files.listing(path)
            case "create":
                return await files.create(path, content)
            case "resolve":
                return await files.resolve(path)
            case "lock_name":
                return await files.lock_name(path)
            case "remove":
                return await files.remove(path, lambda content: self._ask(content) and None)
            case "rewrite":
                return await files.rewrite(path, self._ask)
            case _:
                raise AssertionError(operation)

    def _ask(self, content: bytes) -> tuple[bytes, str]:
        self._send({"ask": True}, content)
        answer = self._receive()
        if answer is None or "stop" in answer[0]:
            raise _Stopped("stopped")
        return answer[1], answer[0]["report"]

    def _receive(self) -> tuple[dict[str, Any], bytes] | None:
        head = self._stream.read(_LENGTHS.size)
        if len(head) < _LENGTHS.size:
            return None
        n_text, n_content = _LENGTHS.unpack(head)
        text, content = self._stream.read(n_text), self._stream.read(n_content)
        if len(text) < n_text or len(content) < n_content:  # cut off: nothing of it may be used
            return None
        return json.loads(text), content

    def _send(self, message: dict[str, Any], content: bytes = b"") -> None:
        self._stream.write(_packed(message, content))
        self._stream.flush()


def serve(connection: socket.socket, obstacle: str) -> None:
    """The main function of the process: does what comes over `connection` until that is closed.

    `obstacle`: why the process is not where it should be; then that is all it says.
    """
    with suppress(ConnectionError):  # the daemon has cancelled, or is gone
        _Server(connection).run(obstacle)

"""A scriptable chat-completions server on loopback, for tests: the n-th request gets the n-th reply.

    async with MockChat([text("hi"), call("c1", "bash", {"command": "id"})]) as mock: ... mock.url ...
    with MockChatThread([...]) as mock:        # the same in a thread, for daemons in a subprocess

A reply is bytes written as they are, with pauses and cuts between them. Every request is recorded. A
request past the end of the script is answered 400, which no retry policy repeats. Instead of a list, a
script may be a function from the `Recorded` request to its reply.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal

DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait before the next bytes."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Cut:
    """Drop the connection here: "fin" closes it, "rst" resets it."""

    kind: Literal["fin", "rst"] = "fin"


class Hang:
    """Say nothing more, until the client goes or the server is stopped."""


Part = bytes | Pause | Cut | Hang


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer. `framing`: "chunked" and "length" keep the connection, "close" ends the body with it.

    `raw` True: the parts are the whole answer, head included.
    """

    parts: Sequence[Part] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": "text/event-stream"})
    framing: Literal["chunked", "length", "close"] = "chunked"
    raw: bool = False


@dataclass(frozen=True, slots=True)
class Recorded:
    """One request as it came. `headers` in order, names as sent; `connection` counts from 0."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    connection: int

    @property
    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)

    def header(self, name: str) -> str | None:
        """The first header of that name, in any case."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


Script = Sequence[Reply] | Callable[[Recorded], Reply]


def event(payload: object) -> bytes:
    """One server-sent event with a JSON payload."""
    return b"data: " + json.dumps(payload).encode() + b"\n\n"


def delta(content: Mapping[str, Any], finish: str | None = None) -> bytes:
    """The event of one delta."""
    return event({"id": "x", "choices": [{"index": 0, "delta": dict(content), "finish_reason": finish}]})


def usage(prompt: int = 20, completion: int = 4, **more: Any) -> bytes:
    """The usage-only event."""
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, **more}
    return event({"id": "x", "choices": [], "usage": counts})


def stream(*parts: Part, finish: str | None = "stop", done: bool = True) -> Reply:
    """A stream of these parts, then a finish reason, usage and `[DONE]`."""
    tail: list[Part] = [delta({}, finish), usage()] if finish else []
    return Reply([*parts, *tail, *([DONE] if done else [])])


def text(*pieces: str, finish: str = "stop") -> Reply:
    """An answer of text, a delta for each piece."""
    return stream(*(delta({"content": piece}) for piece in pieces), finish=finish)


def calls(*made: tuple[str, str, Mapping[str, Any] | str]) -> Reply:
    """An answer of tool calls `(id, name, arguments)`, in the usual form."""
    parts: list[Part] = []
    for index, (call_id, name, arguments) in enumerate(made):
        wire = arguments if isinstance(arguments, str) else json.dumps(arguments)
        head = {
            "index": index,
            "id": call_id,
            "type": "function",
            "function": {"name": name, "arguments": ""},
        }
        parts.append(delta({"tool_calls": [head]}))
        parts.append(delta({"tool_calls": [{"index": index, "function": {"arguments": wire}}]}))
    return stream(*parts, finish="tool_calls")


def call(call_id: str, name: str, arguments: Mapping[str, Any] | str) -> Reply:
    """An answer of one tool call."""
    return calls((call_id, name, arguments))


def error(status: int, message: str | bytes = "", **headers: str) -> Reply:
    """An HTTP error: a JSON error object of `message`, or the bytes as they are; keywords are headers."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if isinstance(message, bytes):
        return Reply([message], status, {"Content-Type": "text/html", **named}, "length")
    body = json.dumps({"error": {"message": message, "type": "t", "code": None}}).encode()
    return Reply([body], status, {"Content-Type": "application/json", **named}, "length")


def json_body(value: object) -> Reply:
    """A JSON answer where a stream was asked for."""
    return Reply([json.dumps(value).encode()], 200, {"Content-Type": "application/json"}, "length")


class MockChat:
    """The server, in the running event loop."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._server: asyncio.Server | None = None
        self._n_connections = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._stopping = asyncio.Event()
        self.requests: list[Recorded] = []
        self.url = ""
        """Base URL, without trailing slash."""
        self.aborted = 0
        """Answers that the client left before their end."""

    async def __aenter__(self) -> MockChat:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 26)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._stopping.set()
        self._server.close()
        for writer in list(self._writers):
            writer.close()
        while self._writers:
            await asyncio.sleep(0.001)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection, self._n_connections = self._n_connections, self._n_connections + 1
        self._writers.add(writer)
        try:
            while (request := await _read_request(reader, connection)) is not None:
                self.requests.append(request)
                if not await self._answer(self._reply_to(request), reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            self.aborted += 1
        finally:
            with suppress(ConnectionError):
                writer.close()
                await writer.wait_closed()
            self._writers.discard(writer)

    def _reply_to(self, request: Recorded) -> Reply:
        if callable(self._script):
            return self._script(request)
        if len(self.requests) <= len(self._script):
            return self._script[len(self.requests) - 1]
        return error(400, f"mock script exhausted: request {len(self.requests)} of {len(self._script)}")

    async def _answer(self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Write one reply; whether the connection may be used again."""
        chunked = reply.framing == "chunked" and not reply.raw
        if not reply.raw:
            writer.write(_head(reply))
        for part in reply.parts:
            match part:
                case bytes():
                    writer.write(b"%x\r\n%b\r\n" % (len(part), part) if chunked and part else part)
                    await writer.drain()
                case Pause():
                    await asyncio.sleep(part.seconds)
                case Hang():
                    await _gone_or(reader, self._stopping)
                    self.aborted += 1
                    return False
                case Cut():
                    if part.kind == "rst":
                        linger = struct.pack("ii", 1, 0)
                        writer.get_extra_info("socket").setsockopt(
                            socket.SOL_SOCKET, socket.SO_LINGER, linger
                        )
                        writer.transport.abort()
                    return False
        if chunked:
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        return reply.framing != "close" and not reply.raw


class MockChatThread:
    """The server in a thread of its own, for a client in another process."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> MockChat:
        self._thread.start()
        self._mock = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)
        return self._mock

    async def _start(self) -> MockChat:
        return await MockChat(self._script).__aenter__()

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._mock.__aexit__(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


async def _read_request(reader: asyncio.StreamReader, connection: int) -> Recorded | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = tuple((name, value.strip()) for name, _, value in (line.partition(":") for line in lines))
    size = next((int(value) for name, value in headers if name.lower() == "content-length"), 0)
    return Recorded(method, path, headers, await reader.readexactly(size), connection)


def _head(reply: Reply) -> bytes:
    headers = dict(reply.headers)
    match reply.framing:
        case "chunked":
            headers["Transfer-Encoding"] = "chunked"
        case "length":
            headers["Content-Length"] = str(sum(len(part) for part in reply.parts if isinstance(part, bytes)))
        case "close":
            headers["Connection"] = "close"
    lines = [f"HTTP/1.1 {reply.status} Mock", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


async def _gone_or(reader: asyncio.StreamReader, stopping: asyncio.Event) -> None:
    waits: Iterable[asyncio.Task[Any]] = [
        asyncio.ensure_future(reader.read(1)),
        asyncio.ensure_future(stopping.wait()),
    ]
    _, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*waits, return_exceptions=True)

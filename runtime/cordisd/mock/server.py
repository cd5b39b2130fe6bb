"""The server: a chat-completions endpoint on loopback that plays a script.

It writes HTTP by hand, on asyncio streams, because the point is to choose what no HTTP library lets one
choose: where a chunk of the body begins, a reset in the middle of one, a size that is no number.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from inspect import isawaitable
from types import TracebackType
from typing import Any, Final

from cordisd.mock.answer import Answer
from cordisd.mock.delivery import deliver
from cordisd.mock.faults.chance import Chances
from cordisd.mock.faults.spoil import Spoiling
from cordisd.mock.faults.table import FAULTS
from cordisd.mock.parts import RawReply
from cordisd.mock.received import BadRequestError, Received, read_request
from cordisd.mock.sse import error, error_object, json_body

Reply = Answer | RawReply
Script = Sequence[Reply] | Callable[[Received], Reply | Awaitable[Reply]]
"""The n-th request gets the n-th reply; or a function, which may be async, from a request to its reply."""

Record = dict[str, Any]

_SECRET_HEADERS: Final = frozenset({"authorization", "proxy-authorization", "api-key", "x-api-key", "cookie"})


class MockModel:
    """The server, in the running event loop; an async context manager.

    Serves `POST …/chat/completions` and `GET …/models`, under any prefix; `models` are those that it lists,
    and any is served. A request past the end of a list of replies is answered 400, which no retry policy
    repeats. What a script that is a function raises is answered 400, and raised again on leaving.

    With an `api_key` any other is answered 401. `faults` are probabilities by name, drawn from `seed`; where
    a fault that struck by chance `fails` a request, the same request gets its reply when it comes again.
    `log` is called with a record of each request before it is answered; it holds no key.

    Raises:
        ValueError: a fault is unknown.
        OSError: on entering, when the address cannot be listened on. Port 0 is any free one.
    """

    def __init__(
        self,
        script: Script,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        api_key: str | None = None,
        seed: int | None = None,
        faults: Mapping[str, float] | None = None,
        models: Sequence[str] = ("mock",),
        log: Callable[[Record], None] | None = None,
        keeps_requests: bool = True,
    ) -> None:
        self._script = script
        self._address = (host, port)
        self._api_key = api_key
        self._models = models
        self._log = log
        self.seed = secrets.randbits(32) if seed is None else seed
        """What everything random comes from."""
        self._chances = Chances(self.seed, faults or {})
        self._owed: dict[bytes, list[Reply]] = {}
        """Replies that a fault kept from their requests, by the body of the request."""
        self._server: asyncio.Server | None = None
        self._n_connections = 0
        self._connections: set[asyncio.Task[None]] = set()
        self._n_taken = 0
        self._failures: list[Exception] = []
        self._keeps_requests = keeps_requests
        self._n_requests = 0
        self.requests: list[Received] = []
        """Every chat request so far, whatever became of it; empty unless `keeps_requests`."""
        self.url = ""
        """Base URL, without trailing slash; `/v1` may follow or not."""
        self.aborted = 0
        """Answers that the client left before their end."""

    async def __aenter__(self) -> MockModel:
        self._server = await asyncio.start_server(self._accept, *self._address, limit=2**20)
        host, port = self._server.sockets[0].getsockname()[:2]
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        problem: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()
        if self._failures and problem is None:
            raise self._failures[0]

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer, self._n_connections))
        self._n_connections += 1
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int
    ) -> None:
        try:
            while (request := await read_request(reader, writer, connection)) is not None:
                end = await deliver(await self._reply_to(request), request, reader, writer)
                self.aborted += end == "left"
                if end != "whole":
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            self.aborted += 1
        except BadRequestError as problem:
            with suppress(ConnectionError):
                await deliver(error(400, str(problem)), None, reader, writer)
        finally:
            await _close(writer)

    async def _reply_to(self, request: Received) -> RawReply:
        path = request.path.partition("?")[0].rstrip("/")
        is_chat = path.endswith("/chat/completions")
        if is_chat and request.method == "POST":
            self._n_requests += 1
            if self._keeps_requests:
                self.requests.append(request)
        number = self._n_requests
        faults: Record = {}
        if self._api_key is not None and request.header("authorization") != f"Bearer {self._api_key}":
            refused = error_object(401, "Incorrect API key provided", code="invalid_api_key")
            reply = json_body(refused, 401)
        elif is_chat and request.method == "POST" and not request.is_object:
            reply = error(400, "We could not parse the JSON body of your request")
        elif is_chat and request.method == "POST":
            reply, faults = await self._chat(request, number)
        elif is_chat:
            reply = error(405, f"{request.method} is not allowed here; POST is", allow="POST")
        elif path.endswith("/models") and request.method == "GET":
            reply = self._model_list()
        else:
            reply = error(404, f"{request.path} is not served; POST /v1/chat/completions is")
        if self._log is not None:
            self._log(_record(request, number, reply, faults))
        return reply

    async def _chat(self, request: Received, number: int) -> tuple[RawReply, Record]:
        """The reply to a chat request, and the faults in it."""
        try:
            return await self._play(request, number)
        except Exception as problem:  # a mistake of whoever wrote the script, who shall hear of it
            self._failures.append(problem)
            return error(400, f"the mock's script failed: {problem!r}"), {}

    async def _play(self, request: Received, number: int) -> tuple[RawReply, Record]:
        luck = self._chances.luck(request)
        planned = await self._planned(request)
        scripted = planned.faults
        spoiling = Spoiling({**dict.fromkeys(luck.faults), **scripted}, luck.random_for)
        reply = spoiling.reply(planned, request, number)
        if any(FAULTS[name].fails and name not in scripted for name in spoiling.applied):
            self._owed.setdefault(request.body, []).append(planned)
        return reply, spoiling.applied

    async def _planned(self, request: Received) -> Reply:
        if owed := self._owed.pop(request.body, None):
            planned, *rest = owed
            if rest:
                self._owed[request.body] = rest
            return planned
        if callable(self._script):
            made = self._script(request)
            return await made if isawaitable(made) else made
        self._n_taken += 1
        if self._n_taken > len(self._script):
            return error(400, f"mock script exhausted: request {self._n_taken} of {len(self._script)}")
        return self._script[self._n_taken - 1]

    def _model_list(self) -> RawReply:
        rows = [{"id": name, "object": "model", "created": 0, "owned_by": "mock"} for name in self._models]
        return json_body({"object": "list", "data": rows})


async def _close(writer: asyncio.StreamWriter) -> None:
    """Close the connection once all is sent, or at once when the server stops: a client may never read it."""
    try:
        task = asyncio.current_task()
        if task is None or not task.cancelling():
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)  # the transport lets go in the next turn of the loop


def _record(request: Received, number: int, reply: RawReply, faults: Record) -> Record:
    headers = {
        name: "[redacted]" if name.lower() in _SECRET_HEADERS else value for name, value in request.headers
    }
    return {
        "request": number,
        "connection": request.connection,
        "method": request.method,
        "path": request.path,
        "headers": headers,
        "body": request.object or request.body.decode("utf-8", "replace"),
        "status": reply.status,
        "reply": reply.source,
        "faults": faults,
    }

"""One connection: sorts what comes in, owns a task for each request, and is the only writer."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from cordisd.agent.host import Host
from cordisd.agent.settings import SessionSettings
from cordisd.errors import (
    CordisError,
    InvalidParamsError,
    InvalidRequestError,
    NotInitializedError,
    SessionBusyError,
    UnauthorizedError,
)
from cordisd.events import JsonObject, encode_json
from cordisd.rpc.feeds import Feeds
from cordisd.rpc.frames import OVERSIZE, BatchAnswer, FrameSplitter, response_frame
from cordisd.rpc.initialize import initialize
from cordisd.rpc.requests import error_body, kind_of, read_frame, readable_id
from cordisd.rpc.transports import FdTransport
from cordisd.wire import INITIALIZE, MAX_FRAME_BYTES, SHUTDOWN

if TYPE_CHECKING:
    from cordisd.agent.live import Live
    from cordisd.rpc.connections import Connections

logger = logging.getLogger(__name__)

REQUEST_S: Final = 60.0
"""Most time that a request is worked on."""
HIDE_S: Final = 0.001
"""After its answer to `initialize`, and before any tool runs, the daemon hides from what runs as its user."""
HEAVY: Final = frozenset({"session/events", "session/metrics"})
"""Methods that read whole logs, or answer with megabytes: one at a time for each connection."""
MAX_PENDING: Final = 1000
"""With so many requests unanswered no more are read, until one is."""
STRANGER_S: Final = 10.0
"""How long a connection may take to show the token."""
STRANGER_FRAME_BYTES: Final = 1 << 16
"""Longest frame of a connection that has not shown the token."""


class Peer:
    """Serves one connection from the host.

    `on_end` is called when nothing more will come: the connection is then to be closed. `token`: what
    `initialize` has to show before anything else is served. `hears_all`: every session's events are sent, not
    only those of the sessions that this connection makes or attaches to.
    """

    def __init__(
        self,
        host: Host,
        connections: Connections,
        reader: int,
        writer: int,
        *,
        on_end: Callable[[Peer], None],
        on_shutdown: Callable[[], None],
        token: str | None = None,
        hears_all: bool = False,
    ) -> None:
        self.host = host
        self.connections = connections
        self.hears_all = hears_all
        self._on_end = partial(on_end, self)
        self._on_shutdown = on_shutdown
        self._token = token
        self._is_turned_away = False
        self._settings: SessionSettings | None = None
        self._initializing = asyncio.Lock()
        self._heavy = asyncio.Lock()
        self._splitter = FrameSplitter(MAX_FRAME_BYTES if token is None else STRANGER_FRAME_BYTES)
        self._tasks: dict[asyncio.Task[None], Callable[[CordisError], None]] = {}
        """How to refuse what each is to answer."""
        self._transport = FdTransport(
            reader,
            writer,
            on_data=self._take,
            on_eof=self._on_end,
            on_drained=lambda: self.feeds.catch_up_soon(),
        )
        self.feeds = Feeds(self._transport, connections.turns)
        self._transport.start()
        if token is not None:
            asyncio.get_running_loop().call_later(STRANGER_S, self._end_stranger)

    async def settings(self) -> SessionSettings:
        """What `initialize` chose for new sessions: the last one that came before, once it is answered.

        Raises:
            NotInitializedError: it has not been called, or the daemon is shutting down.
        """
        async with self._initializing:
            self.host.check_serving()
            if self._settings is None:
                raise NotInitializedError("not initialized: call initialize first")
            return self._settings

    def own(self, session_id: str) -> Live:
        """The live session of that id, if this connection may act on it; one without an owner gets this one.

        Raises:
            SessionNotFoundError: it is not live.
            SessionBusyError: another connection owns it.
        """
        live = self.host.get(session_id)
        if live.owner is None:
            live.owner = self
            if session_id not in self.feeds:
                self.feeds.attach(live)
        if live.owner is not self:
            raise SessionBusyError(f'session "{session_id}" is owned by another connection')
        return live

    async def close(self, timeout_s: float, reason: str) -> None:
        """Answer what is pending, refuse what is not done after `timeout_s`, send what is left, close fds.

        A reader that does not keep up is given `timeout_s` again.
        """
        late: set[asyncio.Task[None]] = set()
        if self._tasks:
            _, late = await asyncio.wait(list(self._tasks), timeout=timeout_s)
        for task in late:
            task.cancel()
            self._tasks[task](NotInitializedError(reason))
        deadline_s = time.monotonic() + timeout_s
        while not self._transport.is_broken and (left_s := deadline_s - time.monotonic()) > 0:
            await self._transport.drain(left_s)
            if not self.feeds.is_catching_up:
                break
            await asyncio.sleep(0)  # a feed has a slice to send
        self._transport.close()
        self.feeds.close()

    def _end_stranger(self) -> None:
        if self._token is not None and not self._transport.is_broken:
            logger.warning("a connection has shown no token within %g s", STRANGER_S)
            self._transport.give_up()

    def _take(self, data: bytes) -> None:
        for line in self._splitter.feed(data):
            if self._is_turned_away:
                return
            if line is OVERSIZE or line.strip():
                self._take_line(line)

    def _take_line(self, line: bytes) -> None:
        frame: Any = None
        try:
            frame = read_frame(line, self._splitter.max_bytes)
            if self._token is not None:
                self._admit(frame, self._token)
            if isinstance(frame, list):
                self._start(self._serve_batch(frame), partial(self._refuse_batch, frame))
                return
            match kind_of(frame):
                case "request":
                    self._start(self._serve(frame), partial(self._refuse, frame["id"]))
                case "notification":
                    self._start(self._serve_notification(frame), lambda _: None)
        except CordisError as error:
            self._refuse(readable_id(frame), error)
            if self._token is not None:
                self._turn_away()

    def _admit(self, frame: Any, token: str) -> None:
        """Trust this connection from now on, if `frame` is or begins with an `initialize` that has the token.

        Raises:
            UnauthorizedError: it is not.
        """
        from hmac import compare_digest

        first = frame[0] if isinstance(frame, list) else frame
        asked = first if isinstance(first, dict) and first.get("method") == INITIALIZE else {}
        params = asked.get("params")
        shown = params.get("token") if isinstance(params, dict) else None
        if not isinstance(shown, str) or not compare_digest(_bytes(shown), _bytes(token)):
            raise UnauthorizedError(
                "this connection must begin with an initialize that has the daemon's token"
            )
        self._token = None
        self._splitter.max_bytes = MAX_FRAME_BYTES

    def _turn_away(self) -> None:
        """Take nothing more, and end the connection once what it was refused with is sent."""
        logger.warning("a connection that has not shown the token is ended")
        self._is_turned_away = True
        asyncio.get_running_loop().call_soon(self._on_end)

    async def _serve(self, frame: JsonObject) -> None:
        async with self._turn(frame["method"]):
            await self._transport.room()
            body = await self._body(frame["method"], frame.get("params", {}))
            self._answer(frame["id"], body)
        if frame["method"] == SHUTDOWN and "result" in body:
            self._on_shutdown()

    async def _serve_notification(self, frame: JsonObject) -> None:
        """Do what is asked for without an answer; what an answer would say of a failure goes to stderr."""
        method = frame["method"]
        body = await self._body(method, frame.get("params", {}))
        if "error" in body:
            logger.warning("notification %.80s failed: %s", method, body["error"]["message"])
        elif method == SHUTDOWN:
            logger.warning("a shutdown notification ends the daemon")
            self._on_shutdown()

    async def _serve_batch(self, frames: list[Any]) -> None:
        await self._transport.room()
        told = BatchAnswer()

        async def serve(place: int, frame: Any) -> bool:
            """Whether the daemon is to end. Its answer is kept by `told` alone, and only if there is room."""
            answer = await self._member(frame)
            if answer is None:
                return False
            told.add(place, answer)
            return "result" in answer and frame["method"] == SHUTDOWN

        ends = await asyncio.gather(*(serve(place, frame) for place, frame in enumerate(frames)))
        if (encoded := told.frame()) is not None:
            self._transport.write(encoded)
        if any(ends):
            self._on_shutdown()

    async def _member(self, frame: Any) -> JsonObject | None:
        try:
            match kind_of(frame):
                case "answer":
                    return None
                case "notification":
                    await self._serve_notification(frame)
                    return None
            async with self._turn(frame["method"]):
                body = await self._body(frame["method"], frame.get("params", {}))
        except InvalidRequestError as error:
            body = error_body(error)
        return {"jsonrpc": "2.0", "id": readable_id(frame), **body}

    async def _body(self, method: str, params: Any) -> JsonObject:
        try:
            if not isinstance(params, dict):
                raise InvalidParamsError(f"{method}: params must be an object")
            async with asyncio.timeout(REQUEST_S) as limit:
                return {"result": await self._result(method, params)}
        except CordisError as error:
            return error_body(error)
        except Exception as error:
            if isinstance(error, TimeoutError) and limit.expired():
                late = f"{method} was given up: it was not done within {REQUEST_S:g} s"
                return error_body(CordisError(late))
            logger.exception("method %s failed", method)
            told = error or type(error).__name__
            return error_body(CordisError(f"{method} failed inside the daemon: {told}"))

    async def _result(self, method: str, params: JsonObject) -> Mapping[str, Any]:
        if method == INITIALIZE:
            async with self._initializing:
                self._settings, answer = await initialize(self.host, params)
                asyncio.get_running_loop().call_later(HIDE_S, self.connections.hide_daemon)
                return answer
        if method == SHUTDOWN:
            if params:
                raise InvalidParamsError(f"shutdown: unknown field {next(iter(params))}; allowed: none")
            await self.host.abort()
            return {}
        from cordisd.rpc.dispatch import dispatch  # not needed before `initialize` is answered

        return await dispatch(method, params, self)

    def _turn(self, method: str) -> AbstractAsyncContextManager[object]:
        """What to hold until the method's answer is on its way."""
        return self._heavy if method in HEAVY else nullcontext()

    def _start(self, work: Any, refuse: Callable[[CordisError], None]) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = refuse
        task.add_done_callback(self._done)
        self._transport.hold(len(self._tasks) >= MAX_PENDING)

    def _done(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if len(self._tasks) < MAX_PENDING:
            self._transport.hold(False)

    def _refuse_batch(self, frames: list[Any], error: CordisError) -> None:
        """Answer the requests of a batch none of which has been answered."""
        ids = [readable_id(frame) for frame in frames if not isinstance(frame, dict) or "id" in frame]
        if ids:
            refused = [{"jsonrpc": "2.0", "id": request_id, **error_body(error)} for request_id in ids]
            self._transport.write(encode_json(refused) + b"\n")

    def _refuse(self, request_id: object, error: CordisError) -> None:
        self._answer(request_id, error_body(error))

    def _answer(self, request_id: object, body: JsonObject) -> None:
        self._transport.write(response_frame(request_id, body))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")

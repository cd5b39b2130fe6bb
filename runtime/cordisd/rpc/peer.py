"""One connection: sorts what comes in, owns a task for each request, and is the only writer."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from typing import Any, Final

from cordisd import __version__
from cordisd.agent.agent import check_required
from cordisd.agent.host import Host
from cordisd.agent.live import Live
from cordisd.agent.settings import SessionSettings
from cordisd.errors import (
    CordisError,
    InvalidParamsError,
    InvalidRequestError,
    NotInitializedError,
    SessionBusyError,
)
from cordisd.events import JsonObject, decode_json
from cordisd.rpc.feed import Feed
from cordisd.rpc.frames import OVERSIZE, FrameSplitter, encode_answer, response_frame
from cordisd.rpc.transports import FdTransport
from cordisd.wire import INITIALIZE, MAX_FRAME_BYTES, METHODS, NOTIFICATIONS, PROTOCOL_VERSION, SHUTDOWN

logger = logging.getLogger(__name__)

MAX_SAFE_INTEGER: Final = 2**53 - 1
INITIALIZE_FIELDS: Final = frozenset(
    {"cwd", "provider", "model", "maxTokens", "reasoningEffort", "preset", "requirePreset"}
)


class Peer:
    """Serves one connection from the host.

    `on_end` is called when the client is done: a `shutdown` has been answered, or nothing more will come.
    """

    def __init__(self, host: Host, reader: int, writer: int, on_end: Callable[[], None]) -> None:
        self.host = host
        self._on_end = on_end
        self._settings: SessionSettings | None = None
        self._initializing = asyncio.Lock()
        self._feeds: dict[str, Feed] = {}
        self._ending: list[Feed] = []
        """Feeds of closed sessions that still have something to send, oldest first."""
        self._splitter = FrameSplitter()
        self._tasks: dict[asyncio.Task[None], object] = {}
        """The request of each by its id; None for a batch."""
        self._transport = FdTransport(
            reader, writer, on_data=self._take, on_eof=on_end, on_drained=self._catch_up
        )
        self._transport.start()

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
        """The live session of that id, if this connection may act on it.

        Raises:
            SessionNotFoundError: it is not live.
            SessionBusyError: another connection owns it.
        """
        live = self.host.get(session_id)
        if live.owner is not self:
            raise SessionBusyError(f'session "{session_id}" is owned by another connection')
        return live

    def attach(self, live: Live) -> None:
        """Send the session's events from its next one on."""
        session = live.session
        waits = any(feed.session_id == session.id for feed in self._ending)
        self._feeds[session.id] = Feed(session.id, session.log, self._transport, is_behind=waits)

    def detach(self, session_id: str) -> None:
        """Send what the session has logged so far, however late that is read, and no more."""
        feed = self._feeds.pop(session_id, None)
        if feed is not None:
            feed.end()
            if feed.is_behind:
                self._ending.append(feed)

    async def close(self, timeout_s: float) -> None:
        """Answer what is pending, refuse what is not done after `timeout_s`, send what is left, close fds.

        A reader that does not keep up is given `timeout_s` again.
        """
        late: set[asyncio.Task[None]] = set()
        if self._tasks:
            _, late = await asyncio.wait(list(self._tasks), timeout=timeout_s)
        for task in late:
            task.cancel()
            if (request_id := self._tasks[task]) is not None:
                self._refuse(request_id, NotInitializedError("the daemon is shutting down"))
        self._transport.close(timeout_s)
        for feed in (*self._ending, *self._feeds.values()):
            feed.close()

    def _catch_up(self) -> None:
        for feed in (*self._ending, *self._feeds.values()):
            feed.catch_up()
        self._ending = [feed for feed in self._ending if feed.is_behind]

    def _take(self, data: bytes) -> None:
        for line in self._splitter.feed(data):
            self._take_line(line)

    def _take_line(self, line: bytes) -> None:
        if line is OVERSIZE:
            self._refuse(
                None, InvalidRequestError(f"frame longer than {MAX_FRAME_BYTES} bytes; it was skipped")
            )
        elif line.strip():
            try:
                frame = decode_json(line)
            except (ValueError, RecursionError) as error:
                self._answer(None, {"error": {"code": -32700, "message": f"not a JSON frame: {error}"}})
                return
            if isinstance(frame, list):
                self._start(self._serve_batch(frame))
            else:
                self._take_frame(frame)

    def _take_frame(self, frame: Any) -> None:
        request_id = _readable_id(frame)
        try:
            if not _is_request(frame):
                return
        except InvalidRequestError as error:
            self._refuse(request_id, error)
            return
        self._start(self._serve(frame), request_id)

    async def _serve(self, frame: JsonObject) -> None:
        body = await self._body(frame["method"], frame.get("params", {}))
        self._answer(frame["id"], body)
        if frame["method"] == SHUTDOWN and "result" in body:
            self._on_end()

    async def _serve_batch(self, frames: list[Any]) -> None:
        if not frames:
            self._refuse(None, InvalidRequestError("an empty batch"))
            return
        answers = await asyncio.gather(*(self._member(frame) for frame in frames))
        answered = [answer for answer in answers if answer is not None]
        if answered:
            self._transport.write(b"[%b]\n" % b",".join(map(encode_answer, answered)))
        if any(
            answer is not None and "result" in answer and frame["method"] == SHUTDOWN
            for frame, answer in zip(frames, answers, strict=True)
        ):
            self._on_end()

    async def _member(self, frame: Any) -> JsonObject | None:
        try:
            if not _is_request(frame):
                return None
            body = await self._body(frame["method"], frame.get("params", {}))
        except InvalidRequestError as error:
            body = _error(error)
        return {"jsonrpc": "2.0", "id": _readable_id(frame), **body}

    async def _body(self, method: str, params: Any) -> JsonObject:
        try:
            if not isinstance(params, dict):
                raise InvalidParamsError(f"{method}: params must be an object")
            if method == INITIALIZE:
                async with self._initializing:
                    return {"result": await self._initialize(params)}
            if method == SHUTDOWN:
                await self.host.abort()
                return {"result": {}}
            from cordisd.rpc.dispatch import dispatch  # not needed before `initialize` is answered

            return {"result": await dispatch(method, params, self)}
        except CordisError as error:
            return _error(error)
        except Exception as error:
            logger.exception("method %s failed", method)
            return _error(CordisError(f"{method} failed inside the daemon: {error or type(error).__name__}"))

    async def _initialize(self, params: JsonObject) -> JsonObject:
        """Check everything, then keep it: a failed call changes nothing."""
        self.host.check_serving()
        unknown = params.keys() - INITIALIZE_FIELDS
        if unknown:
            raise InvalidParamsError(f"initialize: unknown field {sorted(unknown)[0]}")
        for name in ("cwd", "provider", "model", *({"preset", "requirePreset"} & params.keys())):
            if not isinstance(params.get(name), str) or not params[name]:
                raise InvalidParamsError(f"initialize: {name} must be a non-empty string")
        limit, effort = params.get("maxTokens"), params.get("reasoningEffort")
        if "maxTokens" in params and not (type(limit) is int and 1 <= limit <= MAX_SAFE_INTEGER):
            raise InvalidParamsError("initialize maxTokens must be a positive safe integer")
        if "reasoningEffort" in params and not (isinstance(effort, str) and effort):
            raise InvalidParamsError("initialize reasoningEffort must be a non-empty string")
        config = self.host.configure(params["provider"], params["model"], limit, effort)
        preset, required = params.get("preset"), params.get("requirePreset")
        agent = await self.host.try_out(self.host.preset(preset))
        check_required(agent, required)
        self._settings = SessionSettings(os.path.abspath(params["cwd"]), config, preset, required)
        return {
            **agent.identity(),
            "serverInfo": {"name": "cordisd", "version": __version__},
            "protocolVersion": PROTOCOL_VERSION,
            "capabilities": {"methods": list(METHODS), "notifications": list(NOTIFICATIONS)},
            "maxFrameBytes": MAX_FRAME_BYTES,
        }

    def _start(self, work: Any, request_id: object = None) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = request_id
        task.add_done_callback(self._tasks.pop)

    def _refuse(self, request_id: object, error: CordisError) -> None:
        self._answer(request_id, _error(error))

    def _answer(self, request_id: object, body: JsonObject) -> None:
        self._transport.write(response_frame(request_id, body))


def _error(error: CordisError) -> JsonObject:
    body: JsonObject = {"code": error.rpc_code, "message": str(error)}
    if error.code_name is not None:
        body["data"] = {"code": error.code_name}
    return {"error": body}


def _readable_id(frame: Any) -> object:
    """The request id that an answer can carry: a string or a number, else null."""
    found = frame.get("id") if isinstance(frame, dict) else None
    return found if type(found) in (str, int, float) else None


def _is_request(frame: Any) -> bool:
    """Whether the frame is a request to serve; notifications and answers are not, and are only noted.

    Raises:
        InvalidRequestError: it is none of these.
    """
    if not isinstance(frame, dict):
        raise InvalidRequestError("a frame must be an object or an array of objects")
    if "method" not in frame and ("result" in frame or "error" in frame):
        logger.warning("an answer to no request of ours was ignored")
        return False
    if frame.get("jsonrpc") != "2.0":
        raise InvalidRequestError('jsonrpc must be "2.0"')
    if not isinstance(frame.get("method"), str):
        raise InvalidRequestError("method must be a string")
    if frame.get("id") is None:
        logger.warning("notification %.80s was ignored: a request needs an id", frame["method"])
        return False
    if _readable_id(frame) is None:
        raise InvalidRequestError("id must be a string or a number")
    return True

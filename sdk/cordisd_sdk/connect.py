"""One connection to a daemon: requests with their answers, notifications by session."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, Final, NamedTuple, Protocol

from cordisd import wire
from cordisd.events import JsonObject, decode_json, encode_json
from cordisd_sdk.errors import ConnectionClosedError, ProtocolError, RequestTimeoutError, RpcError, SdkError
from cordisd_sdk.frames import FrameTooLongError, LineSplitter
from cordisd_sdk.transport import Transport

MAX_EXCERPT_BYTES: Final = 200
METHOD_NOT_FOUND: Final = -32601


class Notification(NamedTuple):
    """One notification of the daemon."""

    method: str
    params: JsonObject


class Listener(Protocol):
    """Takes what the daemon tells about one session. Called on the event loop; must not block."""

    def hear(self, notification: Notification) -> None: ...

    def lose(self, make_error: Callable[[], SdkError]) -> None:
        """Nothing more will come; `make_error` tells why."""
        ...


class Connection:
    """What is under way with a daemon. `transport` brings its frames; it is a `Sink` of that."""

    def __init__(self, transport: Transport, max_frame_bytes: int) -> None:
        self.transport = transport
        self._splitter = LineSplitter(max_frame_bytes)
        self._numbers = count(1)
        self._waiting: dict[object, asyncio.Future[JsonObject]] = {}
        self._listeners: dict[str, Listener] = {}
        self._lost: Callable[[], SdkError] | None = None
        self._over = asyncio.Event()
        self.max_request_bytes = wire.MAX_FRAME_BYTES
        """Longest line that the daemon accepts."""

    async def open(self) -> None:
        """Start the daemon, or connect to it, whatever the transport does. `close` it then.

        Raises:
            SdkError: it cannot be done.
        """
        await self.transport.start(self)

    def accept_frames_of(self, max_bytes: int) -> None:
        """Take lines of up to `max_bytes` from now on."""
        self._splitter.max_bytes = max(self._splitter.max_bytes, max_bytes)

    async def request(
        self, method: str, params: Mapping[str, Any] | None, timeout_s: float | None
    ) -> JsonObject:
        """The result of one request. Cancelling it forgets the answer, nothing else.

        Raises:
            RpcError: the daemon refused it.
            RequestTimeoutError: no answer within `timeout_s` (None: wait for ever).
            ConnectionClosedError, ProtocolError: the connection is lost.
            SdkError: the request is longer than the daemon accepts.
        """
        if self._lost is not None:
            raise self._lost()
        number = next(self._numbers)
        frame = self._frame(number, method, params)
        answer: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            async with asyncio.timeout(timeout_s):
                await self.transport.write(frame)
                return _result_of(method, await answer)
        except TimeoutError as error:
            raise self._diagnosed(
                RequestTimeoutError, f"no answer to {method} within {timeout_s:g} s"
            ) from error
        finally:
            self._waiting.pop(number, None)

    def request_soon(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a request in whose answer nobody is interested."""
        if self._lost is None:
            self.transport.write_soon(self._frame(next(self._numbers), method, params))

    def listen(self, session_id: str, listener: Listener) -> None:
        """Have `listener` hear what concerns the session and those that it delegates to."""
        if self._lost is not None:
            raise self._lost()
        self._listeners[session_id] = listener

    def forget(self, listener: Listener) -> None:
        """Stop telling `listener` anything."""
        self._listeners = {key: one for key, one in self._listeners.items() if one is not listener}

    def end(self, how: str) -> None:
        """The transport has ended."""
        self._lose(ConnectionClosedError, how)

    def distrust(self, what: str) -> None:
        """Give the connection up over a frame that cannot be what the daemon meant."""
        self._lose(ProtocolError, f"the daemon sent a broken frame {what}")

    async def ended(self, time_s: float) -> None:
        """Wait until the connection is lost, at most `time_s` seconds."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), time_s)

    async def close(self, grace_s: float, *, shut_down: bool) -> None:
        """Close the transport, as that does it; `shut_down`: ask the daemon to end before."""
        try:
            if shut_down:
                await self.request(wire.SHUTDOWN, None, grace_s)
        except SdkError:
            pass  # it is gone, or deaf: what follows ends it
        finally:
            await self.transport.close(grace_s)
            self._lose(ConnectionClosedError, "the client was closed")

    def _frame(self, number: int, method: str, params: Mapping[str, Any] | None) -> bytes:
        message: JsonObject = {"jsonrpc": "2.0", "id": number, "method": method}
        if params is not None:
            message["params"] = params
        frame = encode_json(message)
        if len(frame) > self.max_request_bytes:
            raise SdkError(
                f"{method}: the request has {len(frame)} bytes, the daemon accepts {self.max_request_bytes}"
            )
        return frame + b"\n"

    def receive(self, piece: bytes) -> None:
        """Take what the daemon has sent."""
        if self._lost is not None:
            return
        try:
            lines = self._splitter.feed(piece)
        except FrameTooLongError as error:
            self._lose(ProtocolError, f"the daemon sent {error}")
            return
        for line in lines:
            if line[:1] != b"{" and not (line := line.strip()).startswith(b"{"):
                self._skip_noise(line)
                continue
            # What does not parse, or lacks a field it must have, means lost events: no later result could
            # be trusted.
            try:
                self._dispatch(decode_json(line))
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
                excerpt = line[:MAX_EXCERPT_BYTES].decode("ascii", "backslashreplace")
                self.distrust(f"({error!r}): {excerpt}")

    def _skip_noise(self, line: bytes) -> None:
        if line and (complaint := self.transport.take_noise(line)) is not None:
            self._lose(ProtocolError, complaint)

    def _dispatch(self, message: JsonObject) -> None:
        if self._lost is not None:
            return
        method = message.get("method")
        if method is None:
            answer = self._waiting.get(message.get("id"))
            if answer is not None and not answer.done():
                answer.set_result(message)
        elif "id" in message:
            self._refuse(message)
        elif method in (wire.SUBAGENT_STARTED, wire.SUBAGENT_FINISHED):
            self._adopt(Notification(method, message["params"]))
        else:
            params = message.get("params")
            if method == wire.SESSION_EVENT:
                _ = message["params"]["event"]["type"]  # without it the frame is broken, whoever listens
            listener = self._listeners.get(params["sessionId"]) if params and "sessionId" in params else None
            if params and listener is not None:
                listener.hear(Notification(method, params))

    def _adopt(self, notification: Notification) -> None:
        listener = self._listeners.get(notification.params["parentSessionId"])
        if listener is not None:
            self._listeners.setdefault(notification.params["childSessionId"], listener)
            listener.hear(notification)

    def _refuse(self, message: JsonObject) -> None:
        error = {"code": METHOD_NOT_FOUND, "message": f"a client has no methods: {message['method']}"}
        answer = {"jsonrpc": "2.0", "id": message["id"], "error": error}
        self.transport.write_soon(encode_json(answer) + b"\n")

    def _lose(self, kind: type[SdkError], reason: str) -> None:
        if self._lost is not None:
            return

        # One error per waiter: an instance that several tasks raise collects all their tracebacks.
        def make_error() -> SdkError:
            return self._diagnosed(kind, reason)

        self._lost = make_error
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(make_error())
        for listener in dict.fromkeys(self._listeners.values()):
            listener.lose(make_error)
        self._listeners.clear()
        self._over.set()

    def _diagnosed(self, kind: type[SdkError], reason: str) -> SdkError:
        transport = self.transport
        return kind(
            transport.place + reason, exit_code=transport.exit_code, stderr_tail=transport.stderr_tail
        )


def _result_of(method: str, message: JsonObject) -> JsonObject:
    if "error" in message:
        error = message["error"]
        if not isinstance(error, dict) or not isinstance(error.get("code"), int):
            raise ProtocolError(f"{method}: the answer's error has no code: {error!r:.200}")
        raise RpcError(error["code"], str(error.get("message", "")), error.get("data"))
    result = message.get("result")
    if not isinstance(result, dict):
        raise ProtocolError(f"{method}: the result is not an object: {result!r:.200}")
    return result

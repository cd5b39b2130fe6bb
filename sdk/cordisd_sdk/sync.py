"""The synchronous client: the asynchronous one on a background thread, with the same surface."""

from __future__ import annotations

import builtins
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from cordisd import shapes, stored_shapes
from cordisd.events import JsonObject, OutcomeClass
from cordisd_sdk.attachment import AsyncAttachment
from cordisd_sdk.client import AsyncClient
from cordisd_sdk.errors import ConnectionClosedError
from cordisd_sdk.launch import DaemonOptions
from cordisd_sdk.loop_thread import LoopThread
from cordisd_sdk.run import AsyncPrompt, RunResult
from cordisd_sdk.session import AsyncSession, PromptOptions, SessionOptions

T = TypeVar("T")


class Client:
    """Talks to a daemon: one of its own, over stdio, or the one at a URL. Options: `DaemonOptions`.

        with Client(cwd="/srv/work", model="deepseek-v4-flash") as client:
            result = client.session().run("Fix the failing test.")

    May be used from several threads at once. `close` (or leaving the `with`) ends its thread, and a daemon of
    its own; from the one at a URL it only disconnects.
    """

    def __init__(self, **options: Unpack[DaemonOptions]) -> None:
        self._client = AsyncClient(**options)
        self._thread: LoopThread | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def start(self, **options: Unpack[DaemonOptions]) -> Self:
        """As `AsyncClient.start`."""
        with self._lock:
            if self._thread is None:
                self._thread = LoopThread()
            try:
                self.call(self._client.start(**options))
            except BaseException:
                self._thread.stop()
                raise
        return self

    def close(self) -> None:
        """As `AsyncClient.close`; the background thread ends too."""
        with self._lock:
            if self._thread is not None and self._thread.alive:
                try:
                    self.call(self._client.close())
                finally:
                    self._thread.stop()

    def shutdown(self) -> None:
        """As `AsyncClient.shutdown`; the background thread ends too."""
        try:
            self.call(self._client.shutdown())
        finally:
            self.close()

    def kill(self) -> None:
        """As `AsyncClient.kill`."""
        self._client.kill()

    def session(self, id: str | None = None, **options: Unpack[SessionOptions]) -> Session:
        """As `AsyncClient.session`."""
        return Session(self, self._client.session(id, **options))

    def resume(self, id: str) -> Session:
        """As `AsyncClient.resume`."""
        return Session(self, self.call(self._client.resume(id)))

    def attach(self, id: str, from_seq: int | None = 0) -> Attachment:
        """As `AsyncClient.attach`."""
        return Attachment(self, self.call(self._client.attach(id, from_seq)))

    def list(self) -> builtins.list[shapes.SessionSummary]:
        """As `AsyncClient.list`."""
        return self.call(self._client.list())

    def ping(self) -> None:
        """As `AsyncClient.ping`."""
        self.call(self._client.ping())

    def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, timeout_s: float | None = None
    ) -> JsonObject:
        """As `AsyncClient.request`."""
        return self.call(self._client.request(method, params, timeout_s=timeout_s))

    @property
    def server(self) -> shapes.InitializeResult:
        """As `AsyncClient.server`."""
        return self._client.server

    @property
    def pid(self) -> int | None:
        """As `AsyncClient.pid`."""
        return self._client.pid

    @property
    def exit_code(self) -> int | None:
        """As `AsyncClient.exit_code`."""
        return self._client.exit_code

    @property
    def stderr_tail(self) -> str:
        """As `AsyncClient.stderr_tail`."""
        return self._client.stderr_tail

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, run on the client's loop. Ctrl-C cancels it.

        Raises:
            ConnectionClosedError: the client is not started, or closed.
        """
        future = self.submit(work)
        try:
            return future.result()
        finally:
            future.cancel()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin `work` on the client's loop. Raises as `call`."""
        if self._thread is not None and self._thread.alive:
            return self._thread.submit(work)
        work.close()
        closed = self._thread is not None
        raise ConnectionClosedError(
            "the client was closed" if closed else "the client is not started: use `with`, or start()"
        )


class Session:
    """As `AsyncSession`."""

    def __init__(self, client: Client, session: AsyncSession) -> None:
        self._client = client
        self._session = session
        self.id = session.id

    def create(self) -> shapes.SessionCreateResult:
        """As `AsyncSession.create`."""
        return self._client.call(self._session.create())

    def prompt(self, prompt: str | Sequence[JsonObject], **options: Unpack[PromptOptions]) -> Prompt:
        """As `AsyncSession.prompt`."""
        return Prompt(self._client, self._client.call(self._session.prompt(prompt, **options)))

    def run(
        self,
        prompt: str | Sequence[JsonObject],
        *,
        on_event: Callable[[JsonObject], None] | None = None,
        timeout_s: float | None = None,
        **options: Unpack[PromptOptions],
    ) -> RunResult:
        """As `AsyncSession.run`. `on_event` runs on the calling thread, so it may use the client."""
        if on_event is None:
            return self._client.call(self._session.run(prompt, timeout_s=timeout_s, **options))
        events: SimpleQueue[JsonObject | None] = SimpleQueue()
        run = self._client.submit(
            self._session.run(prompt, on_event=events.put, timeout_s=timeout_s, **options)
        )
        run.add_done_callback(lambda _: events.put(None))
        try:
            while (event := events.get()) is not None:
                on_event(event)
            return run.result()
        finally:
            run.cancel()

    def stream(self, prompt: str | Sequence[JsonObject]) -> Iterator[JsonObject]:
        """As `AsyncSession.stream`."""
        yield from self.prompt(prompt)

    def attach(self, from_seq: int | None = 0) -> Attachment:
        """As `AsyncSession.attach`."""
        return Attachment(self._client, self._client.call(self._session.attach(from_seq)))

    def steer(self, message: str | Sequence[JsonObject]) -> str:
        """As `AsyncSession.steer`."""
        return self._client.call(self._session.steer(message))

    def cancel(self, queue: shapes.QueuePolicy = "drop") -> shapes.SessionCancelResult:
        """As `AsyncSession.cancel`."""
        return self._client.call(self._session.cancel(queue))

    def close(self) -> None:
        """As `AsyncSession.close`."""
        self._client.call(self._session.close())

    def get(self) -> shapes.SessionGetResult:
        """As `AsyncSession.get`."""
        return self._client.call(self._session.get())

    def get_working_directory(self) -> str:
        """As `AsyncSession.get_working_directory`."""
        return self._client.call(self._session.get_working_directory())

    def set_working_directory(self, path: str) -> str:
        """As `AsyncSession.set_working_directory`."""
        return self._client.call(self._session.set_working_directory(path))

    def fork(self, id: str | None = None, *, at_turn: int | None = None) -> Session:
        """As `AsyncSession.fork`."""
        return Session(self._client, self._client.call(self._session.fork(id, at_turn=at_turn)))

    def events(self, from_seq: int = 0) -> Iterator[JsonObject]:
        """As `AsyncSession.events`."""
        while (page := self.page(from_seq))["events"]:
            yield from page["events"]
            from_seq = page["next"]

    def page(self, from_seq: int = 0, limit: int = 1000) -> stored_shapes.SessionEventsResult:
        """As `AsyncSession.page`."""
        return self._client.call(self._session.page(from_seq, limit))

    def outcome(
        self, class_: OutcomeClass, reward: float | None = None, data: JsonObject | None = None
    ) -> None:
        """As `AsyncSession.outcome`."""
        self._client.call(self._session.outcome(class_, reward, data))

    def metrics(self) -> stored_shapes.SessionMetricsResult:
        """As `AsyncSession.metrics`."""
        return self._client.call(self._session.metrics())


class Prompt:
    """As `AsyncPrompt`: iterating gives the events of its turn as they arrive."""

    def __init__(self, client: Client, prompt: AsyncPrompt) -> None:
        self._client = client
        self._prompt = prompt
        self.session_id = prompt.session_id
        self.message_id = prompt.message_id

    @property
    def ended(self) -> bool:
        """As `AsyncPrompt.ended`."""
        return self._prompt.ended

    def result(self) -> RunResult:
        """As `AsyncPrompt.result`."""
        return self._client.call(self._prompt.result())

    def __iter__(self) -> Iterator[JsonObject]:
        n_seen = 0
        while batch := self._client.call(self._prompt.more(n_seen)):
            n_seen += len(batch)
            yield from batch


class Attachment:
    """As `AsyncAttachment`: iterating gives the events of the session as they come."""

    def __init__(self, client: Client, attachment: AsyncAttachment) -> None:
        self._client = client
        self._attachment = attachment
        self._events: deque[JsonObject] = deque()
        self.session = Session(client, attachment.session)
        self.last_seq = attachment.last_seq

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.detach()

    def __iter__(self) -> Iterator[JsonObject]:
        while self._events or self._fetch():
            yield self._events.popleft()

    def detach(self) -> None:
        """As `AsyncAttachment.detach`."""
        self._client.call(self._attachment.detach())

    def _fetch(self) -> bool:
        self._events.extend(self._client.call(self._attachment.more()))
        return bool(self._events)

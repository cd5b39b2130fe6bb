"""One conversation, seen from the client."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, TypedDict, Unpack, cast

from cordisd import shapes, stored_shapes, wire
from cordisd.events import JsonObject, OutcomeClass
from cordisd_sdk.attachment import AsyncAttachment
from cordisd_sdk.connect import Notification
from cordisd_sdk.errors import ConnectionClosedError, ProtocolError, RequestTimeoutError, RpcError, SdkError
from cordisd_sdk.run import AsyncPrompt, RunResult

if TYPE_CHECKING:
    from cordisd_sdk.client import AsyncClient


class SessionOptions(TypedDict, total=False):
    """What a new session may have of its own; the client's values without it."""

    preset: str
    """Name of an agent preset."""
    require_preset: str
    """Digest that the agent must have; the session is refused otherwise."""
    cwd: str
    provider: str
    model: str
    max_tokens: int
    limits: shapes.Limits
    """What ends its runs early. They hold for its whole life, also when it is resumed."""
    rollout_id: str
    group_id: str
    attempt: int


class PromptOptions(TypedDict, total=False):
    """What a prompt may have of its own."""

    idempotency_key: str | None
    """Makes it safe to send again."""
    max_turns: int | None
    """Most model requests of its run, which then ends as `turn_limit`; the session may allow fewer."""
    run_timeout_s: float | None
    """Most time of its run, which then ends as `timeout`; the time in the queue does not count."""


WIRE_NAMES = {
    "max_tokens": "maxTokens",
    "rollout_id": "rolloutId",
    "group_id": "groupId",
    "require_preset": "requirePreset",
}
PROMPT_NAMES = {
    "idempotency_key": "idempotencyKey",
    "max_turns": "maxTurns",
    "run_timeout_s": "timeoutSeconds",
}


class AsyncSession:
    """Made by `AsyncClient.session` or `AsyncClient.resume`, one object per id.

    The daemon makes the session at the first `create` or `prompt`.
    """

    def __init__(self, client: AsyncClient, session_id: str | None, options: SessionOptions) -> None:
        self._client = client
        self.id = session_id or f"session-{uuid.uuid4().hex}"
        self._options = options
        self._creation = asyncio.Lock()
        self._created: shapes.SessionCreateResult | None = None
        self._listeners: list[AsyncPrompt | AsyncAttachment] = []
        self._is_detached = False
        self._keyed: dict[str, AsyncPrompt] = {}

    async def create(self) -> shapes.SessionCreateResult:
        """Have the daemon make the session now; later calls return the same answer.

        Raises:
            RpcError: the id is taken, or an option is refused.
        """
        async with self._creation:
            if self._created is None:
                named = {WIRE_NAMES.get(name, name): value for name, value in self._options.items()}
                result = await self._client.request(wire.SESSION_CREATE, {"sessionId": self.id, **named})
                self._created = cast(shapes.SessionCreateResult, result)
        return self._created

    async def prompt(
        self, prompt: str | Sequence[JsonObject], **options: Unpack[PromptOptions]
    ) -> AsyncPrompt:
        """Queue a text, or content blocks; returns once the daemon has accepted it.

        With an `idempotency_key` that the session has seen, the first prompt of that key is returned. If an
        earlier connection has sent it, all that it has been up to comes from the log.
        """
        for name in options.keys() - PROMPT_NAMES.keys():
            raise TypeError(f"unknown prompt option {name!r}; allowed: {', '.join(PROMPT_NAMES)}")
        if self._is_detached:
            await self._hear_from(None)
        if self._options and self._created is None:
            await self.create()
        handle = AsyncPrompt(
            self.id, announced=self._client.announces(wire.SESSION_COMPLETED), on_end=self._forget
        )
        self._client.connection.listen(self.id, self)
        self._listeners.append(handle)
        params: JsonObject = {"sessionId": self.id, "contentBlocks": _blocks(prompt)}
        params |= {PROMPT_NAMES[name]: value for name, value in options.items() if value is not None}
        try:
            answer = await self._client.request(wire.SESSION_PROMPT, params)
            message_id = answer.get("messageId")
            if not isinstance(message_id, str):
                raise ProtocolError(f"{wire.SESSION_PROMPT}: the result has no messageId: {answer!r:.200}")
            if message_id in self._keyed:
                self._forget(handle)
                return self._keyed[message_id]
            has_key = options.get("idempotency_key") is not None
            if has_key:
                self._keyed[message_id] = handle
            await self._bind(handle, message_id, may_be_old=has_key)
        except BaseException:
            self._forget(handle)
            raise
        return handle

    async def run(
        self,
        prompt: str | Sequence[JsonObject],
        *,
        on_event: Callable[[JsonObject], None] | None = None,
        timeout_s: float | None = None,
        **options: Unpack[PromptOptions],
    ) -> RunResult:
        """Prompt, and wait for the outcome of this prompt, also when others are queued before or behind it.

        `on_event` is called with each event of its turn. When the wait ends early (`timeout_s`, cancellation,
        an exception of `on_event`) the daemon is told to cancel the prompt's turn if that is running; prompts
        in the queue stay there.

        Raises:
            RequestTimeoutError: the turn did not end within `timeout_s`, the time in the queue included. A
                run that the daemon has ended in time, by `run_timeout_s` for example, has a result.
            RpcError: the prompt was refused.
            ConnectionClosedError, ProtocolError: the connection was lost.
        """
        sending = asyncio.ensure_future(self.prompt(prompt, **options))
        try:
            async with asyncio.timeout(timeout_s) as limit:
                handle = await asyncio.shield(sending)  # once sent, it is accepted: then it can be cancelled
                if on_event is not None:
                    async for event in handle:
                        on_event(event)
                return await handle.result()
        except BaseException as error:
            sending.add_done_callback(self._abandon_sent)
            if isinstance(error, TimeoutError) and limit.expired():
                raise RequestTimeoutError(
                    f"session {self.id!r}: the prompt did not finish within {timeout_s:g} s",
                    exit_code=self._client.exit_code,
                    stderr_tail=self._client.stderr_tail,
                ) from error
            raise

    async def stream(self, prompt: str | Sequence[JsonObject]) -> AsyncIterator[JsonObject]:
        """Prompt, and give the events of its turn as they arrive. Leaving early does not cancel the turn."""
        async for event in await self.prompt(prompt):
            yield event

    async def steer(self, message: str | Sequence[JsonObject]) -> str:
        """Have a message join the next step of the running turn; returns its id."""
        params = {"sessionId": self.id, "contentBlocks": _blocks(message)}
        return str((await self._client.request(wire.SESSION_STEER, params))["messageId"])

    async def cancel(self, queue: shapes.QueuePolicy = "drop") -> shapes.SessionCancelResult:
        """Cancel the running turn, and drop or keep the prompts behind it. Harmless when nothing runs."""
        params = {"sessionId": self.id, "queue": queue}
        return cast(shapes.SessionCancelResult, await self._client.request(wire.SESSION_CANCEL, params))

    async def close(self) -> None:
        """Cancel what runs and end the session in the daemon; its log stays, for `AsyncClient.resume`."""
        await self._client.request(wire.SESSION_CLOSE, {"sessionId": self.id})
        self._client.release(self)
        for listener in self._listeners:
            if isinstance(listener, AsyncAttachment):
                listener.end()
        self.lose(lambda: SdkError(f"session {self.id!r} was closed before the prompt had run"))

    async def attach(self, from_seq: int | None = 0) -> AsyncAttachment:
        """As `AsyncClient.attach`."""
        attachment = AsyncAttachment(self, from_seq)
        self._listeners.append(attachment)
        try:
            attachment.last_seq = await self._hear_from(from_seq)
        except BaseException:
            self._forget(attachment)
            raise
        if attachment.next_seq is None:
            attachment.next_seq = attachment.last_seq + 1
        return attachment

    async def detach(self, attachment: AsyncAttachment) -> None:
        """As `AsyncAttachment.detach`."""
        attachment.end()
        self._forget(attachment)
        if not self._listeners and not self._is_detached:
            self._is_detached = True
            with contextlib.suppress(ConnectionClosedError):
                await self._client.request(wire.SESSION_DETACH, {"sessionId": self.id})

    async def get(self) -> shapes.SessionGetResult:
        """What the daemon knows of the session: status, model, usage, last sequence number, …"""
        answer = await self._client.request(wire.SESSION_GET, {"sessionId": self.id})
        return cast(shapes.SessionGetResult, answer)

    async def get_working_directory(self) -> str:
        """The directory in which its tools work."""
        answer = await self._client.request(wire.WORKING_DIRECTORY_GET, {"sessionId": self.id})
        return str(answer["cwd"])

    async def set_working_directory(self, path: str) -> str:
        """Move its tools, live shells included; returns the new absolute path."""
        params = {"sessionId": self.id, "path": path}
        return str((await self._client.request(wire.WORKING_DIRECTORY_SET, params))["cwd"])

    async def fork(self, id: str | None = None, *, at_turn: int | None = None) -> AsyncSession:
        """A new session that goes on where this one stands, or stood at the end of a turn.

        The files that its tools see are this session's: give it a copy of them, if that matters.

        Raises:
            RpcError: the id is taken, or no turn, or not that one, has ended.
        """
        params = {"sessionId": self.id, "newSessionId": id, "atTurn": at_turn}
        given = {name: value for name, value in params.items() if value is not None}
        answer = await self._client.request(wire.SESSION_FORK, given)
        return self._client.session(answer["sessionId"])

    async def events(self, from_seq: int = 0) -> AsyncIterator[JsonObject]:
        """What the session has logged so far, from event `from_seq` on; also of one that is not live."""
        while (page := await self.page(from_seq))["events"]:
            for event in page["events"]:
                yield event
            from_seq = page["next"]

    async def page(self, from_seq: int = 0, limit: int = 1000) -> stored_shapes.SessionEventsResult:
        """At most `limit` of these events, and the `from_seq` to go on with, later if there were none."""
        params = {"sessionId": self.id, "from": from_seq, "limit": limit}
        return cast(
            stored_shapes.SessionEventsResult, await self._client.request(wire.SESSION_EVENTS, params)
        )

    async def outcome(
        self, class_: OutcomeClass, reward: float | None = None, data: JsonObject | None = None
    ) -> None:
        """Have the session's log say what has become of it; the last word counts. Also after `close`."""
        params = {"sessionId": self.id, "class": class_, "reward": reward, "data": data}
        given = {name: value for name, value in params.items() if value is not None}
        await self._client.request(wire.SESSION_OUTCOME, given)

    async def metrics(self) -> stored_shapes.SessionMetricsResult:
        """What the session has cost and how it went; also of one that is not live."""
        answer = await self._client.request(wire.SESSION_METRICS, {"sessionId": self.id})
        return cast(stored_shapes.SessionMetricsResult, answer)

    def hear(self, notification: Notification) -> None:
        """Pass a notification to the prompts that have not ended, and to the attachments."""
        for listener in self._listeners:
            listener.hear(notification)

    def lose(self, make_error: Callable[[], SdkError]) -> None:
        """End every prompt without an outcome, and every attachment."""
        for listener in self._listeners:
            listener.lose(make_error)

    async def _hear_from(self, from_seq: int | None) -> int:
        """Have the daemon send the events from that one on; returns the seq of the last that there is."""
        self._client.connection.listen(self.id, self)
        params: JsonObject = {"sessionId": self.id}
        if from_seq is not None:
            # The daemon sends one stream, for all who listen here; it must not skip the next event of any.
            params["from"] = min([from_seq, *(listener.next_seq or 0 for listener in self._listeners)])
            for listener in self._listeners:
                if isinstance(listener, AsyncPrompt):
                    listener.end_by_log()
        answer = await self._client.request(wire.SESSION_ATTACH, params)
        self._is_detached = False
        return int(answer["lastSeq"])

    async def _can_hear_again(self) -> bool:
        try:
            await self._hear_from(0)
        except RpcError:  # no log is kept, or this daemon knows no such method
            return False
        return True

    async def _bind(self, handle: AsyncPrompt, message_id: str, *, may_be_old: bool) -> None:
        try:
            if may_be_old and not handle.has_heard_of(message_id) and await self._can_hear_again():
                handle.replay(message_id)
            else:
                handle.bind(message_id)
        except (LookupError, TypeError, AttributeError) as error:
            self._client.connection.distrust(f"({error!r}): an event lacks a field")  # ends the handle too

    def _abandon_sent(self, sending: asyncio.Future[AsyncPrompt]) -> None:
        if not sending.cancelled() and sending.exception() is None:
            self._abandon(sending.result())

    def _abandon(self, prompt: AsyncPrompt) -> None:
        self._forget(prompt)
        if prompt.running and not prompt.ended:
            self._client.connection.request_soon(wire.SESSION_CANCEL, {"sessionId": self.id, "queue": "keep"})

    def _forget(self, listener: AsyncPrompt | AsyncAttachment) -> None:
        # A new list: `hear` and `lose` may be walking through the old one.
        self._listeners = [other for other in self._listeners if other is not listener]


def _blocks(prompt: str | Sequence[JsonObject]) -> list[JsonObject]:
    return [{"type": "text", "text": prompt}] if isinstance(prompt, str) else list(prompt)

"""One prompt and what becomes of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from itertools import dropwhile

from cordisd import wire
from cordisd.events import Failure, JsonObject, Usage
from cordisd.shapes import LimitReached
from cordisd_sdk.connect import Notification
from cordisd_sdk.errors import SdkError

TOKEN_COUNTS = ("inputTokens", "outputTokens", "cacheReadTokens", "reasoningTokens")


@dataclass(frozen=True, slots=True)
class RunResult:
    """The outcome of one prompt."""

    session_id: str
    message_id: str
    final_response: str
    """Text of the turn's last assistant message; empty when there was none."""
    finish_reason: str | None
    """The published kind: completed, max-tokens, error, aborted, blocked. None: the prompt had no turn."""
    stop_reason: str | None
    """Our finer word for it, see `cordisd.shapes.StopReason`. None from daemons that do not tell."""
    turn: int | None
    """Number of its turn in the session, from 1. None when it was taken off the queue before."""
    usage: Usage
    """Tokens of all model requests of the turn, failed attempts included; unreported counts are absent."""
    error: Failure | None
    """Why the turn failed, with the provider's text."""
    events: list[JsonObject] = field(repr=False)
    """The session's events from the prompt's acceptance on, without those of other turns."""
    notifications: list[Notification] = field(repr=False)
    """The same with everything of the sessions delegated to, statuses and the completion."""
    limit: LimitReached | None = None
    """The limit that ended the run, if one did."""


class AsyncPrompt:
    """A prompt that the daemon has accepted. Iterating gives the events of its turn as they arrive.

    It may be iterated more than once and by several tasks; each sees every event. Ceasing to wait for it
    changes nothing in the daemon.
    """

    def __init__(self, session_id: str, *, announced: bool, on_end: Callable[[AsyncPrompt], None]) -> None:
        self.session_id = session_id
        self.message_id = ""
        self.events: list[JsonObject] = []
        self.notifications: list[Notification] = []
        self.turn: int | None = None
        self.running = False
        """True from the start of its turn on."""
        self.next_seq: int | None = None
        """Seq of the event that comes next; None: whichever."""
        self._announced = announced
        self._ends_by_log = False
        self._on_end = on_end
        self._early: list[Notification] | None = []
        self._target = ""
        self._place = -1
        self._held: list[Notification] = []
        self._turn_end: JsonObject | None = None
        self._completed: JsonObject | None = None
        self._error: Callable[[], SdkError] | None = None
        self._news = asyncio.Event()
        self._ended = asyncio.Event()

    @property
    def ended(self) -> bool:
        """True when nothing more will come."""
        return self._ended.is_set()

    async def result(self) -> RunResult:
        """The outcome, once there is one. A failed turn is an outcome, not an exception.

        Raises:
            ConnectionClosedError, ProtocolError: the connection was lost first.
            SdkError: the session was closed first, or the daemon left the prompt in its queue.
        """
        await self._ended.wait()
        if self._error is not None:
            raise self._error()
        end = self._completed or self._turn_end or {}
        reason = end.get("reason") or {}
        return RunResult(
            session_id=self.session_id,
            message_id=self.message_id,
            final_response=_final_response(self.events),
            finish_reason=reason.get("kind"),
            stop_reason=end.get("stopReason"),
            turn=self.turn,
            usage=_usage(self.events),
            error=reason.get("error"),
            events=self.events,
            notifications=self.notifications,
            limit=end.get("limit"),
        )

    async def more(self, n_seen: int) -> list[JsonObject]:
        """The events after the first `n_seen`, at least one; empty when the prompt has ended.

        Raises:
            SdkError: as `result`, after the last event.
        """
        while len(self.events) <= n_seen and not self.ended:
            self._news.clear()
            await self._news.wait()
        batch = self.events[n_seen:]
        if not batch and self._error is not None:
            raise self._error()
        return batch

    async def __aiter__(self) -> AsyncIterator[JsonObject]:
        n_seen = 0
        while batch := await self.more(n_seen):
            n_seen += len(batch)
            for event in batch:
                yield event

    def bind(self, message_id: str) -> None:
        """Say which message this is; what was heard before the daemon's answer is sorted now."""
        self.message_id = message_id
        early, self._early = self._early or [], None
        for notification in early:
            self.hear(notification)

    def has_heard_of(self, message_id: str) -> bool:
        """Whether that message was put into the queue since this waits for the daemon's answer."""
        return any(
            message.get("id") == message_id
            for method, params in self._early or ()
            if method == wire.SESSION_EVENT and params["event"]["type"] == "agent/inbox/spliced"
            for message in params["event"]["data"]["inserted"]
        )

    def replay(self, message_id: str) -> None:
        """As `bind`, for a prompt of long ago: the session's events have been asked for again, from 0 on."""
        # Whatever came before the first one was sent before.
        self._early = list(dropwhile(lambda notification: _seq(notification) != 0, self._early or ()))
        self.next_seq = 0
        self.end_by_log()
        self.bind(message_id)

    def end_by_log(self) -> None:
        """From now on events may come again, and what is no event may be missed: end when the turn does."""
        self._ends_by_log = True
        if self._turn_end is not None and not self.ended:
            self._end()

    def hear(self, notification: Notification) -> None:
        """Take one notification of the session or of one that it delegates to."""
        if self._early is not None:
            self._early.append(notification)
        elif self.ended or self._has_heard(_seq(notification), notification.params):
            return
        elif self.running:
            self._collect(notification)
        else:
            self._wait_in_queue(notification)

    def lose(self, make_error: Callable[[], SdkError]) -> None:
        """End without an outcome."""
        if not self.ended:
            self._error = make_error
            self._end()

    def _has_heard(self, seq: int | None, params: JsonObject) -> bool:
        """Whether this is an event of the session that has come before; else it counts as heard."""
        if seq is None or params["sessionId"] != self.session_id:
            return False
        if self._ends_by_log and self.next_seq is not None and seq < self.next_seq:
            return True
        self.next_seq = seq + 1
        return False

    def _collect(self, notification: Notification) -> None:
        method, params = notification
        if method == wire.SESSION_EVENT and params["sessionId"] == self.session_id:
            event = params["event"]
            kind = event["type"]
            if kind == "turn/start" and self._turn_end is not None:
                self._end()  # the next prompt's turn, from a daemon that announces no completion
                return
            if kind == "turn/end" and event["data"]["turn"] == self.turn:
                self._turn_end = event["data"]
            self.events.append(event)
            self._news.set()
        self.notifications.append(notification)
        if self._ends_by_log and self._turn_end is not None:
            self._end()
        elif method == wire.SESSION_COMPLETED:
            self._complete(params)
        elif method == wire.SESSION_STATUS and self._turn_end is not None and not self._announced:
            self._end_at_idle(params)

    def _wait_in_queue(self, notification: Notification) -> None:
        # A turn says which prompt it took only by the place in the queue, so the place is followed.
        method, params = notification
        if params.get("sessionId") != self.session_id:
            return
        if method == wire.SESSION_COMPLETED:
            self._complete(params)
        elif method == wire.SESSION_STATUS:
            self._held = [notification]
            if self._place >= 0 and not self._announced:
                self._end_at_idle(params)
        elif method == wire.SESSION_EVENT:
            event = params["event"]
            if event["type"] == "turn/start":
                self._held.append(notification)
            elif event["type"] == "agent/inbox/spliced":
                self._follow(event["data"], notification)

    def _follow(self, splice: JsonObject, notification: Notification) -> None:
        start, inserted, n_removed = splice["start"], splice["inserted"], splice.get("removedCount", 0)
        is_our_list = splice["target"] == self._target
        if is_our_list and start <= self._place < start + n_removed:
            self._leave_queue(splice, notification)
            return
        if n_removed:
            self._held.clear()  # that turn took another prompt
        if is_our_list and self._place >= start:
            self._place += len(inserted) - n_removed
        for offset, message in enumerate(inserted):
            if message.get("id") == self.message_id:
                self._target, self._place = splice["target"], start + offset
                self._keep(notification)

    def _leave_queue(self, splice: JsonObject, notification: Notification) -> None:
        if splice.get("outcome") == "canceled":
            self._keep(notification)
            self._completed = {"reason": {"kind": "aborted"}, "stopReason": "cancelled"}
            self._end()
            return
        self.running = True
        for held in (*self._held, notification):
            self._keep(held)
            if held.method == wire.SESSION_EVENT and held.params["event"]["type"] == "turn/start":
                self.turn = held.params["event"]["data"]["turn"]

    def _keep(self, notification: Notification) -> None:
        self.notifications.append(notification)
        if notification.method == wire.SESSION_EVENT:
            self.events.append(notification.params["event"])
            self._news.set()

    def _complete(self, params: JsonObject) -> None:
        if params["messageId"] == self.message_id:
            self._completed = params
            self.turn = params.get("turn", self.turn)
            self._end()

    def _end_at_idle(self, params: JsonObject) -> None:
        if params["sessionId"] != self.session_id or params["status"] != "idle":
            return
        if self.running:
            self._end()
        else:
            self.lose(
                lambda: SdkError(
                    f"the daemon went idle and left prompt {self.message_id} in the queue of session "
                    f"{self.session_id!r}; its next prompt will run it first"
                )
            )

    def _end(self) -> None:
        self._ended.set()
        self._news.set()
        self._on_end(self)


def _seq(notification: Notification) -> int | None:
    method, params = notification
    return params["event"].get("seq") if method == wire.SESSION_EVENT else None


def _final_response(events: list[JsonObject]) -> str:
    for event in reversed(events):
        if event["type"] == "assistant/message":
            data = event["data"]
            content = data.get("message", data).get("content", [])
            return "".join(block.get("text", "") for block in content if block.get("type") == "text")
    return ""


def _usage(events: list[JsonObject]) -> Usage:
    chunks = (event["data"]["chunk"] for event in events if event["type"] == "assistant/chunk")
    reports = [chunk["usage"] for chunk in chunks if chunk["type"] == "usage"] or [
        event["data"]["usage"]
        for event in events
        if event["type"] == "assistant/message" and "usage" in event["data"]
    ]
    total = Usage()
    for report in reports:
        for name in TOKEN_COUNTS:
            if name in report:
                total[name] = total.get(name, 0) + report[name]  # type: ignore[literal-required]
    return total

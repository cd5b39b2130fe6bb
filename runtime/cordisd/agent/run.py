"""Drives a session: takes prompts from its inbox, runs a turn for each, ends what is cancelled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from cordisd.agent import inbox
from cordisd.agent.budget import Budget, Limits, PriceOf, cost, tightest
from cordisd.agent.outcome import Ending, aborted, failed, stopped
from cordisd.agent.settings import LoopSettings
from cordisd.agent.turn import run_turn, take_messages
from cordisd.errors import CordisError, LogWriteError, SessionError
from cordisd.events import JsonObject
from cordisd.services.traffic import TurnStart
from cordisd.session.session import Session, new_message

logger = logging.getLogger(__name__)


class Cancelled(NamedTuple):
    """What a cancel did. `turn` is the one it ended, None when none was running."""

    turn: int | None
    dropped: list[str]


@dataclass(slots=True)
class Runner:
    """Runs one session's turns, one at a time, as long as its inbox holds prompts."""

    session: Session
    settings: LoopSettings = field(default_factory=LoopSettings)
    limits: Limits = field(default_factory=dict)
    """Those of each run and of the session; a prompt may bring tighter ones of its own."""
    price_of: PriceOf = lambda provider, model: None
    on_idle: Callable[[], None] = lambda: None
    """Called when the session has become idle."""
    _driver: asyncio.Task[None] | None = None
    _turn: asyncio.Task[Ending] | None = None
    _abort: Ending | None = None
    """With which the running turn is to end early."""
    _started: bool = False
    """Whether the running turn has begun on its first step: only then can its task be cancelled."""
    _closed: bool = False

    def prompt(
        self, content: list[JsonObject], idempotency_key: str | None = None, limits: Limits | None = None
    ) -> str:
        """Queue a prompt and start its turn if the session is idle; returns the message id.

        `limits` hold for its run, besides those of the session. A key that was used before returns that
        prompt's id and queues nothing; if its turn has ended, the outcome is announced again.

        Raises:
            SessionError: the session is closed, or its log cannot be written.
        """
        self._check_open()
        assert not self.session.is_evicted
        memory = self.session.memory
        if idempotency_key is not None and idempotency_key in memory.prompt_ids:
            first_id = memory.prompt_ids[idempotency_key]
            if first_id in memory.outcomes:
                self._announce(first_id, memory.outcomes[first_id])
            return first_id
        source: JsonObject = {"kind": "user"}
        if idempotency_key is not None:
            source["idempotencyKey"] = idempotency_key
        if limits:
            source["limits"] = limits
        message = new_message(content, source)
        inbox.insert(self.session, "next-turn", message)
        message_id: str = message["id"]
        if idempotency_key is not None:
            memory.prompt_ids[idempotency_key] = message_id
        if self._driver is None:
            self._wake()
        return message_id

    def steer(self, message: JsonObject) -> None:
        """Queue a message for the next step; on an idle session the next prompt takes it along.

        Raises:
            SessionError: the session is closed, or its log cannot be written.
        """
        self._check_open()
        inbox.insert(self.session, "next-step", message)

    def cancel(self, *, keep_queue: bool, reason: str = "user") -> Cancelled:
        """Empty the inbox (unless `keep_queue`) and end the running turn; the first cause wins.

        The clients are told of each prompt that is dropped, as of one whose turn was cancelled.
        """
        waiting = [] if keep_queue else [m["id"] for m in self.session.memory.inbox["next-turn"]]
        dropped = [] if keep_queue else inbox.drop(self.session)
        for message_id in waiting:
            self._announce(message_id, aborted(reason).data(None))
        running = self._turn is not None and not self._turn.done()
        self._end_early(aborted(reason))
        return Cancelled(self.session.memory.turn if running else None, dropped)

    def cost(self) -> float | None:
        """What the session has cost so far; None where the tokens or their prices are not known."""
        config, spent = self.session.config, self.session.memory.spent
        if spent.unmetered or self.price_of(config.provider, config.model) is None:
            return None
        return cost(spent.usage, self.price_of)

    async def ended(self, timeout_s: float) -> None:
        """Wait for the running turn and for what its tools still clean up, at most `timeout_s`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                if self._turn is not None:
                    await asyncio.wait([self._turn])
                await self.session.settle(timeout_s)

    def fail(self, error: LogWriteError) -> None:
        """End the running turn because the log cannot be written any more."""
        logger.error("session %s ends: %s", self.session.id, error)
        if self._turn is not None and not self._turn.done():
            self._abort = None  # whatever else was to end it: this is what its client has to know
        self._end_early(failed(error))

    async def stop(self, reason: str) -> None:
        """End the running turn, drop the inbox and take no more prompts; returns when the driver is done."""
        self._closed = True
        self.cancel(keep_queue=False, reason=reason)
        if self._driver is not None:
            await asyncio.wait([self._driver])

    def _end_early(self, ending: Ending) -> None:
        """End the running turn, if there is one, with the first cause that comes."""
        if self._turn is None or self._turn.done() or self._abort is not None:
            return
        self._abort = ending
        if self._started:
            self._turn.cancel()

    def _check_open(self) -> None:
        if self.session.log.failure is not None:
            raise LogWriteError(f"session has ended: {self.session.log.failure}")
        if self._closed:
            raise SessionError(f'session "{self.session.id}" is closed')

    def _wake(self) -> None:
        """Open the next turn now, so that its first events precede the answer to the prompt."""
        self.session.set_status("running")
        self._open_turn()
        self._driver = asyncio.get_running_loop().create_task(self._drive())

    def _open_turn(self) -> None:
        memory = self.session.memory
        memory.spent.take(self.session.log.append("turn/start", {"turn": memory.turn + 1}))
        claimed = inbox.claim(self.session, first_step=True)
        memory.take(claimed)
        self._abort, self._started = None, False
        self._turn = asyncio.get_running_loop().create_task(self._run_turn(memory.turn, claimed))

    async def _drive(self) -> None:
        session = self.session
        try:
            while True:
                await self._end_turn(await self._outcome())
                if session.log.failure is not None:
                    self._refuse_queue(session.log.failure)
                if self._closed or not session.memory.inbox["next-turn"]:
                    break
                self._open_turn()
        finally:
            self._driver = None
            session.set_status("idle")
            self.on_idle()

    def _refuse_queue(self, failure: LogWriteError) -> None:
        """Tell each prompt that waits that it will never run."""
        session = self.session
        for message in session.memory.inbox["next-turn"]:
            self._announce(message["id"], failed(failure).data(None))
        session.memory.inbox["next-turn"].clear()

    async def _outcome(self) -> Ending:
        """How the running turn ended."""
        assert self._turn is not None
        await asyncio.wait([self._turn])
        if not self._turn.cancelled():
            return self._turn.result()
        return self._abort or aborted("disposed")

    async def _run_turn(self, turn: int, claimed: list[JsonObject]) -> Ending:
        self._started = True
        try:
            budget = self._budget(claimed)
            stop = budget.stop() if budget is not None else None
            early = self._abort or (stopped(stop) if stop is not None else None)
            if early is not None:  # before its first step: what was said stays said
                take_messages(self.session, turn, claimed)
                self._begin(turn, claimed)
                return early
            self._begin(turn, claimed)
            with self._timed(budget):
                return await run_turn(self.session, turn, claimed, self.settings, budget)
        except CordisError as error:
            return failed(error)
        except Exception as error:
            logger.exception("session %s: turn %d failed", self.session.id, turn)
            return failed(error)

    def _budget(self, claimed: list[JsonObject]) -> Budget | None:
        """The budget of the run that begins with the messages `claimed`; None: nothing limits it."""
        limits = tightest(self.limits, _limits_of(claimed))
        return Budget(limits, self.session.memory.spent, self.price_of) if limits else None

    @contextmanager
    def _timed(self, budget: Budget | None) -> Iterator[None]:
        """End the turn when its time is over."""
        left = budget.time_left() if budget is not None else None
        if budget is None or left is None:
            yield
            return
        seconds, limit = left
        loop = asyncio.get_running_loop()
        timer = loop.call_later(seconds, lambda: self._end_early(stopped(budget.out_of_time(limit))))
        try:
            yield
        finally:
            timer.cancel()

    def _begin(self, turn: int, claimed: list[JsonObject]) -> None:
        """Tell the taps of the turn and its prompt."""
        session = self.session
        if not session.traffic.taps:
            return
        config = session.config
        agent = {
            "preset": session.header.agent_preset,
            "provider": config.provider,
            "model": config.model,
            "maxTokens": config.chosen_max_tokens,
            "reasoningEffort": config.chosen_effort,
            "limits": session.header.cordisd.get("limits"),
        }
        prompts = [message["content"] for message in claimed if message["source"].get("kind") == "user"]
        content = [block for prompt in prompts for block in prompt]
        start = TurnStart(session.id, turn, session.realm.cwd, agent, content, _limits_of(claimed))
        for tap in session.traffic.taps:
            tap.begin_turn(start)

    async def _end_turn(self, ending: Ending) -> None:
        """Log the end, make it durable, then tell the clients which prompt it was."""
        session, memory = self.session, self.session.memory
        data = self._tell_end(memory.turn, ending).data(memory.turn)
        failed_before = session.log.failure is not None
        memory.spent.take(session.log.append("turn/end", data))
        await session.log.sync()
        failure = session.log.failure
        if failure is not None and not failed_before:  # this very end did not reach the disk
            data = failed(failure).data(memory.turn)
            session.log.append("turn/end", data)
        memory.note_outcome(data)
        self._announce(memory.prompt_id, data)

    def _tell_end(self, turn: int, ending: Ending) -> Ending:
        """How the turn ends once the taps know of it: they can fail it."""
        for tap in self.session.traffic.taps:
            try:
                tap.end_turn(self.session.id, turn, ending.stop_reason)
            except CordisError as error:
                if ending.is_failure:
                    logger.error("session %s: turn %d: %s", self.session.id, turn, error)
                else:
                    ending = failed(error)
        return ending

    def _announce(self, message_id: str | None, data: JsonObject) -> None:
        """Tell the clients the outcome of a prompt."""
        session_id = self.session.id
        self.session.log.announce(
            "session.completed", {"sessionId": session_id, "messageId": message_id, **data}
        )


def _limits_of(claimed: list[JsonObject]) -> Limits:
    """The limits that came with the prompt among the messages of a turn."""
    return tightest(*(message["source"].get("limits", {}) for message in claimed))

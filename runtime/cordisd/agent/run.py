"""Drives a session: takes prompts from its inbox, runs a turn for each, ends what is cancelled."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from cordisd.agent import inbox
from cordisd.agent.request import ModelError
from cordisd.agent.settings import LoopSettings
from cordisd.agent.turn import run_turn, take_messages
from cordisd.errors import (
    CordisError,
    LogWriteError,
    ProfileHashMismatchError,
    ProfileOverrideError,
    ReplayMismatchError,
    SessionError,
    UnsupportedContentError,
)
from cordisd.events import Failure, JsonObject
from cordisd.services.traffic import TurnStart
from cordisd.session.session import Session, new_message

logger = logging.getLogger(__name__)

STOP_REASONS: Final = {
    "completed": "completed",
    "max-tokens": "max_tokens",
    "error": "error",
    "aborted": "cancelled",
}
"""Our stop reason for each published kind of `turn/end` reason."""


class Cancelled(NamedTuple):
    """What a cancel did. `turn` is the one it ended, None when none was running."""

    turn: int | None
    dropped: list[str]


@dataclass(slots=True)
class Runner:
    """Runs one session's turns, one at a time, as long as its inbox holds prompts."""

    session: Session
    settings: LoopSettings = field(default_factory=LoopSettings)
    _driver: asyncio.Task[None] | None = None
    _turn: asyncio.Task[JsonObject] | None = None
    _abort: JsonObject | None = None
    """The reason with which the running turn is to end early."""
    _started: bool = False
    """Whether the running turn has begun on its first step: only then can its task be cancelled."""
    _closed: bool = False

    def prompt(self, content: list[JsonObject], idempotency_key: str | None = None) -> str:
        """Queue a prompt and start its turn if the session is idle; returns the message id.

        A key that was used before returns that prompt's id and queues nothing; if its turn has ended, the
        outcome is announced again.

        Raises:
            SessionError: the session is closed, or its log cannot be written.
        """
        self._check_open()
        memory = self.session.memory
        if idempotency_key is not None and idempotency_key in memory.prompt_ids:
            first_id = memory.prompt_ids[idempotency_key]
            if first_id in memory.outcomes:
                self._announce(first_id, memory.outcomes[first_id])
            return first_id
        source: JsonObject = {"kind": "user"}
        if idempotency_key is not None:
            source["idempotencyKey"] = idempotency_key
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
        """Empty the inbox (unless `keep_queue`) and end the running turn; the first cause wins."""
        dropped = [] if keep_queue else inbox.drop(self.session)
        running = self._turn is not None and not self._turn.done()
        if running and self._abort is None:
            self._end_early({"kind": "aborted", "reason": {"kind": reason}})
        return Cancelled(self.session.memory.turn if running else None, dropped)

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
            self._end_early(_failed(error))

    async def stop(self, reason: str) -> None:
        """End the running turn, drop the inbox and take no more prompts; returns when the driver is done."""
        self._closed = True
        self.cancel(keep_queue=False, reason=reason)
        if self._driver is not None:
            await asyncio.wait([self._driver])

    def _end_early(self, reason: JsonObject) -> None:
        self._abort = reason
        if self._started and self._turn is not None:
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
        memory.turn += 1
        self.session.log.append("turn/start", {"turn": memory.turn})
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

    def _refuse_queue(self, failure: LogWriteError) -> None:
        """Tell each prompt that waits that it will never run."""
        session = self.session
        for message in session.memory.inbox["next-turn"]:
            self._announce(message["id"], {"turn": None, "reason": _failed(failure), "stopReason": "error"})
        session.memory.inbox["next-turn"].clear()

    async def _outcome(self) -> JsonObject:
        """The reason with which the running turn ended."""
        assert self._turn is not None
        await asyncio.wait([self._turn])
        if not self._turn.cancelled():
            return self._turn.result()
        return self._abort or {"kind": "aborted", "reason": {"kind": "disposed"}}

    async def _run_turn(self, turn: int, claimed: list[JsonObject]) -> JsonObject:
        self._started = True
        try:
            if self._abort is not None:  # cancelled before its first step: what was said stays said
                take_messages(self.session, turn, claimed)
                self._begin(turn, claimed)
                return self._abort
            self._begin(turn, claimed)
            return {"kind": await run_turn(self.session, turn, claimed, self.settings)}
        except ModelError as error:
            return {"kind": "error", "error": error.failure}
        except CordisError as error:
            return _failed(error)
        except Exception as error:
            logger.exception("session %s: turn %d failed", self.session.id, turn)
            return _failed(error)

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
        }
        prompts = [message["content"] for message in claimed if message["source"].get("kind") == "user"]
        content = [block for prompt in prompts for block in prompt]
        start = TurnStart(session.id, turn, session.realm.cwd, agent, content)
        for tap in session.traffic.taps:
            tap.begin_turn(start)

    async def _end_turn(self, reason: JsonObject) -> None:
        """Log the end, make it durable, then tell the clients which prompt it was."""
        session, turn = self.session, self.session.memory.turn
        reason = self._tell_end(turn, reason)
        data = {"turn": turn, "reason": reason, "stopReason": STOP_REASONS[reason["kind"]]}
        failed_before = session.log.failure is not None
        session.log.append("turn/end", data)
        await session.log.sync()
        failure = session.log.failure
        if failure is not None and not failed_before:  # this very end did not reach the disk
            data = {"turn": turn, "reason": _failed(failure), "stopReason": "error"}
            session.log.append("turn/end", data)
        session.memory.note_outcome(data)
        self._announce(session.memory.prompt_id, data)

    def _tell_end(self, turn: int, reason: JsonObject) -> JsonObject:
        """The reason with which the turn ends once the taps know of it: they can fail it."""
        for tap in self.session.traffic.taps:
            try:
                tap.end_turn(self.session.id, turn, STOP_REASONS[reason["kind"]])
            except CordisError as error:
                if reason["kind"] in ("error", "aborted"):
                    logger.error("session %s: turn %d: %s", self.session.id, turn, error)
                else:
                    reason = _failed(error)
        return reason

    def _announce(self, message_id: str | None, data: JsonObject) -> None:
        """Tell the clients the outcome of a prompt."""
        session_id = self.session.id
        self.session.log.announce(
            "session.completed", {"sessionId": session_id, "messageId": message_id, **data}
        )


def _failed(error: Exception) -> JsonObject:
    match error:
        case LogWriteError():
            code = "LOG_WRITE_FAILED"
        case UnsupportedContentError():
            code = "UNSUPPORTED_CONTENT"
        case ProfileHashMismatchError():
            code = "PROFILE_HASH_MISMATCH"
        case ReplayMismatchError():
            code = "REPLAY_MISMATCH"
        case ProfileOverrideError():
            code = "PROFILE_OVERRIDE_REFUSED"
        case _:
            code = "UNKNOWN"
    failure: Failure = {"message": str(error) or type(error).__name__, "code": code}
    return {"kind": "error", "error": failure}

"""A live session: what it is, what drives it, who may act on it."""

from __future__ import annotations

import logging
from asyncio import Task
from dataclasses import dataclass

from cordisd.agent.agent import Agent
from cordisd.agent.eviction import Eviction
from cordisd.agent.run import Runner
from cordisd.agent.settings import SessionSettings
from cordisd.session.session import Session, new_message

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Live:
    """A session in memory, with what drives it. `owner` is the connection that made or resumed it."""

    session: Session
    agent: Agent
    settings: SessionSettings
    runner: Runner
    eviction: Eviction
    owner: object
    closing: Task[None] | None = None
    """What closes it, once that has begun."""

    def move(self, cwd: str) -> None:
        """Record the new directory, move the shell, and leave a note for the model's next step.

        A frozen agent gets no note: its prompt, the same in every directory, holds none (FP-3, FP-10).
        """
        self.session.realm.move(cwd)
        self.session.log.append("working-directory/change", {"cwd": cwd}, ignorable=True)
        if self.agent.profile is not None:
            return
        note = f"The working directory of this session is now {cwd}"
        self.runner.steer(new_message([{"type": "text", "text": note}], {"kind": "working-directory"}))

    async def close(self, *, for_good: bool = False) -> None:
        """Let go of all that a stopped session owns; a failing part is logged and the rest goes on.

        `for_good`: the last that who listens is told is that it is closed.
        """
        self.eviction.close()
        try:
            await self.session.settle(timeout_s=0.2)
            for close in (self.session.scope.close, self.session.realm.close):
                try:
                    await close()
                except Exception:
                    logger.exception("closing session %s", self.session.id)
            for tap in self.session.traffic.taps:
                try:
                    leftover = tap.close_session(self.session.id)
                    if leftover is not None:
                        self.session.log.append("replay/leftover", leftover, ignorable=True)
                except Exception:
                    logger.exception("closing session %s", self.session.id)
        finally:
            if for_good:
                self.session.set_status("closed")
            self.session.log.close()

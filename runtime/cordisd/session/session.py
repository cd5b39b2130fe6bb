"""A session: one conversation with its log, its realm and what the agent has to remember of it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from cordisd.events import Event, JsonObject
from cordisd.kernel.scope import Scope
from cordisd.services.models import ModelAdapter, RequestConfig
from cordisd.services.traffic import Traffic
from cordisd.session.header import SessionHeader
from cordisd.session.history import History
from cordisd.session.log import SessionLog
from cordisd.session.realm import Realm
from cordisd.session.spent import Spent
from cordisd.session.title import TitleLimits, fallback_title

Status = Literal["idle", "running", "closed"]
InboxTarget = Literal["next-turn", "next-step"]


@dataclass(slots=True)
class Memory:
    """What a session carries from turn to turn, and what a resumed one gets back from its log."""

    spent: Spent = field(default_factory=Spent)
    titled: bool = False
    header: JsonObject | None = None
    """The last `request/header` logged."""
    parameters: JsonObject = field(default_factory=dict)
    """The parameters logged with it."""
    context: JsonObject | None = None
    """The last `request/context` logged."""
    runtime_context: str = ""
    """The runtime-context text that the model was last told."""
    inbox: dict[InboxTarget, list[JsonObject]] = field(
        default_factory=lambda: {"next-turn": [], "next-step": []}
    )
    """User messages waiting for their turn, or to join the next step."""
    prompt_ids: dict[str, str] = field(default_factory=dict)
    """Message id of each idempotency key that was used."""
    prompt_id: str | None = None
    """Message id of the prompt whose turn is the current one."""
    outcomes: dict[str, JsonObject] = field(default_factory=dict)
    """`turn/end` data of the prompts that came with a key, by message id."""
    outcome: JsonObject | None = None
    """What the client has made of the session: the data of its last `session/outcome`."""

    @property
    def turn(self) -> int:
        """Number of the last turn begun."""
        return self.spent.turns

    @property
    def usage(self) -> dict[str, int]:
        """Tokens spent by all model requests so far, by the names of `Usage`."""
        return self.spent.tokens()

    def take(self, claimed: list[JsonObject]) -> None:
        """Note the prompt among the messages that a turn has claimed."""
        prompts = [message["id"] for message in claimed if message["source"].get("kind") == "user"]
        self.prompt_id = prompts[-1] if prompts else None

    def forget(self, dropped: list[JsonObject]) -> None:
        """Let the keys of prompts that were taken off the queue be used again."""
        ids = {message["id"] for message in dropped}
        self.prompt_ids = {key: prompt for key, prompt in self.prompt_ids.items() if prompt not in ids}

    def note_outcome(self, data: JsonObject) -> None:
        """Keep the end of a turn whose prompt came with a key; an interrupted one may be sent again."""
        key = next((key for key, prompt in self.prompt_ids.items() if prompt == self.prompt_id), None)
        if key is None or self.prompt_id is None:
            return
        if data["reason"]["kind"] == "interrupted":
            del self.prompt_ids[key]
        else:
            self.outcomes[self.prompt_id] = data


@dataclass(slots=True, eq=False)
class Session:
    """One conversation. `config` and `adapter` are fixed when it is made."""

    header: SessionHeader
    log: SessionLog
    realm: Realm
    scope: Scope
    config: RequestConfig
    adapter: ModelAdapter
    history: History
    memory: Memory = field(default_factory=Memory)
    traffic: Traffic = field(default_factory=Traffic)
    """Who records or plays what goes between it, its model and its tools."""
    status: Status = "idle"
    restored: bool = False
    is_evicted: bool = False
    """Whether history and memory are given up, but for the inbox and what was spent; no turn can begin."""
    title_limits: TitleLimits = field(default_factory=TitleLimits)
    _stragglers: set[asyncio.Task[Any]] = field(default_factory=set)

    @property
    def id(self) -> str:
        return self.header.id

    def add(self, type: str, data: JsonObject, *, sources: Sequence[int] | None = None) -> Event:
        """Append a surface event (`surfaceOp: append`) and make it part of the history."""
        event = self.log.append(type, data, sources=sources, surface_op="append")
        self.memory.spent.take(event)
        self.history.add(event)
        return event

    def add_user_message(self, message: JsonObject) -> None:
        """Put a claimed inbox message before the model; the first prompt also names the session."""
        event = self.add("user/message", message)
        if self.memory.titled or message["source"].get("kind") != "user":
            return
        title = fallback_title(message["content"], self.title_limits)
        if title:
            self.memory.titled = True
            self.log.append(
                "session/title", {"title": title, "messageSeqs": [event.seq], "source": {"kind": "fallback"}}
            )

    def evict(self) -> None:
        """Give up what the log can tell again."""
        self.memory = Memory(spent=self.memory.spent, inbox=self.memory.inbox, outcome=self.memory.outcome)
        self.history = History(self.adapter.encode_message)
        self.is_evicted = True

    def remember(self, memory: Memory, history: History) -> None:
        """Take back what the log tells; the inbox and what was spent were here all the time."""
        memory.spent, memory.inbox = self.memory.spent, self.memory.inbox
        self.memory, self.history = memory, history
        self.is_evicted = False

    def set_status(self, status: Status) -> None:
        """Change the status and tell the subscribers."""
        self.status = status
        self.log.announce("session.status", {"sessionId": self.id, "status": status})

    def linger(self, task: asyncio.Task[Any]) -> None:
        """Own a cancelled task that still cleans up; `settle` awaits it."""
        self._stragglers.add(task)
        task.add_done_callback(self._forget)

    async def settle(self, timeout_s: float) -> None:
        """Wait for the tasks that still clean up, at most `timeout_s`."""
        if self._stragglers:
            await asyncio.wait(list(self._stragglers), timeout=timeout_s)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._stragglers.discard(task)
        if not task.cancelled():
            task.exception()  # the call's outcome was logged when it was given up


def new_message(content: list[JsonObject], source: JsonObject) -> JsonObject:
    """A user message with a fresh id, keys in the order of the published logs."""
    return {"content": content, "source": source, "role": "user", "id": str(uuid.uuid4())}

"""Mends a log whose writer was stopped: its damaged end is set aside, and what is open is closed.

Sound lines are never changed (`protocol.md` 4.5).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from cordisd.errors import CordisError, LogCorruptError, LogError
from cordisd.events import Event, JsonObject
from cordisd.session.disk import DiskCalls
from cordisd.session.history import History
from cordisd.session.names import CUT_SUFFIX, TEMPORARY_SUFFIX
from cordisd.session.restore import apply_splice, restore
from cordisd.session.session import Memory

COPIED_BYTES: Final = 1 << 20
"""What is held in memory of a tail that is set aside."""
OUTCOME_UNKNOWN: Final = "TOOL_OUTCOME_UNKNOWN"
NOT_STARTED: Final = "TOOL_NOT_STARTED"

_outcome_unknown = (
    "ToolOutcomeUnknownError",
    OUTCOME_UNKNOWN,
    "Error: the runtime stopped while this call was running, so its outcome is unknown. It may have taken "
    "effect in whole, in part, or not at all; check before repeating it.",
)
_not_started = (
    "ToolNotStartedError",
    NOT_STARTED,
    "Error: the runtime stopped before this call was started. It was not run.",
)


class Ending(NamedTuple):
    """What a log leaves behind: what its session remembers, and the events that close what is open."""

    memory: Memory
    closers: list[Event]


@dataclass(slots=True)
class _Open:
    """What is open at one point of a log."""

    last: Event | None = None
    turn: int | None = None
    step: int | None = None
    n_steps: int = 0
    """Steps of the turn that were begun."""
    calls: list[tuple[str, int | None]] = field(default_factory=list)
    """Unanswered ones in model order, each with the seq of its `tool/call`."""
    inbox: dict[str, list[JsonObject]] = field(default_factory=lambda: {"next-turn": [], "next-step": []})
    claimed: list[JsonObject] = field(default_factory=list)
    """Messages that were taken out of the inbox and have not come before the model."""

    def see(self, event: Event) -> None:
        self.last = event
        data = event.data
        match event.type:
            case "turn/start":
                self.turn, self.step, self.n_steps = data.get("turn"), None, 0
                self.calls, self.claimed = [], []
            case "turn/end":
                self.turn, self.step, self.calls, self.claimed = None, None, [], []
            case "step/start":
                self.step, self.calls = data.get("step"), []
                self.n_steps += 1
            case "step/end":
                self.step, self.calls = None, []
            case "agent/inbox/spliced":
                removed = apply_splice(self.inbox[data["target"]], data)
                self.claimed += [] if "outcome" in data else removed
            case "user/message":
                self.claimed = [message for message in self.claimed if message["id"] != data.get("id")]
            case "assistant/message":
                self.calls = [
                    (block.get("id", ""), None)
                    for block in data["message"]["content"]
                    if block.get("type") == "tool-call"
                ]
            case "tool/call":
                self._replace(data.get("callId"), (data.get("callId", ""), event.seq))
            case "tool/result":
                self._replace(data["message"]["source"].get("callId"), None)

    def closers(self) -> list[Event]:
        if self.turn is None or self.last is None:
            return []
        first, time, step = self.last.seq + 1, self.last.time, self.step
        added: list[Event] = []

        def add(type: str, data: JsonObject, **more: Any) -> None:
            added.append(Event(type, first + len(added), time, data, **more))

        for call_id, call_seq in self.calls:
            data = _interrupted_result(self, call_id, call_seq, first + len(added))
            add("tool/result", data, sources=None if call_seq is None else [call_seq], surface_op="append")
        if self.claimed and step is None:
            step = self.n_steps + 1
            add("step/start", {"turn": self.turn, "step": step})
        for message in self.claimed:  # it was acknowledged: what was said stays said
            add("user/message", message, surface_op="append")
        if step is not None:
            add("step/end", {"turn": self.turn, "step": step})
        add("turn/end", {"turn": self.turn, "reason": {"kind": "interrupted"}})
        return added

    def _replace(self, call_id: str | None, new: tuple[str, int | None] | None) -> None:
        """Give the first such call its event, or drop it once answered. Ids may repeat in foreign logs."""
        for at, (known, seq) in enumerate(self.calls):
            if known == call_id and (new is None or seq is None):
                self.calls[at : at + 1] = [] if new is None else [new]
                return


def closers(events: Sequence[Event]) -> list[Event]:
    """The events that close what is open at the end of `events`; none when the last turn has ended.

    They carry the time of the last event: nothing is known to have happened later. Messages that the turn had
    taken out of the inbox, and not yet put before the model, are part of the history then as they would have
    been a moment later: no acknowledged prompt is lost.
    """
    still = _Open()
    for event in events:
        still.see(event)
    return still.closers()


def ending_of(events: Iterable[Event], path: Path) -> Ending:
    """How the log at `path` ends that holds `events`.

    Raises:
        LogCorruptError: the data of an event is not what its type has, so that no session can go on from it.
    """
    still = _Open()

    def seen() -> Iterator[Event]:
        for event in events:
            still.last = event  # whoever fails now fails on this one
            yield event
            still.see(event)

    try:
        memory = restore(seen(), History(lambda _: None))
        return Ending(memory, still.closers())
    except LogError:
        raise
    except (CordisError, AttributeError, KeyError, TypeError) as problem:
        assert still.last is not None
        which = f"event {still.last.seq} ({still.last.type})"
        raise LogCorruptError(f"corrupt session log: the data of {which} is malformed: {path}") from problem


def cut_tail(fd: int, path: Path, good_bytes: int, disk: DiskCalls) -> Path | None:
    """End the log after `good_bytes`. The bytes cut are kept in `session.jsonl.<good_bytes>.cut` beside it.

    Returns that file; None when there is nothing to cut.

    Raises:
        OSError: they could not be kept, and the log is as it was; or it could not be cut.
    """
    if os.fstat(fd).st_size <= good_bytes:
        return None
    kept = path.with_name(f"{path.name}.{good_bytes}{CUT_SUFFIX}")
    # Appending: an earlier repair at the same place may have kept something there.
    kept_fd = os.open(kept, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        at = good_bytes
        while piece := os.pread(fd, COPIED_BYTES, at):
            disk.write_all(kept_fd, piece)
            at += len(piece)
        disk.fsync(kept_fd)
    finally:
        os.close(kept_fd)
    disk.truncate(fd, good_bytes)
    return kept


def remove_temporary(path: Path) -> None:
    """Remove what a writer that was killed while it made the log left beside it."""
    for left in path.parent.glob(f"{path.name}.*{TEMPORARY_SUFFIX}"):
        left.unlink(missing_ok=True)


def _interrupted_result(still: _Open, call_id: str, call_seq: int | None, seq: int) -> JsonObject:
    name, code, text = _not_started if call_seq is None else _outcome_unknown
    block = {
        "type": "tool-result",
        "toolCallId": call_id,
        "content": [{"type": "text", "text": text}],
        "isError": True,
    }
    return {
        "turn": still.turn,
        "step": still.step,
        "message": {
            "id": f"interrupted-tool-result-{call_id}-{seq}",
            "role": "user",
            "source": {"kind": "tool", "callId": call_id},
            "content": [block],
        },
        "error": {"name": name, "code": code},
    }

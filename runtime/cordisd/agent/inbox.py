"""The inbox: user messages that wait for their turn, or for the next step. Every edit is an event."""

from __future__ import annotations

from cordisd.events import JsonObject
from cordisd.session.restore import apply_splice
from cordisd.session.session import InboxTarget, Session


def insert(session: Session, target: InboxTarget, message: JsonObject) -> None:
    """Queue `message` behind what already waits in `target`."""
    _splice(session, {"target": target, "start": len(_waiting(session, target)), "inserted": [message]})


def claim(session: Session, *, first_step: bool) -> list[JsonObject]:
    """Take what the coming step works on: all of next-step, and on a turn's first step one prompt."""
    claimed: list[JsonObject] = []
    if count := len(_waiting(session, "next-step")):
        claimed += _remove(session, "next-step", count)
    if first_step and _waiting(session, "next-turn"):
        claimed += _remove(session, "next-turn", 1)
    return claimed


def drop(session: Session) -> list[str]:
    """Cancel everything that waits, next-step first; returns the dropped message ids."""
    dropped: list[JsonObject] = []
    for target in ("next-step", "next-turn"):
        if count := len(_waiting(session, target)):
            dropped += _remove(session, target, count, outcome="canceled")
    session.memory.forget(dropped)
    return [message["id"] for message in dropped]


def _waiting(session: Session, target: InboxTarget) -> list[JsonObject]:
    return session.memory.inbox[target]


def _remove(session: Session, target: InboxTarget, count: int, **extra: str) -> list[JsonObject]:
    return _splice(session, {"target": target, "start": 0, "removedCount": count, "inserted": [], **extra})


def _splice(session: Session, data: JsonObject) -> list[JsonObject]:
    session.log.append("agent/inbox/spliced", data)
    return apply_splice(session.memory.inbox[data["target"]], data)

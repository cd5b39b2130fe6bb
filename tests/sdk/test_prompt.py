"""Which events belong to a prompt: a random queue, against a plain model of it."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cordisd_sdk import Notification, RunResult
from cordisd_sdk.run import AsyncPrompt

SESSION = "s"


def event(kind: str, **data: Any) -> Notification:
    record = {"type": kind, "seq": -1, "time": 0, "data": data}
    return Notification("session.event", {"sessionId": SESSION, "event": record})


def splice(start: int, inserted: list[str], removed: int = 0, **more: Any) -> Notification:
    messages = [{"id": name} for name in inserted]
    data = {"target": "next-turn", "start": start, "inserted": messages, **more}
    return event("agent/inbox/spliced", **data, **({"removedCount": removed} if removed else {}))


class Daemon:
    """A queue of prompts; what it tells is heard by every prompt's handle."""

    def __init__(self, *, announces: bool) -> None:
        self.announces = announces
        self.queue: list[str] = []
        self.handles: dict[str, AsyncPrompt] = {}
        self.turns: dict[str, int] = {}
        self.cancelled: set[str] = set()
        self.n_turns = 0
        self.log: list[Notification] = []
        self.deaf: set[AsyncPrompt] = set()

    def tell(self, *notifications: Notification) -> None:
        for notification in notifications:
            is_event = notification.method == "session.event"
            if is_event:
                notification.params["event"]["seq"] = len(self.log)
                self.log.append(notification)
            for handle in self.handles.values():
                if is_event or handle not in self.deaf:
                    handle.hear(notification)

    def repeat(self, from_seq: int) -> None:
        """Send events again, as far back as somebody wants; what is no event does not come any more."""
        waiting = [handle for handle in self.handles.values() if not handle.ended]
        for handle in waiting:
            handle.end_by_log()
        self.deaf.update(waiting)
        for notification in self.log[min([from_seq, *(handle.next_seq or 0 for handle in waiting)]) :]:
            for handle in waiting:
                handle.hear(notification)

    def accept(self, *, late_answer: bool, at_front: bool, others_first: bool) -> None:
        name = f"m{len(self.handles)}"
        handle = AsyncPrompt(SESSION, announced=self.announces, on_end=lambda _: None)
        self.handles[name] = handle
        if others_first:  # turns that begin while the request is on its way
            self.run()
        start = 0 if at_front else len(self.queue)
        self.queue.insert(start, name)
        if not late_answer:
            handle.bind(name)
        self.tell(splice(start, [name]))
        if late_answer:
            if others_first:
                self.run()
            handle.bind(name)

    def run(self) -> None:
        if not self.queue:
            return
        self.n_turns += 1
        name = self.queue.pop(0)
        self.turns[name] = self.n_turns
        reason = {"kind": "completed"}
        self.tell(event("turn/start", turn=self.n_turns), splice(0, [], removed=1))
        self.tell(event("turn/end", turn=self.n_turns, reason=reason))
        if self.announces:
            about = {"sessionId": SESSION, "messageId": name, "turn": self.n_turns, "reason": reason}
            self.tell(Notification("session.completed", {**about, "stopReason": "completed"}))

    def drop(self, n_kept: int) -> None:
        if len(self.queue) > n_kept:
            self.cancelled |= set(self.queue[n_kept:])
            n_dropped = len(self.queue) - n_kept
            del self.queue[n_kept:]
            self.tell(splice(n_kept, [], removed=n_dropped, outcome="canceled"))

    def act(self, kind: str, *details: Any) -> None:
        match kind, *details:
            case ("accept", late, front, others):
                self.accept(late_answer=late, at_front=front, others_first=others)
            case ("drop", n_kept):
                self.drop(n_kept)
            case ("repeat", from_seq):
                self.repeat(from_seq)
            case _:
                self.run()

    def finish(self) -> None:
        while self.queue:
            self.run()
        self.tell(Notification("session.status", {"sessionId": SESSION, "status": "idle"}))


actions = (
    st.tuples(st.just("accept"), st.booleans(), st.booleans(), st.booleans()),
    st.just(("run",)),
    st.tuples(st.just("drop"), st.integers(0, 3)),
)


@given(st.lists(st.one_of(*actions), max_size=30), st.booleans())
def test_every_prompt_gets_its_own_turn_and_no_other(script: list[tuple[Any, ...]], announces: bool) -> None:
    async def main() -> None:
        daemon = Daemon(announces=announces)
        for action in script:
            daemon.act(*action)
        daemon.finish()
        for name, handle in daemon.handles.items():
            assert handle.ended
            check(daemon, name, await handle.result())

    asyncio.run(main())


repeats = st.tuples(st.just("repeat"), st.integers(0, 40))


@given(st.lists(st.one_of(*actions, repeats), max_size=30), st.integers(0, 40))
def test_events_that_come_again_change_no_outcome_and_tell_a_late_listener_all(
    script: list[tuple[Any, ...]], n_early: int
) -> None:
    async def main() -> None:
        daemon = Daemon(announces=True)
        for action in script:
            daemon.act(*action)
        daemon.finish()
        for name, handle in daemon.handles.items():
            assert handle.ended
            result = await handle.result()
            check(daemon, name, result)
            late = AsyncPrompt(SESSION, announced=True, on_end=lambda _: None)
            about = {"sessionId": SESSION, "messageId": name, "reason": {"kind": "completed"}}
            for notification in (Notification("session.completed", about), *daemon.log[-n_early:]):
                late.hear(notification)
            assert late.has_heard_of(name) == (result.events[0]["seq"] >= len(daemon.log[:-n_early]))
            n_before = min(n_early, len(daemon.log))  # those that come again before the daemon's answer
            for notification in daemon.log[:n_before]:
                late.hear(notification)
            late.replay(name)
            for notification in daemon.log[n_before:]:
                late.hear(notification)
            assert late.ended
            assert (await late.result()).events == result.events
            check(daemon, name, await late.result())

    asyncio.run(main())


def check(daemon: Daemon, name: str, result: RunResult) -> None:
    kinds = [e["type"] for e in result.events]
    if name in daemon.cancelled:
        assert (result.turn, result.finish_reason, result.stop_reason) == (None, "aborted", "cancelled")
        assert kinds == ["agent/inbox/spliced"] * 2
    else:
        assert (result.turn, result.finish_reason) == (daemon.turns[name], "completed")
        assert [e["data"]["turn"] for e in result.events if "turn" in e["data"]] == [daemon.turns[name]] * 2
        assert kinds[:4] == ["agent/inbox/spliced", "turn/start", "agent/inbox/spliced", "turn/end"]
        # Without an announcement a turn is over only when the next one begins; prompts may come in between.
        assert set(kinds[4:]) <= ({"agent/inbox/spliced"} if not daemon.announces else set())

"""Sessions whose daemon is killed again and again: what they do, and what must be true of their logs."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cordisd.events import Event
from cordisd.mock import Answer, Received, Reply, calls, text
from cordisd.session.condition import examine
from cordisd.session.reading import read_log
from cordisd.session.repair import OUTCOME_UNKNOWN, closers
from cordisd.session.survey import survey
from daemon import Daemon
from measure import PATIENCE_S

FINE = (0, -32001, -32002, -32007)
"""Errors that may come: none; it exists, it is not live; no turn of it has ended."""
MAX_SESSIONS = 12
"""Forks included."""
FOLDERS = ("a", "b", "c")
"""Where sessions are moved to."""


class Models:
    """The models of all sessions: each request must be well formed, and is answered by chance."""

    def __init__(self, chance: random.Random, marker: str, folder: Path) -> None:
        self._chance = chance
        self._marker = marker
        self._folder = folder
        self._n = 0
        self.wrong: list[str] = []

    def reply(self, request: Received) -> Reply:
        """The script of the mock."""
        self._n += 1
        messages = request.json["messages"]
        self.wrong += flaws(messages)
        if messages[-1]["role"] == "tool" and self._chance.random() < 0.5:
            return text("done")
        match self._chance.randrange(6):
            case 0 | 1:
                pieces = [f"word{number} " for number in range(1 + self._chance.randrange(60))]
                return Answer(text=pieces, faults={"pace": self._chance.choice([0.001, 0.01])})
            case 2:
                return calls(self._bash("echo quick"))
            case 3:
                return calls(self._bash(f"setsid sleep {self._marker} & sleep 0.2; echo slow"))
            case 4:
                return calls(self._bash("sleep 0.05"), self._bash("seq 500"), self._bash("sleep 0.05"))
            case _:
                edit = {
                    "command": "create",
                    "path": f"{self._folder}/edits/{self._n}",
                    "file_text": "x" * 3000,
                }
                return calls((f"e{self._n}", "str_replace_editor", edit), self._bash("true"))

    def _bash(self, command: str) -> tuple[str, str, dict[str, Any]]:
        self._n += 1
        return f"c{self._n}", "bash", {"command": command}


def flaws(messages: Sequence[dict[str, Any]]) -> list[str]:
    """What is wrong with a request: each call must have one result, right behind the message that made it."""
    found: list[str] = []
    owed: list[str] = []
    for message in [*messages, {"role": "end"}]:
        if message["role"] != "tool":
            if owed:
                found.append(f"no results of {owed}: {messages}")
            owed = [one["id"] for one in message.get("tool_calls", [])]
        elif message["tool_call_id"] in owed:
            owed.remove(message["tool_call_id"])
        else:
            found.append(f"a result of {message['tool_call_id']}, which is owed none: {messages}")
    return found


@dataclass(slots=True)
class Session:
    """One session over all its daemons: what was acknowledged, and how the last daemon left its log."""

    id: str
    is_fork: bool = False
    """A fork is stored when it is there."""
    prompts: set[str] = field(default_factory=set)
    """Message ids."""
    folders: Counter[str] = field(default_factory=Counter)
    """Where it was moved to, and how often."""
    sound: bytes = b""
    n_sound: int = 0
    to_close: list[Event] = field(default_factory=list)
    open_calls: set[str] = field(default_factory=set)

    def check(self, path: Path, seen: Sequence[bytes]) -> None:
        """Whether the log holds all that was ever acknowledged, and the events of the frames `seen`."""
        content = path.read_bytes()
        with path.open("rb") as stream:
            log = read_log(stream, path)
        events = log.events
        assert content.startswith(self.sound), "sound lines were changed"
        closed = events[self.n_sound : self.n_sound + len(self.to_close)]
        assert [event.json for event in closed] == [event.json for event in self.to_close[: len(closed)]]
        results = results_of(events)
        if len(closed) == len(self.to_close):
            assert all(results[call] == [OUTCOME_UNKNOWN] for call in self.open_calls), self.open_calls
        assert all(len(codes) == 1 for codes in results.values()), results
        splices = [event.data for event in events if event.type == "agent/inbox/spliced"]
        inserted = {message["id"] for splice in splices for message in splice["inserted"]}
        assert self.prompts <= inserted, self.prompts - inserted
        moves = Counter(event.data["cwd"] for event in events if event.type == "working-directory/change")
        assert self.folders <= moves, (self.folders, moves)
        for frame in seen:
            event = frame[frame.index(b'"event":') + len(b'"event":') : -len(b"}}\n")]
            assert event == events[json.loads(event)["seq"]].json
        self.sound, self.n_sound = content[: log.good_bytes], len(events)
        self.to_close = closers(events)
        begun = [event.data["callId"] for event in events if event.type == "tool/call"]
        self.open_calls = {call for call in begun if call not in results}


def results_of(events: Sequence[Event]) -> dict[str, list[str | None]]:
    """The error codes of the results that each call has."""
    found: dict[str, list[str | None]] = {}
    for event in events:
        if event.type == "tool/result":
            call = event.data["message"]["source"]["callId"]
            found.setdefault(call, []).append(event.data.get("error", {}).get("code"))
    return found


def unheard(session: Session, events: Sequence[Event]) -> set[str]:
    """The acknowledged prompts that came neither before the model, once, nor were cancelled or still wait."""
    waiting: dict[str, list[str]] = {"next-turn": [], "next-step": []}
    cancelled: set[str] = set()
    for event in events:
        if event.type == "agent/inbox/spliced":
            line, start = waiting[event.data["target"]], event.data["start"]
            end = start + event.data.get("removedCount", 0)
            cancelled |= set(line[start:end]) if "outcome" in event.data else set()
            line[start:end] = [message["id"] for message in event.data["inserted"]]
    said = Counter(event.data["id"] for event in events if event.type == "user/message")
    kept = {*waiting["next-turn"], *waiting["next-step"], *cancelled}
    return {prompt for prompt in session.prompts if said[prompt] + (prompt in kept) != 1}


class Life:
    """One daemon from its start to its end, and what it is asked for."""

    def __init__(self, daemon: Daemon, chance: random.Random, sessions: list[Session]) -> None:
        methods = daemon.initialize()["capabilities"]["methods"]
        self._daemon = daemon
        self._chance = chance
        self._sessions = sessions
        self._can_fork = "session/fork" in methods
        self._sent: dict[int, tuple[str, Session]] = {}
        self.done: Counter[str] = Counter()
        """Requests that were answered with a result, by method."""
        daemon.lines = []

    def resume(self) -> None:
        """Ask for every session that is stored; as a rule, wait for them."""
        for session in self._sessions:
            if session.sound:
                self._send("session/resume", session)
        if self._chance.random() < 0.8:
            answers = list(self._sent)
            self._daemon.wait(lambda: all(map(self._daemon.answer, answers)), PATIENCE_S)

    def step(self) -> None:
        """Ask one session for something; nothing is waited for."""
        session = self._chance.choice(self._sessions)
        blocks = [{"type": "text", "text": "go on"}]
        match self._chance.randrange(12):
            case 0 | 1:
                self._send("session/steer", session, contentBlocks=blocks)
            case 2:
                self._send("session/cancel", session, queue=self._chance.choice(["keep", "drop"]))
            case 3 | 4:
                path = self._daemon.cwd / self._chance.choice(FOLDERS)
                self._send("session/working-directory/set", session, path=str(path))
            case 5:
                self._send("session/close", session)
                self._send("session/resume", session)
            case 6 if self._can_fork and len(self._sessions) < MAX_SESSIONS:
                fork = Session(f"{session.id}-{self._chance.randrange(10**6)}", is_fork=True)
                number = self._daemon.send("session/fork", {"sessionId": session.id, "newSessionId": fork.id})
                self._sent[number] = ("session/fork", fork)
            case _:
                self._send("session/prompt", session, contentBlocks=blocks)

    def check(self) -> None:
        """Whether what was acknowledged and seen is in the logs, once the daemon has been killed."""
        self._daemon.read_what_is_there()
        for number, (method, session) in self._sent.items():
            answer = self._daemon.answer(number) or {}
            if (result := answer.get("result")) is None:
                error = answer.get("error", {"code": 0, "message": ""})
                assert error["code"] in FINE or error["message"].endswith(" is closed"), answer
                continue
            self.done[method] += 1
            if "messageId" in result:
                session.prompts.add(result["messageId"])
            elif method == "session/working-directory/set":
                session.folders[result["cwd"]] += 1
            elif method == "session/fork":
                self._sessions.append(session)
        stored = {one.path.parent.name: one for one in survey(self._daemon.sessions)}
        for found in stored.values():
            assert (condition := examine(found)).status in ("ok", "torn", "interrupted"), condition
        for session in self._sessions:
            mark = b'"params":{"sessionId":"%b","event":' % session.id.encode()
            seen = [line for line in self._daemon.lines or [] if mark in line]
            if session.id in stored:
                session.check(stored[session.id].path, seen)
            else:
                assert not (session.sound or session.prompts or seen or session.is_fork), session

    def _send(self, method: str, session: Session, **params: object) -> None:
        number = self._daemon.send(method, {"sessionId": session.id, **params})
        self._sent[number] = (method, session)

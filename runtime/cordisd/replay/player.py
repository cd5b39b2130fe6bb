"""Plays recordings strictly: each request is the recorded one, each result too, and nothing is left.

A session is bound to a recording by its first request; of several that begin alike, to that of its own id,
else to the first one. From then on its requests are compared one by one with those recorded, turn by turn. A
recording is played once, and a session that has failed plays no more.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NoReturn

from cordisd.errors import ReplayMismatchError
from cordisd.events import JsonObject
from cordisd.replay.binding import Binder, Bound, SecretValues, again
from cordisd.replay.compare import explain, is_equal_request, unified_diff
from cordisd.replay.paths import Workspace
from cordisd.replay.played import PlayingTransport, left
from cordisd.replay.turns import Exchange, Recording, Turn
from cordisd.services.models import ModelRequest
from cordisd.services.tools import ToolResult
from cordisd.services.traffic import Connect, Tap, ToolOutcome, Transport, TurnStart

Tools = Literal["live", "recorded"]
OnDivergence = Literal["fail", "event"]

_NO_TURN: Final = Turn(0, [])


@dataclass(slots=True)
class _Session:
    """A live session, and where it is in its recording."""

    id: str
    cwd: str
    turn: int = 0
    """Turns that have begun."""
    bound: Bound | None = None
    at: int = 0
    """Requests that were played, in all."""
    at_in_turn: int = 0
    results: dict[str, ToolOutcome] = field(default_factory=dict)
    """Recorded results of calls that are under way, by call id."""
    diverged: set[str] = field(default_factory=set)
    """Calls with a result that differs; requests are compared with the recorded one in its place."""
    compared: tuple[JsonObject, JsonObject] | None = None
    """The last request as it was recorded and found."""
    failure: str | None = None

    @property
    def recorded_turn(self) -> Turn:
        """What the recording has of the turn; an empty one where it has nothing."""
        turns = self.bound.recording.turns if self.bound is not None else []
        return turns[self.turn - 1] if 0 < self.turn <= len(turns) else _NO_TURN


@dataclass(slots=True)
class Player(Tap):
    """Answers for the network with what was recorded."""

    recordings: Sequence[Recording]
    tools: Tools = "live"
    on_divergence: OnDivergence = "fail"
    pace: bool = False
    """Whether chunks come when they came; else at once."""
    compares: bool = True
    """False, to record anew what is asked: answers are played in the recorded order, whatever it is."""
    secrets: SecretValues = lambda names: ()
    _sessions: dict[str, _Session] = field(default_factory=dict)
    _binder: Binder = field(init=False)

    def __post_init__(self) -> None:
        self._binder = Binder(self.recordings, self.secrets)

    @property
    def skips_delays(self) -> bool:
        return not self.pace

    def connect(self, inner: Connect) -> Transport:
        return PlayingTransport(self.next_exchange, paced=self.pace)

    def begin_turn(self, start: TurnStart) -> None:
        """Go on with the next recorded turn.

        Raises:
            ReplayMismatchError: there is none, or the session has failed before.
        """
        session = self._session(start.session_id, start.cwd)
        session.turn += 1
        session.at_in_turn = 0
        self._check(session)
        if session.bound is not None and self.compares and session.recorded_turn is _NO_TURN:
            n_turns = len(session.bound.recording.turns)
            self._fail(session, f"turn {session.turn} was not recorded; the recording has {n_turns}")

    async def recorded_result(self, session_id: str, call_id: str, name: str) -> ToolResult | None:
        session = self._sessions.get(session_id)
        if self.tools == "live" or session is None or session.bound is None:
            return None
        outcome = session.results.get(call_id)
        if outcome is None:
            error = await left(f"call {call_id} ({name}) has no recorded result")
            return ToolResult(f"Error: {error}", is_error=True)  # which `note_result` does not let pass
        return ToolResult(session.bound.rules.workspace.show(outcome.text), is_error=outcome.is_error)

    def note_result(self, session_id: str, outcome: ToolOutcome) -> JsonObject | None:
        """Compare a result with the recorded one; what differs and is let pass is returned.

        Raises:
            ReplayMismatchError: it is another, and `on_divergence` is `fail`.
        """
        session = self._sessions.get(session_id)
        if session is None or session.bound is None or not self.compares:
            return None
        recorded = session.results.pop(outcome.call_id, None)
        place = f"the result of call {outcome.call_id} ({outcome.name})"
        if recorded is None:
            self._fail(session, f"{place} was not recorded")
        found = session.bound.rules.text(outcome.text)
        if found != recorded.text:
            change = "differs\n" + unified_diff(recorded.text, found)
        elif outcome.is_error != recorded.is_error:
            change = f"is{'' if outcome.is_error else ' not'} an error now, with the same text:\n{found}"
        else:
            return None
        if self.on_divergence == "fail":
            self._fail(session, f"{place} {change}")
        session.diverged.add(outcome.call_id)
        return {"callId": outcome.call_id, "message": self._message(session, f"{place} {change}")}

    def end_turn(self, session_id: str, turn: int, stop_reason: str) -> None:
        """Go on only if the recorded turn ends here too, and in the same way.

        Raises:
            ReplayMismatchError: it does not.
        """
        session = self._sessions.get(session_id)
        if session is None or session.bound is None or session.failure or not self.compares:
            return
        recorded = session.recorded_turn
        n_due = len(recorded.exchanges)
        if stop_reason == recorded.stop_reason and stop_reason in ("cancelled", "timeout"):
            # No two of them come at the same moment.
            session.at += n_due - session.at_in_turn
            return
        if session.at_in_turn < n_due:
            at = session.at + 1
            self._fail(
                session, f"turn {session.turn} has ended, but the recorded one goes on with request {at}"
            )
        if stop_reason != recorded.stop_reason:
            ends = f"has ended as {stop_reason}, but the recorded one as {recorded.stop_reason}"
            self._fail(session, f"turn {session.turn} {ends}")

    def close_session(self, session_id: str) -> JsonObject | None:
        """What the session has left unplayed."""
        session = self._sessions.get(session_id)
        if session is None or session.bound is None or session.failure or not self.compares:
            return None
        n_left = len(session.bound.recording.turns) - session.turn
        if n_left <= 0:
            return None
        text = f"the session has ended, but the recording goes on with turn {session.turn + 1}"
        return {"turns": n_left, "message": self._message(session, text)}

    def next_exchange(self, request: ModelRequest, body: Sequence[bytes]) -> tuple[Exchange, Workspace]:
        """The exchange that a request is answered with, and the directory to put into its answer.

        Raises:
            ReplayMismatchError: the request is not the recorded one, or there is none left.
        """
        session = self._session(request.session_id, request.cwd)
        self._check(session)
        recording, rules = session.bound or self._bind(session, body)
        found = rules.body(body, request.messages)
        exchanges, at = session.recorded_turn.exchanges, session.at_in_turn
        if not self.compares:
            exchanges, at = recording.exchanges, session.at
        number = f"request {session.at + 1} of {len(recording.exchanges)}"
        if at >= len(exchanges):
            self._fail(
                session, f"{number} was not recorded in turn {session.turn}, which has {len(exchanges)}"
            )
        exchange = exchanges[at]
        if self.compares:
            found = _with_recorded_results(found, exchange.body, session.diverged)
            if not is_equal_request(exchange.body, found, session.compared):
                near = self._binder.nearest(found, exchange)
                self._fail(session, f"{number}: {explain(exchange.body, found)}{near}")
        session.compared = exchange.body, found
        session.at += 1
        session.at_in_turn += 1
        session.results = {outcome.call_id: outcome for outcome in exchange.results}
        return exchange, rules.workspace

    def _session(self, session_id: str, cwd: str) -> _Session:
        return self._sessions.setdefault(session_id, _Session(session_id, cwd))

    def _bind(self, session: _Session, body: Sequence[bytes]) -> Bound:
        try:
            session.bound = self._binder.bind(session.id, session.cwd, body, by_content=self.compares)
        except ReplayMismatchError as error:
            session.failure = str(error).partition("\n")[0]
            raise
        return session.bound

    def _check(self, session: _Session) -> None:
        if session.failure is not None:
            raise ReplayMismatchError(f"this session plays no more, since it has failed: {session.failure}")

    def _fail(self, session: _Session, text: str) -> NoReturn:
        session.failure = self._message(session, text.partition("\n")[0]).partition("\n")[0]
        raise ReplayMismatchError(self._message(session, text))

    def _message(self, session: _Session, text: str) -> str:
        assert session.bound is not None
        recording = session.bound.recording
        return f"{recording.path}: {text}\n{again(recording)}"


def _with_recorded_results(found: JsonObject, recorded: JsonObject, diverged: Collection[str]) -> JsonObject:
    """A request with recorded results in the place of those that have diverged and were let pass."""
    if not diverged:
        return found
    before = {
        message["tool_call_id"]: message for message in recorded["messages"] if "tool_call_id" in message
    }
    messages = []
    for message in found["messages"]:
        call_id = message.get("tool_call_id")
        if call_id in diverged and call_id in before:
            message = {**message, "content": before[call_id].get("content")}
        messages.append(message)
    return {**found, "messages": messages}

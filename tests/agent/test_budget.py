"""The arithmetic of limits."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cordisd import shapes
from cordisd.agent.budget import (
    COSTS,
    NOTICES,
    RUN,
    SESSION,
    Budget,
    Limits,
    Stop,
    Used,
    cost,
    first_reached,
    tightest,
    time_left,
)
from cordisd.agent.limits import LimitsConfig
from cordisd.agent.outcome import STOP_REASONS, stopped
from cordisd.events import Event
from cordisd.services.models import Prices
from cordisd.session.spent import Spent

MODEL = ("provider", "model")
NAMES = (*RUN, *SESSION)

amounts = st.integers(0, 50)
used = st.builds(
    Used, turns=amounts, tokens=amounts, seconds=amounts, output_bytes=amounts, failures=amounts, cost=amounts
)
limits = st.dictionaries(st.sampled_from([*NAMES, *NOTICES]), st.integers(1, 50))


class Clock:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def budget_of(given_limits: Limits, spent: Spent, clock: Clock | None = None) -> Budget:
    return Budget(given_limits, spent, lambda *model: Prices(1, 2, 0.5), clock or Clock())


def amount(name: str, run: Used, session: Used) -> float:
    value: float = getattr(run if name in RUN else session, (RUN | SESSION)[name])
    return value


@given(limits, used, used)
def test_a_run_stops_exactly_if_as_much_was_used_as_some_limit_allows(
    limits: Limits, run: Used, session: Used
) -> None:
    full = {name for name in limits if name in NAMES and amount(name, run, session) >= limits[name]}
    stop = first_reached(limits, run, session)
    assert (stop.name if stop else None) == next((name for name in NAMES if name in full), None)
    if stop:
        assert stop == Stop(stop.name, limits[stop.name], amount(stop.name, run, session))


@given(st.lists(limits, max_size=4), used, used)
def test_several_limits_together_stop_what_any_of_them_stops(
    many: list[Limits], run: Used, session: Used
) -> None:
    together = first_reached(tightest(*many), run, session) is not None
    assert together == any(first_reached(one, run, session) is not None for one in many)


@given(limits, limits)
def test_notices_are_as_who_comes_last_wants_them(first: Limits, last: Limits) -> None:
    both = tightest(first, last)
    assert {name: both[name] for name in NOTICES if name in both} == {
        name: value for name, value in (first | last).items() if name in NOTICES
    }
    assert tightest(both, both) == both


@given(limits, used, used)
def test_the_time_left_is_that_of_the_nearer_time_limit(limits: Limits, run: Used, session: Used) -> None:
    left = time_left(limits, run, session)
    if left is None:
        assert {"timeoutSeconds", "sessionTimeoutSeconds"}.isdisjoint(limits)
    else:
        seconds, name = left
        assert seconds == limits[name] - amount(name, run, session)
        other = ({"timeoutSeconds", "sessionTimeoutSeconds"} - {name}).pop()
        assert other not in limits or limits[other] - amount(other, run, session) >= seconds


def test_what_is_not_known_is_never_within_a_limit() -> None:
    unknown = Used(tokens=None, cost=None)
    for name in ("maxModelTokens", "maxCost"):
        assert first_reached({name: 1e9}, unknown, Used()) == Stop(name, 1e9, None)
        assert first_reached({name: 1e9}, Used(), unknown) is None
    assert first_reached({"maxTurns": 5}, unknown, unknown) is None


counts = st.fixed_dictionaries(
    {}, optional={name: st.integers(0, 1000) for name in ("inputTokens", "outputTokens", "cacheReadTokens")}
)
turns = st.lists(
    st.lists(st.tuples(counts, st.integers(0, 30), st.booleans()), max_size=4), min_size=1, max_size=4
)


def answer(usage: dict[str, int]) -> Event:
    source = {"kind": "model", "provider": MODEL[0], "model": MODEL[1]}
    return Event("assistant/message", 0, 0, {"message": {"source": source, "content": []}, "usage": usage})


def result(n_bytes: int, is_error: bool) -> Event:
    block = {"content": [{"type": "text", "text": "é" * n_bytes}], "isError": is_error}
    return Event("tool/result", 0, 0, {"message": {"content": [block]}})


@given(turns)
def test_a_run_uses_what_its_session_did_not_use_before(
    turns: list[list[tuple[dict[str, int], int, bool]]],
) -> None:
    """Runs of a session add up to the session, whatever was counted in between."""
    spent, clock = Spent(), Clock()
    runs: list[Used] = []
    for number, steps in enumerate(turns, 1):
        spent.take(Event("turn/start", 0, int(clock.now_s * 1000), {"turn": number}))
        budget = budget_of({}, spent, clock)
        for usage, n_bytes, is_error in steps:
            budget.n_requests += 1
            spent.take(answer({"inputTokens": 0, "outputTokens": 0} | usage))
            spent.take(result(n_bytes, is_error))
            clock.now_s += 1
        runs.append(budget.run())
        session = budget.session()
        spent.take(Event("turn/end", 0, int(clock.now_s * 1000), {"turn": number}))
        clock.now_s += 100
        errors = [is_error for _, _, is_error in steps]
        row = len(errors) - max((at + 1 for at, failed in enumerate(errors) if not failed), default=0)
        assert runs[-1].failures == row
    assert session.turns == len(turns) - 1
    assert session.tokens == sum(run.tokens or 0 for run in runs)
    assert session.output_bytes == sum(run.output_bytes for run in runs)
    assert session.seconds == sum(run.seconds for run in runs)
    assert abs((session.cost or 0) - sum(run.cost or 0 for run in runs)) < 1e-12
    n_read = sum(usage.get("inputTokens", 0) for steps in turns for usage, _, _ in steps)
    n_cached = sum(usage.get("cacheReadTokens", 0) for steps in turns for usage, _, _ in steps)
    n_written = sum(usage.get("outputTokens", 0) for steps in turns for usage, _, _ in steps)
    assert session.cost == (n_read * 1 + n_cached * 0.5 + n_written * 2) / 1e6


def test_an_answer_without_its_tokens_makes_those_of_run_and_session_unknown() -> None:
    spent = Spent()
    spent.take(answer({"inputTokens": 1}))
    before = budget_of({}, spent)
    assert (before.session().tokens, before.run().tokens) == (None, 0)
    interrupted = answer({})
    interrupted.data["interrupted"] = True
    spent.take(interrupted)
    assert before.run().tokens == 0, "who cancels an answer never hears what it took"


def test_tokens_of_a_model_without_a_price_have_no_cost() -> None:
    assert cost({MODEL: {"inputTokens": 0}}, lambda *model: None) == 0
    assert cost({MODEL: {"inputTokens": 1}}, lambda *model: None) is None


def test_cached_tokens_cost_as_others_where_nothing_else_is_said() -> None:
    usage = {"inputTokens": 10, "cacheReadTokens": 20, "outputTokens": 5, "reasoningTokens": 4}
    assert Prices(1.0, 3.0).cost(usage) == 45 / 1e6
    assert Prices(1.0, 3.0, 0.0).cost(usage) == 25 / 1e6


def test_both_notices_are_one_sentence_and_come_once() -> None:
    clock = Clock()
    budget = budget_of(
        {"maxTurns": 2, "noticeTurns": 1, "timeoutSeconds": 9, "noticeSeconds": 1}, Spent(), clock
    )
    assert budget.notice() is None
    budget.n_requests = 1
    clock.now_s += 8.5
    sentence = "This run has 1 model request left, this one included, and at most 1 second left."
    assert budget.notice() == sentence
    assert budget.notice() is None


def test_every_limit_has_a_stop_reason_that_clients_know() -> None:
    known: Any = shapes.StopReason.__args__  # type: ignore[attr-defined]
    assert set(STOP_REASONS.values()) <= set(known)
    for name in NAMES:
        ending = stopped(Stop(name, 5, 6))
        assert ending.stop_reason == STOP_REASONS[name] != "cancelled"
        assert ending.data(3)["limit"] == {"name": name, "allowed": 5, "used": 6}


def test_the_limits_of_the_wire_are_those_that_are_kept() -> None:
    accepted = {field.alias for field in LimitsConfig.model_fields.values()}
    assert accepted == {*NAMES, *NOTICES} == set(shapes.Limits.__annotations__)
    assert set(COSTS) < accepted

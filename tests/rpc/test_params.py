"""What is said of params that do not fit, however many or long they are."""

from __future__ import annotations

import pytest

from cordisd.errors import InvalidParamsError, nearest
from cordisd.rpc.methods import METHODS
from cordisd.rpc.params import MAX_COMPLAINTS, OfSession, read_params
from measure import least_cpu_s


def test_a_misspelt_field_is_told_with_the_nearest_and_those_allowed() -> None:
    with pytest.raises(InvalidParamsError) as caught:
        read_params(OfSession, "m", {"sessionID": "s"})
    assert str(caught.value) == (
        "m: missing required field sessionId; "
        'unknown field sessionID (did you mean "sessionId"?); allowed: sessionId'
    )


def test_of_many_faults_the_first_are_told() -> None:
    with pytest.raises(InvalidParamsError) as caught:
        read_params(OfSession, "m", {"sessionId": "s", **{f"f{number}": 1 for number in range(100)}})
    told = str(caught.value).split("; ")
    assert [line for line in told if line.startswith("unknown")][-1] == f"unknown field f{MAX_COMPLAINTS - 1}"
    assert told[-1] == f"and {100 - MAX_COMPLAINTS} more faults"


def test_nothing_is_near_to_a_very_long_word_and_nobody_looks_for_it() -> None:
    """Which took a second for these four million characters."""
    assert least_cpu_s(lambda: nearest("x" * 4_000_000, METHODS), 0.1) <= 0.1

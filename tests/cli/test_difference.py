from __future__ import annotations

import copy
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from cordisd.agent.fingerprint import canonical_json
from cordisd.cli.difference import differences

EMPTY: dict[str, Any] = {
    "system": "", "contexts": [], "tools": [], "parameters": {}, "behaviour": [], "contracts": {},
    "isolated": {},
}  # fmt: skip
WORDS = st.sampled_from(["a", "b", "c"])
TEXTS = st.text(alphabet="ab\n \r\u2028", max_size=5)
VALUES = st.recursive(
    st.none() | st.booleans() | st.sampled_from([0, 1, 1.0, 0.5, "x", ""]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=4,
)
KEYS = st.dictionaries(WORDS, VALUES, max_size=2)
TOOLS = st.fixed_dictionaries({"name": WORDS, "description": TEXTS, "parameters": KEYS})
DOCUMENTS = st.fixed_dictionaries(
    {
        "system": TEXTS,
        "contexts": st.lists(st.tuples(WORDS, TEXTS).map(list), max_size=2, unique_by=lambda one: one[0]),
        "tools": st.lists(TOOLS, max_size=2, unique_by=lambda one: one["name"]),
        "parameters": KEYS,
        "behaviour": st.lists(st.tuples(WORDS, KEYS).map(list), max_size=3).map(
            lambda rows: sorted(rows, key=canonical_json)
        ),
        "contracts": st.dictionaries(WORDS, st.integers(1, 2), max_size=2),
        "isolated": st.dictionaries(WORDS, st.lists(st.lists(st.integers(0, 2), max_size=2), max_size=2)),
    }
)


def lines(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    return list(differences(a, b, ("A", "B")))


@given(DOCUMENTS, DOCUMENTS, st.sampled_from(sorted(EMPTY)))
@example(EMPTY, {**EMPTY, "parameters": {"a": None}}, "system")
def test_documents_of_different_digests_differ_in_some_line_and_equal_ones_in_none(
    a: dict[str, Any], other: dict[str, Any], part: str
) -> None:
    b = {**a, part: other[part]}  # most differences are in one part
    for left, right in ((a, b), (a, other), (a, copy.deepcopy(a))):
        assert bool(lines(left, right)) == (canonical_json(left) != canonical_json(right))


def test_a_number_is_shown_as_people_write_it_unless_that_hides_the_difference() -> None:
    def of(before: Any, after: Any) -> list[str]:
        return lines({**EMPTY, "parameters": {"n": before}}, {**EMPTY, "parameters": {"n": after}})

    assert of(300000.0, 60000.0) == ["parameters.n: 300000 -> 60000"]
    assert of(1.0, 1) == ["parameters.n: 1.0 -> 1"]
    assert of(0.5, None) == ["parameters.n: 0.5 -> null"]


def test_a_long_value_is_cut_and_named_by_its_hash() -> None:
    long = "x" * 200
    [line] = lines(EMPTY, {**EMPTY, "parameters": {"a": long}})
    [other] = lines(EMPTY, {**EMPTY, "parameters": {"a": long + "y"}})
    assert line.startswith('parameters.a: (absent) -> "xxx') and "(202 characters, sha256 " in line
    assert len(line) < 160 and line != other


def test_the_second_entry_of_a_name_is_told_apart() -> None:
    one, two = ["section", {"text": "a"}], ["section", {"text": "b"}]
    assert lines({**EMPTY, "behaviour": [one]}, {**EMPTY, "behaviour": [one, two]}) == [
        "entry section#2: only in B"
    ]


def test_an_order_of_keys_that_is_all_that_differs_is_told_and_one_beside_another_value_is_not() -> None:
    one = {**EMPTY, "parameters": {"a": 1, "b": 2}, "sent": "x"}
    turned = {**EMPTY, "parameters": {"b": 2, "a": 1}, "sent": "y"}
    assert lines(one, turned) == ["tools, parameters: the same, but their keys are sent in another order"]
    assert lines(one, {**turned, "parameters": {"a": 1}}) == ["parameters.b: 2 -> (absent)"]


def test_a_document_without_private_services_is_compared_with_one_that_has_some() -> None:
    without = {name: value for name, value in EMPTY.items() if name != "isolated"}
    assert lines(without, {**EMPTY, "isolated": {"fs": [[0, 1]]}}) == ["isolated.fs: (absent) -> [[0, 1]]"]
    assert lines(without, EMPTY) == []

"""Deltas to tool calls: ids and indexes that are missing, repeated or wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordisd.mock import DONE, delta
from cordisd.services.chat.completion import CompletionStream

A, B = '{"command":"A"}', '{"command":"B"}'


def part(
    index: int | None = None, id: str | None = None, name: str | None = None, args: Any = None
) -> dict[str, Any]:
    function = {key: value for key, value in (("name", name), ("arguments", args)) if value is not None}
    fields = (("index", index), ("id", id), ("function", function or None))
    return {key: value for key, value in fields if value is not None}


def assemble(
    *parts: dict[str, Any] | list[dict[str, Any]], taken: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    stream = CompletionStream(taken.__contains__, 1)
    chunks: list[dict[str, Any]] = []
    for piece in parts:
        chunks += stream.feed(delta({"tool_calls": piece if isinstance(piece, list) else [piece]}))
    chunks += stream.feed(delta({}, "tool_calls") + DONE)
    assert chunks[-1] == {"type": "finish", "reason": {"kind": "tool-calls"}}
    blocks = [chunk["block"] for chunk in chunks if chunk["type"] == "block-end"]
    streamed: dict[int, str] = {}
    for chunk in chunks:
        if chunk["type"] == "tool-call-delta":
            streamed[chunk["index"]] = streamed.get(chunk["index"], "") + chunk["argumentsDelta"]
            assert chunk["id"] == blocks[chunk["index"]]["id"]
    assert [streamed[n] for n in range(len(blocks))] == [block["arguments"] for block in blocks]
    assert len({block["id"] for block in blocks}) == len(blocks)
    return blocks


def shown(blocks: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(block["id"], block["arguments"]) for block in blocks]


TWO = [("c1", A), ("c2", B)]


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([part(0, "c1", "bash", ""), part(0, args=A), part(1, "c2", "bash", ""), part(1, args=B)],
                     id="plain"),
        pytest.param([part(0, "c1", "bash", ""), part(1, "c2", "bash", ""), part(1, args=B), part(0, args=A)],
                     id="interleaved by index"),
        pytest.param([part(None, "c1", "bash", A), part(None, "c2", "bash", B)], id="no index"),
        pytest.param([[part(None, "c1", "bash", A), part(None, "c2", "bash", B)]], id="no index, one delta"),
        pytest.param([part(None, "c1", "bash", ""), part(args=A), part(None, "c2", "bash", ""), part(args=B)],
                     id="no index, tails by arrival"),
        pytest.param([part(0, "c1", "bash", ""), part(0, args=A), part(0, "c2", "bash", ""), part(0, args=B)],
                     id="index 0 twice"),
        pytest.param([part(0, "c1", "bash", A), part(0, "c2", "bash", B)], id="index 0 twice, whole"),
        pytest.param([part(0, "c1", "bash", A), part(0, "c2", "bash", ""), part(1, args=B)],
                     id="head at 0, tail at 1"),
        pytest.param([part(0, "c1", "bash", ""), part(0, "c1", args=A[:5]), part(0, "c1", args=A[5:]),
                      part(1, "c2", "bash", B)], id="id repeated"),
        pytest.param([part(0, "c1", "bash", A[:5]), part(0, "c1", "bash", A[5:]), part(1, "c2", "bash", B)],
                     id="id and name repeated"),
        pytest.param([part(0, "c1", "bash", ""), part(0, "", "", A), part(1, "c2", "bash", ""),
                      part(1, "", "", B)], id="empty id and name in tails"),
        pytest.param([part(0, "c1", "bash", ""), part(0, "r1", None, A[:5]), part(0, "r2", None, A[5:]),
                      part(1, "c2", "bash", ""), part(1, "r3", None, B)], id="a fresh id in each tail"),
        pytest.param([part(1, "c1", "bash", ""), part(1, args=A), part(2, "c2", "bash", B)],
                     id="index from 1"),
        pytest.param([part(None, "c1", "bash", ""), part(None, "c2", "bash", ""), part(None, "c1", args=A),
                      part(None, "c2", args=B)], id="known ids without index"),
    ],
)  # fmt: skip
def test_two_calls_stay_two_calls(parts: list[Any]) -> None:
    blocks = assemble(*parts)
    assert shown(blocks) == TWO
    assert all("originalId" not in block for block in blocks)


def test_missing_and_empty_ids_are_made_up_and_the_original_is_kept_beside() -> None:
    blocks = assemble(part(0, None, "bash", A), part(1, "", "bash", B))
    assert [block["originalId"] for block in blocks] == [None, ""]
    assert [block["id"] for block in blocks] == ["call00001", "call00002"]


def test_calls_without_index_and_id_are_told_apart_by_their_names() -> None:
    blocks = assemble([part(name="bash", args=A), part(name="bash", args=B)])
    assert [block["arguments"] for block in blocks] == [A, B]
    assert len(assemble([part(name="bash", args=""), part(name="edit", args="")])) == 2


def test_one_id_for_two_calls_of_a_response_is_made_two() -> None:
    for parts in (
        [part(0, "c1", "bash", A), part(1, "c1", "bash", B)],
        [part(None, "c1", "bash", A), part(None, "c1", "bash", B)],
        [part(0, "c1", "bash", ""), part(1, "c1", "bash", ""), part(0, args=A), part(1, args=B)],
        [part(0, "c1", "bash", ""), part(1, "c1", "bash", ""), part(0, "c1", args=A), part(1, "c1", args=B)],
    ):
        blocks = assemble(*parts)
        assert [block["arguments"] for block in blocks] == [A, B]
        assert [block["id"] for block in blocks] == ["c1", "call00001"]
        assert blocks[1]["originalId"] == "c1"


def test_an_id_of_the_history_is_not_given_out_again() -> None:
    (block,) = assemble(part(0, "c1", "bash", A), taken=("c1", "call00001"))
    assert (block["id"], block["originalId"]) == ("call00002", "c1")


def test_an_id_that_comes_after_the_head_is_kept_as_the_original() -> None:
    (block,) = assemble(part(0, None, "bash", ""), part(0, "c1", "bash", A))
    assert shown([block]) == [("call00001", A)]


def test_a_name_that_comes_late_is_taken() -> None:
    (block,) = assemble(part(0, "c1"), part(0, None, "bash"), part(0, args=A))
    assert (block["id"], block["name"], block["arguments"]) == ("c1", "bash", A)


def test_another_name_under_the_same_index_and_id_is_another_call() -> None:
    blocks = assemble(part(0, "c1", "bash", ""), part(0, "c1", "edit", B))
    assert [(block["name"], block["arguments"]) for block in blocks] == [("bash", ""), ("edit", B)]


def test_arguments_sent_as_an_object_are_encoded_and_flagged() -> None:
    (block,) = assemble(part(0, "c1", "bash", {"command": "é", "n": [1, None]}))
    assert block["arguments"] == '{"command":"\\u00e9","n":[1,null]}'
    assert block["argumentsEncoded"] is True


def test_an_empty_object_is_kept_alone_and_yields_to_text_that_follows() -> None:
    assert assemble(part(0, "c1", "bash", {}))[0]["arguments"] == "{}"
    assert assemble(part(0, "c1", "bash", {}), part(0, args=A))[0]["arguments"] == A


@pytest.mark.parametrize("arguments", ['{"command": "ls', '{"a":"x\ny"}', "", "null", "[]", '"ls"'])
def test_argument_text_is_kept_as_the_model_wrote_it(arguments: str) -> None:
    (block,) = assemble(part(0, "c1", "bash", arguments))
    assert block == {"type": "tool-call", "id": "c1", "name": "bash", "arguments": arguments}


def test_a_call_with_no_function_at_all_is_still_a_call() -> None:
    (block,) = assemble({"index": 0, "id": "c1", "type": "function", "function": None})
    assert (block["name"], block["arguments"]) == ("", "")


@given(
    arguments=st.lists(
        st.dictionaries(st.text(max_size=3), st.text(max_size=5), max_size=2), min_size=1, max_size=4
    ),
    form=st.sampled_from(["index", "id", "both", "arrival"]),
    cut=st.integers(1, 4),
)
def test_calls_survive_any_form_and_fragmentation(arguments: list[Any], form: str, cut: int) -> None:
    texts = [json.dumps(value) for value in arguments]
    parts = []
    for n, text in enumerate(texts):
        index = n if form in ("index", "both") else None
        parts.append(part(index, f"c{n}", "bash", ""))
        tail_id = f"c{n}" if form in ("id", "both") else None
        parts += [part(index, tail_id, None, text[at : at + cut]) for at in range(0, len(text), cut)]
    assert shown(assemble(*parts)) == [(f"c{n}", text) for n, text in enumerate(texts)]

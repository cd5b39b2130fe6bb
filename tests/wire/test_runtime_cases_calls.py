"""Section C of the runtime cases: calls that are broken, twice there, cut or wrongly numbered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from conversations import World, hosted
from cordisd.mock import Answer, Call, call, calls, delta, stream, text

PATCH = "- insert: [{id: raw, name: openai, config: {provider: raw, wireArguments: raw}}]\n"
NO_OBJECT = 'Error: invalid arguments: "arguments" must be an object'
NO_COMMAND = 'Error: invalid arguments: missing required property "command"'


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with hosted(tmp_path_factory.mktemp("calls"), PATCH, composition="minimal") as (daemon, model):
        yield World(daemon, model)


def sent(world: World, name: str) -> list[dict[str, Any]]:
    """The messages of the last request of a session, from the first answer on."""
    messages: list[dict[str, Any]] = world.model.received[name][-1]["messages"]
    return messages[2:]


def told(events: list[dict[str, Any]]) -> list[str]:
    """The results as the log has them, in order."""
    found = []
    for event in events:
        if event["type"] == "tool/result":
            [block] = event["data"]["message"]["content"]
            found.append(block["content"][0]["text"])
    return found


def call_blocks(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The calls of the first answer, as the log has them."""
    message = next(event["data"]["message"] for event in events if event["type"] == "assistant/message")
    return [block for block in message["content"] if block["type"] == "tool-call"]


@pytest.mark.parametrize("provider", ["deepseek-official", "raw"])
@pytest.mark.parametrize(
    ("raw", "complaint"),
    [
        ('{"command": "ls', f"{NO_OBJECT}: not JSON, Unterminated string starting at at character 12 of 15"),
        ('{"command":"a\nb"}', f"{NO_OBJECT}: not JSON, Invalid control character at at character 13 of 17"),
        ("", NO_COMMAND),
        ("null", NO_OBJECT),
        ("[]", NO_OBJECT),
        ('"ls"', NO_OBJECT),
    ],
)
def test_arguments_that_are_no_object_run_nothing_and_are_kept_as_they_were_written(
    world: World, raw: str, complaint: str, provider: str
) -> None:
    """Case 23: the copy on the wire follows the composition, what is kept for training does not."""
    name = f"{provider} {raw}"
    events = world.run(name, call("c1", "bash", raw), provider=provider)
    assert told(events) == [complaint]
    assert call_blocks(events)[0]["arguments"] == raw
    wire = sent(world, name)[0]["tool_calls"][0]["function"]["arguments"]
    if provider == "raw":
        assert wire == raw
    else:
        assert json.loads(wire) == ({"_raw": raw} if raw else {})
    assert events[-1]["data"]["reason"] == {"kind": "completed"}


TWO = calls(("c1", "bash", {"command": "echo one"}), ("c2", "bash", {"command": "echo two"}))


def check_pairs(world: World, name: str, events: list[dict[str, Any]]) -> list[str]:
    """The ids of the two calls of `TWO`, which differ, and to which the results are mapped one to one."""
    assert told(events) == ["one", "two"]
    assistant, *results = sent(world, name)[:3]
    ids = [one["id"] for one in assistant["tool_calls"]]
    commands = [json.loads(one["function"]["arguments"])["command"] for one in assistant["tool_calls"]]
    assert commands == ["echo one", "echo two"]
    assert [(one["tool_call_id"], one["content"]) for one in results] == list(
        zip(ids, ["one", "two"], strict=True)
    )
    assert len(set(ids)) == 2 and all(ids)
    assert [event["data"]["callId"] for event in events if event["type"] == "tool/call"] == ids
    return ids


@pytest.mark.parametrize(
    ("fault", "originals"),
    [
        ("call-id-missing", [None, None]),
        ("call-id-empty", ["", ""]),
        ("call-id-duplicate", [None, "c1"]),
    ],
)
def test_ids_are_made_up_before_anything_is_logged_and_the_original_is_kept_beside(
    world: World, fault: str, originals: list[str | None]
) -> None:
    """Case 25."""
    events = world.run(fault, replace(TWO, faults={fault: None}))
    check_pairs(world, fault, events)
    assert [block.get("originalId") for block in call_blocks(events)] == originals


def test_an_id_of_an_earlier_turn_is_made_another(world: World) -> None:
    """Case 25."""
    name = "same id again"
    again = call("c1", "bash", {"command": "echo again"})
    world.run(name, call("c1", "bash", {"command": "echo first"}), text("a"), again, text("b"))
    world.daemon.run(name, "more")
    messages = sent(world, name)
    made = [one["id"] for message in messages for one in message.get("tool_calls", ())]
    results = [(one["tool_call_id"], one["content"]) for one in messages if one["role"] == "tool"]
    assert results == list(zip(made, ["first", "again"], strict=True))
    assert made[0] == "c1" != made[1]


@pytest.mark.parametrize(
    "fault",
    [
        "call-index-missing",
        "call-index-zero",
        "call-index-late",
        "call-id-repeated",
        "call-fields-empty",
        "calls-interleaved",
    ],
)
def test_indexes_that_lie_give_two_calls_each_with_its_own_id(world: World, fault: str) -> None:
    """Case 26."""
    events = world.run(fault, replace(TWO, faults={fault: None}))
    assert check_pairs(world, fault, events) == ["c1", "c2"]


def test_the_content_is_trusted_where_the_finish_reason_says_otherwise(world: World) -> None:
    """Case 27."""
    events = world.run("stop", replace(call("c1", "bash", {"command": "echo ran"}), finish="stop"))
    assert told(events) == ["ran"]
    events = world.run("none", text("nothing to run", finish="tool_calls"))
    assert told(events) == []
    assert events[-1]["data"]["reason"] == {"kind": "completed"}


@pytest.mark.parametrize("raw", ['{"command":"touch cut', '{"command":"touch whole"}'])
def test_a_call_cut_by_the_length_limit_never_runs_and_stays_in_the_history(world: World, raw: str) -> None:
    """Case 28: not even if it parses; the request after it is well formed."""
    name = f"length {raw}"
    head = {"index": 0, "id": "c1", "function": {"name": "bash", "arguments": raw}}
    events = world.run(name, stream(delta({"tool_calls": [head]}), finish="length"))
    assert events[-1]["data"]["reason"] == {"kind": "max-tokens"}
    assert not any((world.daemon.cwd / file).exists() for file in ("cut", "whole"))
    assert call_blocks(events)[0]["arguments"] == raw
    world.daemon.run(name, "go on")
    assistant, result, prompt = sent(world, name)
    assert [one["role"] for one in (assistant, result, prompt)] == ["assistant", "tool", "user"]
    assert isinstance(json.loads(assistant["tool_calls"][0]["function"]["arguments"]), dict)


@pytest.mark.parametrize(
    ("tool", "arguments", "result"),
    [
        ("nope", {}, 'Error: unknown tool "nope"; tools: bash, str_replace_editor'),
        (
            "Bash",
            {"command": "ls"},
            'Error: unknown tool "Bash" (did you mean "bash"?); tools: bash, str_replace_editor',
        ),
        ("bash", {"command": ["a"]}, 'Error: invalid arguments: "command" must be a string'),
    ],
)
def test_a_call_of_no_tool_or_with_a_wrong_type_is_one_short_error(
    world: World, tool: str, arguments: dict[str, Any], result: str
) -> None:
    """Case 29."""
    assert told(world.run(f"{tool} {arguments}", call("c1", tool, arguments))) == [result]


def test_an_extra_field_is_judged_by_the_schema_that_the_model_was_shown(world: World) -> None:
    """Case 29."""
    name = "extra field"
    events = world.run(name, call("c1", "bash", {"command": "echo A", "timeout": 5}))
    [bash, _] = world.model.received[name][0]["tools"]
    assert "additionalProperties" not in bash["function"]["parameters"], "so more is allowed"
    assert told(events) == ["A"]


def test_calls_that_share_a_shell_or_a_file_run_one_at_a_time_in_order(world: World) -> None:
    """Case 30."""
    events = world.run(
        "shell", calls(("c1", "bash", {"command": "cd /tmp"}), ("c2", "bash", {"command": "pwd"}))
    )
    assert told(events) == ["", "/tmp"]
    path = world.daemon.cwd / "f"
    path.write_text("one two\n")
    edits = [
        Call(
            "str_replace_editor", [json.dumps({"command": "str_replace", "path": str(path), **edit})], call_id
        )
        for call_id, edit in (
            ("c1", {"old_str": "one", "new_str": "two"}),
            ("c2", {"old_str": "two two", "new_str": "both"}),
        )
    ]
    events = world.run("file", Answer(calls=edits))
    assert [words.startswith("The file ") for words in told(events)] == [True, True]
    assert path.read_text() == "both\n"

"""The bytes of a request: exactly what the composition and the history say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordisd.services.chat.encode import (
    UnsupportedContentError,
    encode_body,
    encode_message,
    encode_tools,
    encode_wire,
)
from cordisd.services.tools import ToolSchema


def message(role: str, *content: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "content": list(content), "source": {"kind": "user"}, "id": "m"}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def result(*content: dict[str, Any]) -> dict[str, Any]:
    block = {"type": "tool-result", "toolCallId": "c1", "content": list(content), "isError": False}
    return message("user", block) | {"source": {"kind": "tool", "callId": "c1"}}


def call(arguments: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool-call", "id": "c1", "name": "bash", "arguments": arguments, **more}


def encoded(value: dict[str, Any], wire: Any = "sanitize") -> Any:
    data = encode_message(value, wire)
    assert data is not None
    return json.loads(data)


def test_a_user_message_is_its_text_blocks_joined() -> None:
    assert encoded(message("user", text("a"), text("b"))) == {"role": "user", "content": "ab"}
    assert encoded(message("user")) == {"role": "user", "content": ""}


def test_a_tool_result_names_its_call_and_an_empty_one_says_so() -> None:
    assert encoded(result(text("uid=0"))) == {"role": "tool", "tool_call_id": "c1", "content": "uid=0"}
    assert encoded(result())["content"] == "(no output)"
    assert encoded(result(text("")))["content"] == "(no output)"


def test_an_assistant_without_content_is_left_out() -> None:
    assert encode_message(message("assistant")) is None


def test_an_assistant_of_calls_only_has_empty_content() -> None:
    assert encode_message(message("assistant", call('{"a": 1}'))) == (
        b'{"role":"assistant","content":"","tool_calls":'
        b'[{"id":"c1","type":"function","function":{"name":"bash","arguments":"{\\"a\\": 1}"}}]}'
    )


def test_reasoning_goes_back_verbatim_under_its_own_name_even_when_empty() -> None:
    reasoning = {"type": "reasoning", "text": ""}
    assert encoded(message("assistant", reasoning, call("{}")))["reasoning_content"] == ""
    named = {"type": "reasoning", "text": "hm", "field": "reasoning"}
    assert encoded(message("assistant", named, text("x"))) == {
        "role": "assistant",
        "content": "x",
        "reasoning": "hm",
    }
    assert "reasoning_content" not in encoded(message("assistant", text("x")))


def test_facts_beside_a_call_stay_out_of_the_request() -> None:
    sent = encoded(message("assistant", call("{}", originalId="", argumentsEncoded=True, truncated=True)))
    assert sent["tool_calls"] == [
        {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    ]


@pytest.mark.parametrize(
    ("arguments", "sanitized"),
    [
        ('{"a": 1}', '{"a": 1}'),
        ("", "{}"),
        ('{"command": "ls', '{"_raw":"{\\"command\\": \\"ls"}'),
        ("null", '{"_raw":"null"}'),
        ("[]", '{"_raw":"[]"}'),
        ('"ls"', '{"_raw":"\\"ls\\""}'),
        ('{"a":NaN}', '{"_raw":"{\\"a\\":NaN}"}'),
        ("[" * 100_000, '{"_raw":"' + "[" * 100_000 + '"}'),
    ],
)
def test_arguments_that_are_no_object_are_wrapped_or_sent_raw(arguments: str, sanitized: str) -> None:
    for wire, expected in (("sanitize", sanitized), ("raw", arguments)):
        (made,) = encoded(message("assistant", call(arguments)), wire)["tool_calls"]
        assert made["function"]["arguments"] == expected


@given(st.text(max_size=20))
def test_sanitized_arguments_are_always_an_object_that_keeps_the_text(arguments: str) -> None:
    (made,) = encoded(message("assistant", call(arguments)))["tool_calls"]
    sent = made["function"]["arguments"]
    parsed = json.loads(sent)
    assert isinstance(parsed, dict)
    assert sent == arguments or parsed == {"_raw": arguments} or not arguments


@pytest.mark.parametrize(
    "value", [message("user", {"type": "image", "data": "x"}), result({"type": "image"})]
)
def test_an_image_is_refused_by_name(value: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedContentError, match="image"):
        encode_message(value)


def test_lone_surrogates_survive_as_escapes_and_everything_else_is_kept() -> None:
    assert encode_wire("é😀") == '"é😀"'.encode()
    assert json.loads(encode_wire("a\ud83d b\udc00 é😀")) == "a\ud83d b\udc00 é😀"
    assert encode_wire("a\ud83d") == b'"a\\ud83d"'


@given(st.text(alphabet=st.characters(), max_size=20))
def test_any_text_becomes_valid_utf_8_of_the_same_meaning(value: str) -> None:
    decoded = json.loads(encode_wire(value).decode("utf-8"))
    # Lone surrogates survive; two halves that stand together are one character, as in every JSON string.
    assert decoded == value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


BASH = ToolSchema("bash", "run", {"type": "object"})


def test_a_body_has_its_keys_in_the_published_order_and_nothing_else() -> None:
    user = encode_wire({"role": "user", "content": "ping"})
    before = {"thinking": {"type": "enabled"}, "reasoning_effort": "high"}
    after = {"temperature": 0.5, "max_tokens": 7, "stop": ["x"]}
    body = encode_body("m", "Be terse.", [user], before, encode_tools([BASH]), after)
    assert b"".join(body) == (
        b'{"model":"m","messages":[{"role":"system","content":"Be terse."},{"role":"user","content":"ping"}],'
        b'"stream":true,"stream_options":{"include_usage":true},"thinking":{"type":"enabled"},'
        b'"reasoning_effort":"high","tools":[{"type":"function","function":{"name":"bash","description":"run",'
        b'"parameters":{"type":"object"}}}],"temperature":0.5,"max_tokens":7,"stop":["x"]}'
    )


def test_an_empty_system_no_tools_and_no_parameters_leave_no_trace() -> None:
    body = encode_body("m", "", [b'{"role":"user","content":"a"}'], {}, encode_tools([]), {})
    assert b"".join(body) == (
        b'{"model":"m","messages":[{"role":"user","content":"a"}],"stream":true,'
        b'"stream_options":{"include_usage":true}}'
    )


def test_parameters_may_turn_the_stream_off_or_change_its_options() -> None:
    plain = json.loads(b"".join(encode_body("m", "", [], {}, None, {"stream": False, "x": 1})))
    assert plain == {"model": "m", "messages": [], "stream": False, "x": 1}
    changed = json.loads(b"".join(encode_body("m", "", [], {}, None, {"stream_options": {}})))
    assert changed == {"model": "m", "messages": [], "stream": True, "stream_options": {}}


def test_a_tool_list_is_encoded_anew_when_it_changes_even_in_place() -> None:
    tools = [ToolSchema("bash", "run", {"type": "object", "properties": {}})]
    first = encode_tools(tools)
    assert encode_tools([ToolSchema("bash", "run", {"type": "object", "properties": {}})]) == first
    tools[0].parameters["properties"]["x"] = {"type": "string"}
    second = encode_tools(tools)
    assert second is not None
    assert b'"x"' in second


def test_tool_lists_that_only_python_calls_equal_are_sent_as_they_are() -> None:
    schemas = [{"minimum": 1, "maximum": 2}, {"minimum": 1.0, "maximum": 2}, {"maximum": 2, "minimum": True}]
    lists = [[ToolSchema("t", "", schema)] for schema in schemas]
    assert lists[0] == lists[1] == lists[2]
    encoded = [(encode_tools(tools) or b"").split(b'"parameters":')[1] for tools in lists]
    assert encoded == [
        b'{"minimum":1,"maximum":2}}}]',
        b'{"minimum":1.0,"maximum":2}}}]',
        b'{"maximum":2,"minimum":true}}}]',
    ]

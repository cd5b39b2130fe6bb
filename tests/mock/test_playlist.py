"""Replies chosen by what a request says."""

from __future__ import annotations

import json
import re
from typing import Any

from cordisd.mock import Answer, Match, Playlist, RawReply, Received, Rule, text


def received(*messages: dict[str, Any], model: str = "m", **headers: str) -> Received:
    body = json.dumps({"model": model, "messages": messages}).encode()
    return Received("POST", "/v1/chat/completions", tuple(headers.items()), body, 0)


def user(said: object) -> dict[str, Any]:
    return {"role": "user", "content": said}


def tool(said: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": "c", "content": said}


CALL = {"role": "assistant", "content": None}


def rule(name: str, /, repeat: int | None = 1, is_default: bool = False, **patterns: str) -> Rule:
    match = Match(**{key: re.compile(pattern) for key, pattern in patterns.items()}) if patterns else None  # type: ignore[arg-type]
    return Rule(text(name), match, repeat, is_default)


def given(playlist: Playlist, *messages: dict[str, Any], **options: str) -> str | int:
    """The text of the reply, or the status of a refusal."""
    reply = playlist(received(*messages, **options))
    return reply.status if isinstance(reply, RawReply) else "".join(reply.text)


def test_replies_without_a_match_come_in_order_then_the_default_then_none() -> None:
    playlist = Playlist([rule("else", repeat=2, is_default=True), rule("a", repeat=2), rule("b")])
    assert [given(playlist, user("x")) for _ in range(6)] == ["a", "a", "b", "else", "else", 400]


def test_what_matches_comes_before_what_matches_everything() -> None:
    playlist = Playlist(
        [rule("any"), rule("rain", user="rain"), rule("weather", repeat=None, user="(?i)weather")]
    )
    assert given(playlist, user("Weather and rain?")) == "rain"
    assert [given(playlist, user("Weather and rain?")) for _ in range(3)] == ["weather"] * 3
    assert given(playlist, user("hello")) == "any"
    assert given(playlist, user("hello")) == 400


def test_the_last_user_message_counts_in_whatever_form_it_comes() -> None:
    playlist = Playlist([rule("hit", repeat=None, user="^second$")])
    parts = [{"type": "text", "text": "sec"}, {"type": "text", "text": "ond"}, {"type": "image_url"}]
    assert given(playlist, user("first"), user(parts)) == "hit"
    assert given(playlist, user("first"), user("second"), CALL, tool("x")) == "hit"
    assert given(playlist, user("second"), user("first")) == 400
    assert given(playlist) == 400


def test_a_tool_result_counts_where_the_request_ends_with_it() -> None:
    playlist = Playlist([rule("hit", repeat=None, tool="code: [1-9]")])
    assert given(playlist, user("x"), CALL, tool("exit code: 2"), tool("fine")) == "hit"
    assert given(playlist, user("x"), CALL, tool("exit code: 0")) == 400
    assert given(playlist, user("x"), CALL, tool("exit code: 2"), user("and now?")) == 400
    assert given(playlist, user("x"), CALL, tool("code: 2"), CALL, tool("code: 0")) == 400


def test_all_that_a_match_names_must_fit() -> None:
    match = Match(system=re.compile("brief"), model=re.compile("^m$"), headers={"X-Job": re.compile("a")})
    playlist = Playlist([Rule(Answer(text=["hit"]), match, None)])
    system = {"role": "system", "content": "be brief"}
    assert given(playlist, system, user("x"), **{"x-job": "a1"}) == "hit"
    assert given(playlist, user("x"), **{"x-job": "a1"}) == 400
    assert given(playlist, system, user("x"), **{"x-job": "b"}) == 400
    assert given(playlist, system, user("x")) == 400
    assert given(playlist, system, user("x"), model="m2", **{"x-job": "a1"}) == 400


def test_a_request_without_a_reply_is_told_what_was_asked() -> None:
    reply = Playlist([])(received(user("where is it?")))
    assert isinstance(reply, RawReply) and isinstance(reply.parts[0], bytes)
    assert b"no reply is left for 'where is it?'" in reply.parts[0]


def test_messages_that_are_none_match_nothing() -> None:
    odd = Received("POST", "/chat/completions", (), b'{"messages": ["x", 5, {"role": "tool"}]}', 0)
    assert [*odd.texts("tool")] == [""]
    assert Match(tool=re.compile("x")).fits(odd) is False

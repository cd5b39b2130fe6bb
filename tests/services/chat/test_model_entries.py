"""The two model entries, mounted: what their rows put into requests, and what they refuse."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import ValidationError

from cordisd import mock as mc
from cordisd.entries.llm_deepseek import LlmDeepseekEntry
from cordisd.entries.openai import OpenAIEntry
from cordisd.errors import CordisError, InvalidParamsError
from cordisd.kernel.entry import Entry
from cordisd.kernel.scope import Scope
from cordisd.mock import MockModel, Received
from cordisd.services.models import ModelInfo, ModelRegistry, ModelRequest, RequestConfig
from cordisd.services.secrets import SecretNames


def host() -> Scope:
    scope = Scope("host")
    scope.provide(ModelRegistry, ModelRegistry())
    scope.provide(SecretNames, SecretNames())
    return scope


def made(kind: type[Entry], row: dict[str, Any]) -> Entry:
    return kind(kind.read_config(row))


def ask(
    kind: type[Entry], row: dict[str, Any], monkeypatch: pytest.MonkeyPatch, model: str = "m", **given: Any
) -> Received:
    """The request that a session with these settings sends; unset ones come from the adapter."""

    async def scenario() -> Received:
        async with MockModel([mc.text("x")]) as mock:
            monkeypatch.setenv("DEEPSEEK_BASE_URL", mock.url + "/")
            scope = host()
            async with made(kind, row).mount(scope):
                provider = row.get("provider", "openai") if kind is OpenAIEntry else "deepseek-official"
                adapter = scope.get(ModelRegistry).get(provider)
                info = adapter.describe(model)
                config = RequestConfig(
                    provider,
                    model,
                    given.get("max_tokens", info.max_tokens),
                    given.get("reasoning_effort", info.reasoning_effort),
                )
                request = ModelRequest("s", "/", config, "", [], [b'{"role":"user","content":"a"}'])
                async for _ in adapter.stream(request):
                    pass
        return mock.requests[0]

    monkeypatch.setenv("DEEPSEEK_API_KEY", "k")
    return asyncio.run(scenario())


def extras(sent: Received) -> dict[str, Any]:
    body = sent.json
    assert list(body)[:4] == ["model", "messages", "stream", "stream_options"]
    return {
        key: value
        for key, value in body.items()
        if key not in ("model", "messages", "stream", "stream_options")
    }


def test_an_openai_row_that_says_nothing_sends_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = ask(OpenAIEntry, {}, monkeypatch)
    assert extras(sent) == {}
    assert sent.path == "/chat/completions"
    assert sent.header("authorization") == "Bearer k"


def test_parameters_and_headers_are_sent_as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = {"temperature": 0, "top_p": None, "chat_template_kwargs": {"a": [1]}, "max_tokens": 9}
    row = {"provider": "x", "parameters": parameters, "headers": {"X-A": "b", "Authorization": "Basic z"}}
    sent = ask(OpenAIEntry, row, monkeypatch)
    assert extras(sent) == parameters
    assert list(extras(sent)) == list(parameters)
    assert sent.header("x-a") == "b"
    assert [value for name, value in sent.headers if name.lower() == "authorization"] == ["Basic z"]


def test_the_clients_limits_take_the_place_of_written_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"parameters": {"max_tokens": 9, "seed": 1}, "models": [{"id": "m", "maxTokens": 5}]}
    assert extras(ask(OpenAIEntry, row, monkeypatch)) == {"max_tokens": 5, "seed": 1}
    assert extras(ask(OpenAIEntry, row, monkeypatch, model="other")) == {"max_tokens": 9, "seed": 1}
    given = ask(OpenAIEntry, row, monkeypatch, max_tokens=3, reasoning_effort="low")
    assert extras(given) == {"max_tokens": 3, "seed": 1, "reasoning_effort": "low"}


def test_a_limit_goes_under_the_newer_name_where_the_row_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = ask(OpenAIEntry, {"parameters": {"max_completion_tokens": 9}}, monkeypatch, max_tokens=3)
    assert extras(sent) == {"max_completion_tokens": 3}


def test_a_deepseek_row_sends_only_the_keys_that_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    assert extras(ask(LlmDeepseekEntry, {"models": [{"id": "m"}]}, monkeypatch)) == {}
    row = {"thinking": "enabled", "reasoningEffort": "max", "maxTokens": 7, "temperature": 1.5, "stop": ["x"]}
    sent = extras(ask(LlmDeepseekEntry, row, monkeypatch))
    assert sent == {
        "thinking": {"type": "enabled"},
        "reasoning_effort": "max",
        "temperature": 1.5,
        "max_tokens": 7,
        "stop": ["x"],
    }
    assert list(sent) == ["thinking", "reasoning_effort", "temperature", "max_tokens", "stop"]


@pytest.mark.parametrize(
    ("row", "given", "expected"),
    [
        ({}, {"reasoning_effort": "off"}, {"thinking": {"type": "disabled"}}),
        ({"thinking": "enabled"}, {"reasoning_effort": "off"}, {"thinking": {"type": "disabled"}}),
        ({"thinking": "disabled", "reasoningEffort": "high"}, {}, {"thinking": {"type": "disabled"}}),
        ({}, {"reasoning_effort": "low"}, {"reasoning_effort": "low"}),
        ({"maxTokens": 7, "models": [{"id": "m", "maxTokens": 5}]}, {}, {"max_tokens": 5}),
        ({"maxTokens": 7}, {"max_tokens": 1}, {"max_tokens": 1}),
    ],
)
def test_effort_thinking_and_limits_of_a_deepseek_row(
    row: dict[str, Any], given: dict[str, Any], expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert extras(ask(LlmDeepseekEntry, row, monkeypatch, **given)) == expected


def test_a_deepseek_row_describes_its_models_and_checks_efforts() -> None:
    async def scenario() -> None:
        scope = host()
        row = {"baseURL": "http://x", "defaultContextWindow": 9, "models": [{"id": "m", "contextWindow": 5}]}
        async with made(LlmDeepseekEntry, row).mount(scope):
            adapter = scope.get(ModelRegistry).get("deepseek-official")
            assert adapter.describe("m") == ModelInfo(context_window=5)
            assert adapter.describe("other") == ModelInfo(context_window=9)
            with pytest.raises(InvalidParamsError, match="off, low, high, max"):
                adapter.check_effort("m", "medium")

    asyncio.run(scenario())


def test_mounting_names_the_key_as_a_secret_and_unmounting_frees_the_provider() -> None:
    async def scenario() -> None:
        scope = host()
        async with made(OpenAIEntry, {"baseUrl": "http://x", "apiKeyEnv": "MY_KEY"}).mount(scope):
            assert scope.get(ModelRegistry).providers() == ["openai"]
            assert "MY_KEY" in scope.get(SecretNames).names
        assert scope.get(ModelRegistry).providers() == []
        async with made(OpenAIEntry, {}).mount(scope), made(LlmDeepseekEntry, {}).mount(scope):
            assert {"DEEPSEEK_API_KEY", "OPENAI_API_KEY"} <= scope.get(SecretNames).names

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", [OpenAIEntry, LlmDeepseekEntry])
def test_a_provider_that_is_taken_is_an_error_and_stays_with_its_owner(kind: type[Entry]) -> None:
    async def scenario() -> None:
        scope = host()
        async with made(OpenAIEntry, {"provider": "deepseek-official"}).mount(scope):
            owner = scope.get(ModelRegistry).get("deepseek-official")
            row = {"provider": "deepseek-official"} if kind is OpenAIEntry else {}
            with pytest.raises(CordisError, match='"deepseek-official" already has an adapter'):
                async with made(kind, row).mount(scope):
                    raise AssertionError("mounted")
            assert scope.get(ModelRegistry).get("deepseek-official") is owner

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"parameters": {"messages": []}}, '"messages" is set by the daemon'),
        ({"parameters": {"n": 2}}, "n must be 1"),
        ({"parameters": {"temperature": float("nan")}}, "not a JSON object"),
        ({"headers": {"bad name": "x"}}, '"bad name" cannot be set'),
        ({"headers": {"Content-Length": "1"}}, '"Content-Length" cannot be set'),
        ({"headers": {"x": "a\r\nb: c"}}, "printable ASCII"),
        ({"wireArguments": "fix"}, "sanitize"),
        ({"retryPolicy": {"tries": 1}}, "retryPolicy.tries"),
        ({"models": [{"name": "x"}]}, "models.0.id"),
        ({"maxInFlight": 0}, "maxInFlight"),
        ({"baseURL": "http://x"}, "baseURL"),
    ],
)
def test_a_row_that_cannot_mean_what_it_says_is_refused(row: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        OpenAIEntry.read_config(row)

"""URL and key are a pair: one vendor's key never meets the other's URL."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from cordisd.entries.openai import OpenAIConfig
from cordisd.services.chat.endpoint import CredentialError, Endpoint


def find(environ: dict[str, str], **row: Any) -> Endpoint:
    return OpenAIConfig.model_validate(row).find_endpoint(environ)


@pytest.mark.parametrize(
    ("environ", "url", "key"),
    [
        ({"DEEPSEEK_API_KEY": "d"}, "https://api.deepseek.com", "d"),
        ({"OPENAI_API_KEY": "o"}, "https://api.openai.com/v1", "o"),
        ({"DEEPSEEK_API_KEY": " d\n", "OPENAI_API_KEY": "o"}, "https://api.deepseek.com", "d"),
        ({"DEEPSEEK_BASE_URL": "http://d/", "DEEPSEEK_API_KEY": "d"}, "http://d", "d"),
        (
            {"OPENAI_BASE_URL": "http://o/v1//", "OPENAI_API_KEY": "o", "DEEPSEEK_API_KEY": " "},
            "http://o/v1",
            "o",
        ),
    ],
)
def test_the_environment_names_one_pair(environ: dict[str, str], url: str, key: str) -> None:
    assert find(environ) == Endpoint(url, key)
    assert find(environ).completions_url == url + "/chat/completions"


SET = st.sampled_from([None, "", " ", "set"])


@given(d_url=SET, d_key=SET, o_url=SET, o_key=SET, row_url=st.booleans())
def test_no_environment_sends_a_key_to_the_others_url(
    d_url: str | None, d_key: str | None, o_url: str | None, o_key: str | None, row_url: bool
) -> None:
    wanted = {
        "DEEPSEEK_BASE_URL": d_url and d_url.replace("set", "http://d"),
        "DEEPSEEK_API_KEY": d_key and d_key.replace("set", "d-key"),
        "OPENAI_BASE_URL": o_url and o_url.replace("set", "http://o"),
        "OPENAI_API_KEY": o_key and o_key.replace("set", "o-key"),
    }
    environ = {name: value for name, value in wanted.items() if value is not None}
    try:
        found = find(environ, **({"baseUrl": "http://row"} if row_url else {}))
    except CredentialError as error:
        assert error.code == "MISSING_CREDENTIAL"
        assert not row_url
    else:
        pairs = {"http://d": "d-key", "https://api.deepseek.com": "d-key", "http://row": None,
                 "http://o": "o-key", "https://api.openai.com/v1": "o-key"}  # fmt: skip
        assert found.key == pairs[found.base_url]


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({"DEEPSEEK_BASE_URL": "http://d", "OPENAI_API_KEY": "o"}, "DEEPSEEK_API_KEY is not set"),
        ({"DEEPSEEK_BASE_URL": "http://d", "DEEPSEEK_API_KEY": " "}, "DEEPSEEK_API_KEY is blank"),
        ({"OPENAI_BASE_URL": "http://o"}, "OPENAI_API_KEY is not set"),
        ({}, "neither DEEPSEEK_API_KEY nor DEEPSEEK_BASE_URL is set"),
    ],
)
def test_a_missing_key_names_its_variable(environ: dict[str, str], named: str) -> None:
    with pytest.raises(CredentialError, match=named) as caught:
        find(environ)
    assert caught.value.code == "MISSING_CREDENTIAL"


@pytest.mark.parametrize("key", ["sché", "a\x07b", "a\nb"])
def test_a_key_that_no_header_can_carry_is_invalid_and_not_shown(key: str) -> None:
    with pytest.raises(CredentialError, match="DEEPSEEK_API_KEY") as caught:
        find({"DEEPSEEK_API_KEY": key})
    assert caught.value.code == "INVALID_CREDENTIAL"
    assert key not in str(caught.value)


def test_a_row_may_name_url_and_key() -> None:
    environ = {"MY_KEY": "k", "OPENAI_API_KEY": "o"}
    assert find(environ, baseUrl="http://h/v1/", apiKeyEnv="MY_KEY") == Endpoint("http://h/v1", "k")


def test_a_row_that_names_only_the_key_gets_the_url_of_its_pair() -> None:
    environ = {"DEEPSEEK_API_KEY": "d", "OPENAI_API_KEY": "o"}
    assert find(environ, apiKeyEnv="OPENAI_API_KEY") == Endpoint("https://api.openai.com/v1", "o")


def test_a_row_that_names_only_the_url_gets_the_key_of_its_pair_or_none() -> None:
    environ = {"DEEPSEEK_API_KEY": "d", "OPENAI_API_KEY": "o", "OPENAI_BASE_URL": "http://o/v1/"}
    assert find(environ, baseUrl="https://api.deepseek.com/") == Endpoint("https://api.deepseek.com", "d")
    assert find(environ, baseUrl="http://o/v1") == Endpoint("http://o/v1", "o")
    assert find(environ, baseUrl="http://elsewhere") == Endpoint("http://elsewhere", None)


def test_a_null_key_variable_sends_no_key_to_any_url() -> None:
    environ = {"DEEPSEEK_API_KEY": "d", "DEEPSEEK_BASE_URL": "http://d"}
    assert find(environ, apiKeyEnv=None) == Endpoint("http://d", None)
    assert find(environ, apiKeyEnv=None, baseUrl="http://h") == Endpoint("http://h", None)


def test_a_key_of_its_own_without_a_url_is_refused_at_load() -> None:
    with pytest.raises(ValidationError, match='"MY_KEY" needs a baseUrl'):
        OpenAIConfig.model_validate({"apiKeyEnv": "MY_KEY"})

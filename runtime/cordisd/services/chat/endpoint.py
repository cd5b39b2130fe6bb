"""Where a model request goes and with which key: always chosen as a pair, read when the request is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from cordisd.errors import CordisError


class Pair(NamedTuple):
    """One vendor's environment variables and the URL that they stand for when no other is given."""

    url_env: str
    key_env: str
    default_url: str


DEEPSEEK = Pair("DEEPSEEK_BASE_URL", "DEEPSEEK_API_KEY", "https://api.deepseek.com")
OPENAI = Pair("OPENAI_BASE_URL", "OPENAI_API_KEY", "https://api.openai.com/v1")


class Endpoint(NamedTuple):
    """A base URL without trailing slash, and the key for it; None sends none."""

    base_url: str
    key: str | None

    @property
    def completions_url(self) -> str:
        """Where chat completions are posted to."""
        return f"{self.base_url}/chat/completions"


OFFLINE = Endpoint("recording:", None)
"""The endpoint of requests that are not sent."""


class CredentialError(CordisError):
    """There is no usable key. `code` is `MISSING_CREDENTIAL` or `INVALID_CREDENTIAL`."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


def find_pair(environ: Mapping[str, str]) -> Pair:
    """DeepSeek's pair if either of its variables is set (not blank), else OpenAI's."""
    deepseek = _value(environ, DEEPSEEK.url_env) or _value(environ, DEEPSEEK.key_env)
    return DEEPSEEK if deepseek else OPENAI


def url_of(pair: Pair, environ: Mapping[str, str]) -> str:
    """The pair's base URL in this environment."""
    return _trimmed(_value(environ, pair.url_env) or pair.default_url)


def with_key(base_url: str, key_env: str | None, environ: Mapping[str, str], hint: str = "") -> Endpoint:
    """`base_url` with the key in variable `key_env`; None for no key.

    Raises:
        CredentialError: the variable is unset, blank, or holds what no header can carry.
    """
    base_url = _trimmed(base_url)
    if key_env is None:
        return Endpoint(base_url, None)
    key = _value(environ, key_env)
    if not key:
        absence = "blank" if key_env in environ else "not set"
        message = f"no API key for {base_url}: environment variable {key_env} is {absence}{hint}"
        raise CredentialError(message, "MISSING_CREDENTIAL")
    if not (key.isascii() and key.isprintable()):
        raise CredentialError(
            f"the API key in environment variable {key_env} holds characters other than printable ASCII",
            "INVALID_CREDENTIAL",
        )
    return Endpoint(base_url, key)


def from_pairs(environ: Mapping[str, str]) -> Endpoint:
    """URL and key of the pair that the environment names.

    Raises:
        CredentialError: its key is missing or unusable.
    """
    pair = find_pair(environ)
    hint = ""
    if pair is OPENAI and not _value(environ, OPENAI.url_env):
        hint = f" (and neither {DEEPSEEK.key_env} nor {DEEPSEEK.url_env} is set)"
    return with_key(url_of(pair, environ), pair.key_env, environ, hint)


def for_url(base_url: str, environ: Mapping[str, str]) -> Endpoint:
    """`base_url` with the key of the pair that this URL belongs to; with none if it belongs to neither.

    Raises:
        CredentialError: the pair's key is missing or unusable.
    """
    wanted = _trimmed(base_url)
    for pair in (DEEPSEEK, OPENAI):
        if wanted in (pair.default_url, url_of(pair, environ)):
            return with_key(wanted, pair.key_env, environ)
    return Endpoint(wanted, None)


def pair_of_key(key_env: str | None) -> Pair | None:
    """The pair that variable `key_env` belongs to, or None."""
    return next((pair for pair in (DEEPSEEK, OPENAI) if pair.key_env == key_env), None)


def _value(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name, "").strip()


def _trimmed(url: str) -> str:
    return url.strip().rstrip("/")

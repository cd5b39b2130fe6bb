"""`openai`: a model behind any OpenAI-style chat-completions server."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from cordisd.events import JsonObject
from cordisd.kernel.entry import Entry
from cordisd.kernel.scope import Scope
from cordisd.services.chat import endpoint
from cordisd.services.chat.adapter import CatalogModel, ChatAdapter, ChatSettings
from cordisd.services.models import (
    ModelInfo,
    ModelRegistry,
    Prices,
    RequestConfig,
    check_parameters,
    limit_name,
)
from cordisd.services.retry import RetryPolicy
from cordisd.services.secrets import SecretNames
from cordisd.services.traffic import Traffic
from cordisd.settings import EntryConfig, Milliseconds, PositiveInt

Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]

_OWN_HEADERS = frozenset({"host", "content-length", "transfer-encoding", "connection"})


class ModelRow(EntryConfig):
    """One model of the catalog. Models outside it are served too, without limits of their own."""

    id: str = Field(min_length=1)
    """The model's name on the wire."""
    name: str | None = None
    """A name for people."""
    description: str | None = None
    """A description for people."""
    context_window: PositiveInt | None = None
    """Tokens of prompt and answer together; told to clients, never sent."""
    max_tokens: PositiveInt | None = None
    """Limit of one answer in tokens; sent unless the client sets another."""
    input_modalities: list[str] = ["text"]
    """What a prompt may hold. This adapter sends text."""
    reasoning_efforts: list[str] | None = None
    """Reasoning efforts that a client may ask for; absent: any."""
    default_reasoning_effort: str | None = None
    """Reasoning effort, sent unless the client sets another."""


class PriceRow(EntryConfig):
    """What a million tokens of a model cost, in any currency: that of `maxCost`."""

    input: Price
    """Of the prompt."""
    cached_input: Price | None = None
    """Of the part of the prompt that the server had in its cache; absent: as the rest."""
    output: Price
    """Of the answer, reasoning included."""


class OpenAIConfig(EntryConfig):
    """Configuration of the `openai` entry. A request holds what is written here, and nothing else."""

    provider: str = Field(default="openai", min_length=1)
    """The provider name that clients choose this model entry by."""
    models: list[ModelRow] = []
    """Known models and their limits."""
    prices: dict[str, PriceRow] = {}
    """Prices by model, for `maxCost` and the cost in `session/get`; never sent."""
    base_url: str | None = None
    """Base URL; absent: that of DEEPSEEK_BASE_URL / DEEPSEEK_API_KEY if either is set, else of OPENAI_…"""
    api_key_env: str | None = Field(default=None, min_length=1)
    """Variable that holds the key. Null: no key is sent. Absent: the variable that belongs to the URL."""
    parameters: JsonObject = {}
    """Members of the request body, sent as they are written."""
    headers: dict[str, str] = {}
    """Headers of the request, sent as they are written."""
    wire_arguments: Literal["sanitize", "raw"] = "sanitize"
    """`sanitize` wraps tool-call arguments that are no JSON object when they go back; `raw` does not."""
    stream_idle_timeout_ms: Milliseconds = 300_000
    """A stream silent for this long has failed; comments count as life. 0: never."""
    connect_timeout_ms: Milliseconds = 30_000
    """A connection not made after this long has failed. 0: never."""
    retry_policy: RetryPolicy = RetryPolicy()
    """Which failures are retried."""
    max_in_flight: PositiveInt | None = None
    """Requests under way at once; more wait their turn. Absent: no limit."""

    @field_validator("parameters")
    @classmethod
    def _are_parameters(cls, parameters: JsonObject) -> JsonObject:
        return check_parameters(parameters)

    @field_validator("headers")
    @classmethod
    def _are_headers(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) or name.lower() in _OWN_HEADERS:
                raise ValueError(f'"{name}" cannot be set as a header')
            if not (value.isascii() and value.isprintable()):
                raise ValueError(f'the value of header "{name}" holds characters other than printable ASCII')
        return headers

    @model_validator(mode="after")
    def _key_has_a_url(self) -> OpenAIConfig:
        known = {pair.key_env for pair in (endpoint.DEEPSEEK, endpoint.OPENAI)}
        if self.api_key_env is not None and self.base_url is None and self.api_key_env not in known:
            raise ValueError(
                f'apiKeyEnv "{self.api_key_env}" needs a baseUrl: a key is never sent to another\'s URL'
            )
        return self

    @property
    def key_is_chosen(self) -> bool:
        """`apiKeyEnv` is written in the row, be it null."""
        return "api_key_env" in self.model_fields_set

    def find_endpoint(self, environ: Mapping[str, str]) -> endpoint.Endpoint:
        """URL and key for an environment.

        Raises:
            CredentialError: the key is missing or unusable.
        """
        base_url = self.base_url
        if not self.key_is_chosen:
            return endpoint.from_pairs(environ) if base_url is None else endpoint.for_url(base_url, environ)
        if base_url is None:
            pair = endpoint.pair_of_key(self.api_key_env) or endpoint.find_pair(environ)
            base_url = endpoint.url_of(pair, environ)
        return endpoint.with_key(base_url, self.api_key_env, environ)


class OpenAIEntry(Entry):
    """Serves one provider with a chat-completions adapter."""

    Config = OpenAIConfig
    needs = (ModelRegistry,)

    config: OpenAIConfig

    @asynccontextmanager
    async def mount(self, scope: Scope) -> AsyncIterator[None]:
        """Serve the provider; the key's variable becomes a secret of the daemon."""
        config = self.config
        limits = _written(config.parameters)
        other = CatalogModel(limits)
        models = {row.id: _catalog_model(row, limits) for row in config.models}
        settings = ChatSettings(
            provider=config.provider,
            find_endpoint=config.find_endpoint,
            parameters=partial(request_parameters, config.parameters),
            models=priced(models, other, config.prices),
            other_models=other,
            headers=config.headers,
            wire_arguments=config.wire_arguments,
            idle_timeout_s=seconds_or_none(config.stream_idle_timeout_ms),
            connect_timeout_s=seconds_or_none(config.connect_timeout_ms),
            max_in_flight=config.max_in_flight,
            retry_policy=config.retry_policy,
        )
        pairs = (endpoint.DEEPSEEK.key_env, endpoint.OPENAI.key_env)
        async with served(scope, settings, (config.api_key_env,) if config.api_key_env else pairs):
            yield


@asynccontextmanager
async def served(scope: Scope, settings: ChatSettings, key_names: Iterable[str]) -> AsyncIterator[None]:
    """An adapter of `settings` in the scope's registry, while the context lasts.

    Raises:
        CordisError: the provider is taken.
    """
    adapter = ChatAdapter(settings, traffic=scope.find(Traffic))
    remove = scope.get(ModelRegistry).add(adapter)
    try:
        if secrets := scope.find(SecretNames):
            secrets.names.update(key_names)
        yield
    finally:
        remove()
        await adapter.close()


def request_parameters(written: JsonObject, config: RequestConfig) -> tuple[JsonObject, JsonObject]:
    """The body members before and after `tools`: those written, with the session's limits in their place."""
    parameters = dict(written)
    if config.max_tokens is not None:
        parameters[limit_name(written)] = config.max_tokens
    if config.reasoning_effort is not None:
        parameters["reasoning_effort"] = config.reasoning_effort
    return {}, parameters


def priced(
    models: dict[str, CatalogModel], other: CatalogModel, prices: Mapping[str, PriceRow]
) -> dict[str, CatalogModel]:
    """The catalog with the prices in it; a priced model that it does not list is as `other`."""
    found = dict(models)
    for model, row in prices.items():
        info, efforts = models.get(model, other)
        prices_of_it = Prices(row.input, row.output, row.cached_input)
        found[model] = CatalogModel(info._replace(prices=prices_of_it), efforts)
    return found


def seconds_or_none(limit_ms: float) -> float | None:
    """A limit in seconds; None, no limit, for 0."""
    return limit_ms / 1000 if limit_ms else None


def _written(parameters: JsonObject) -> ModelInfo:
    """The limits that a row's parameters set for every model."""
    max_tokens, effort = parameters.get(limit_name(parameters)), parameters.get("reasoning_effort")
    return ModelInfo(
        max_tokens=max_tokens if type(max_tokens) is int else None,
        reasoning_effort=effort if isinstance(effort, str) else None,
    )


def _catalog_model(row: ModelRow, limits: ModelInfo) -> CatalogModel:
    info = ModelInfo(
        context_window=row.context_window,
        max_tokens=row.max_tokens or limits.max_tokens,
        reasoning_effort=row.default_reasoning_effort or limits.reasoning_effort,
    )
    return CatalogModel(info, None if row.reasoning_efforts is None else tuple(row.reasoning_efforts))

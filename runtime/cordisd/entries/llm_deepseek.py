"""`dsh-llm-deepseek`: the published model row, with its keys; it sends only the keys that are written."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Literal

from pydantic import AliasChoices, Field

from cordisd.entries.openai import ModelRow, PriceRow, priced, seconds_or_none, served
from cordisd.events import JsonObject
from cordisd.kernel.entry import Entry
from cordisd.kernel.scope import Scope
from cordisd.services.chat import endpoint
from cordisd.services.chat.adapter import CatalogModel, ChatSettings
from cordisd.services.models import ModelInfo, ModelRegistry, RequestConfig
from cordisd.services.retry import RetryPolicy
from cordisd.settings import EntryConfig, Milliseconds, PositiveInt

Effort = Literal["off", "low", "high", "max"]

PROVIDER = "deepseek-official"
EFFORTS = ("off", "low", "high", "max")


class LlmDeepseekConfig(EntryConfig):
    """The published configuration. Defaults that the reference sends on its own are not sent here."""

    api_key_env: str = Field(default=endpoint.DEEPSEEK.key_env, min_length=1)
    """Variable that holds the key."""
    base_url: str | None = Field(default=None, validation_alias=AliasChoices("baseURL", "baseUrl"))
    """Base URL; absent: DEEPSEEK_BASE_URL, else https://api.deepseek.com."""
    thinking: Literal["enabled", "disabled"] | None = None
    """Whether the model thinks before it answers; `disabled` sends no reasoning effort."""
    reasoning_effort: Effort | None = None
    """How much it thinks; `off` disables thinking."""
    max_tokens: PositiveInt | None = None
    """Limit of one answer in tokens, where neither the client nor the catalog sets one."""
    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Sampling temperature."""
    stop: str | list[str] | None = None
    """Texts that end an answer."""
    default_context_window: PositiveInt = 1_000_000
    """Context window in tokens of models that the catalog does not list."""
    models: list[ModelRow] = []
    """Known models and their limits."""
    prices: dict[str, PriceRow] = {}
    """Prices by model, for `maxCost` and the cost in `session/get`; never sent."""
    stream_idle_timeout_ms: Milliseconds = 300_000
    """A stream silent for this long has failed; comments count as life. 0: never."""
    retry_policy: RetryPolicy = RetryPolicy()
    """Which failures are retried."""

    def find_endpoint(self, environ: Mapping[str, str]) -> endpoint.Endpoint:
        """URL and key for an environment.

        Raises:
            CredentialError: the key is missing or unusable.
        """
        base_url = self.base_url or endpoint.url_of(endpoint.DEEPSEEK, environ)
        return endpoint.with_key(base_url, self.api_key_env, environ)

    def request_parameters(self, config: RequestConfig) -> tuple[JsonObject, JsonObject]:
        """The body members before and after `tools`, in the published order."""
        before: JsonObject = {}
        effort = config.reasoning_effort
        thinking = "disabled" if effort == "off" else self.thinking
        if thinking is not None:
            before["thinking"] = {"type": thinking}
        if effort is not None and thinking != "disabled":
            before["reasoning_effort"] = effort
        after = {"temperature": self.temperature, "max_tokens": config.max_tokens, "stop": self.stop}
        return before, {name: value for name, value in after.items() if value is not None}

    def catalog_model(self, row: ModelRow) -> CatalogModel:
        """What this configuration says of one model of its catalog."""
        info = ModelInfo(
            context_window=row.context_window or self.default_context_window,
            max_tokens=row.max_tokens or self.max_tokens,
            reasoning_effort=row.default_reasoning_effort or self.reasoning_effort,
        )
        return CatalogModel(info, tuple(row.reasoning_efforts or EFFORTS))


class LlmDeepseekEntry(Entry):
    """Serves provider `deepseek-official` as the published plug-in does."""

    Config = LlmDeepseekConfig
    needs = (ModelRegistry,)
    lenient = True

    config: LlmDeepseekConfig

    @asynccontextmanager
    async def mount(self, scope: Scope) -> AsyncIterator[None]:
        """Serve the provider; the key's variable becomes a secret of the daemon."""
        config = self.config
        info = ModelInfo(config.default_context_window, config.max_tokens, config.reasoning_effort)
        other = CatalogModel(info, EFFORTS)
        settings = ChatSettings(
            provider=PROVIDER,
            find_endpoint=config.find_endpoint,
            parameters=config.request_parameters,
            models=priced({row.id: config.catalog_model(row) for row in config.models}, other, config.prices),
            other_models=other,
            idle_timeout_s=seconds_or_none(config.stream_idle_timeout_ms),
            retry_policy=config.retry_policy,
        )
        async with served(scope, settings, (config.api_key_env,)):
            yield

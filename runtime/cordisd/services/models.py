"""Model adapters: how the agent loop asks a model, whatever stands behind it.

Chunks are JSON objects in the shape of the log (`protocol.md` 3.5), so that they are logged as they are:

    {"type": "block-start", "index": 0, "blockType": "text" | "reasoning" | "tool-call"}
    {"type": "text-delta", "index": 0, "text": "he"}
    {"type": "reasoning-delta", "index": 0, "text": "hm"}
    {"type": "tool-call-delta", "index": 1, "id": "c1", "name": "bash", "argumentsDelta": "{"}
    {"type": "block-end", "index": 0, "block": {...}}
    {"type": "usage", "usage": {"inputTokens": 20, ...}}
    {"type": "finish", "reason": {"kind": "stop" | "tool-calls" | "max-tokens"}}
    {"type": "finish", "reason": {"kind": "error", "failure": {...}}}

Exactly one `finish` ends an attempt. `finishReason: null` in a finish chunk says that the server named none.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

from cordisd.errors import CordisError, nearest
from cordisd.events import JsonObject, encode_json
from cordisd.services.retry import RetryPolicy
from cordisd.services.tools import ToolSchema

Chunk = dict[str, Any]
OWN_PARAMETERS: Final = frozenset({"model", "messages", "tools"})
"""Members of a request body that the daemon sets itself."""

LIMIT_NAMES: Final = frozenset({"max_tokens", "max_completion_tokens"})
"""The two names of the parameter that limits an answer; a request carries one of them."""


def check_parameters(parameters: JsonObject) -> JsonObject:
    """`parameters` if they can be members of a request body.

    Raises:
        ValueError: one is the daemon's own, or is not JSON.
    """
    if taken := sorted(OWN_PARAMETERS & parameters.keys()):
        raise ValueError(f'"{taken[0]}" is set by the daemon and cannot be a parameter')
    if parameters.get("n") not in (None, 1):
        raise ValueError("n must be 1: a step has one answer")
    try:
        encode_json(parameters)
    except (TypeError, ValueError) as error:
        raise ValueError(f"not a JSON object: {error}") from error
    return parameters


def limit_name(parameters: Mapping[str, Any]) -> str:
    """The parameter that limits an answer. Some servers take only the newer name; who writes it says so."""
    return "max_completion_tokens" if "max_completion_tokens" in parameters else "max_tokens"


class RequestConfig(NamedTuple):
    """The model settings of one session, as logged in `request/header`.

    `adapter_defaults` names the values that the adapter supplied because the client gave none.
    """

    provider: str
    model: str
    max_tokens: int | None = None
    reasoning_effort: str | None = None
    adapter_defaults: frozenset[str] = frozenset()
    parameters: Mapping[str, Any] = MappingProxyType({})
    """Members of the request body that the session's agent sets, over those of the model's row."""

    @property
    def chosen_max_tokens(self) -> int | None:
        """The limit that a client has set."""
        return None if "maxTokens" in self.adapter_defaults else self.max_tokens

    @property
    def chosen_effort(self) -> str | None:
        """The reasoning effort that a client has set."""
        return None if "reasoningEffort" in self.adapter_defaults else self.reasoning_effort


class ModelRequest(NamedTuple):
    """One request, complete. `messages` are encoded by the adapter's own `encode_message`."""

    session_id: str
    cwd: str
    config: RequestConfig
    system: str
    tools: Sequence[ToolSchema]
    messages: Sequence[bytes]
    call_ids: Container[str] = frozenset()
    """Tool-call ids that the session has used; a new call gets another one."""


class Prices(NamedTuple):
    """What a million tokens of a model cost, in whatever currency the composition has in mind."""

    input: float
    output: float
    cached_input: float | None = None
    """Of input that the server had in its cache; None: as other input."""

    def cost(self, usage: Mapping[str, int]) -> float:
        """What these tokens, by the names of `Usage`, cost."""
        cached_price = self.input if self.cached_input is None else self.cached_input
        read = usage.get("inputTokens", 0) * self.input + usage.get("cacheReadTokens", 0) * cached_price
        return (read + usage.get("outputTokens", 0) * self.output) / 1_000_000


class ModelInfo(NamedTuple):
    """What an adapter tells of one model before it is asked. `context_window` in tokens."""

    context_window: int | None = None
    max_tokens: int | None = None
    reasoning_effort: str | None = None
    prices: Prices | None = None
    """None: nobody has said what it costs."""


class ModelAdapter(Protocol):
    """Speaks to one provider. A subclass writes `provider`, `encode_request` and `stream`, if that is all."""

    @property
    def provider(self) -> str: ...

    @property
    def retry_policy(self) -> RetryPolicy:
        return RetryPolicy()

    def describe(self, model: str) -> ModelInfo:
        """Limits of `model`; also of one that the catalog does not list."""
        return ModelInfo()

    def check_effort(self, model: str, effort: str) -> None:
        """Raise `InvalidParamsError` when `model` does not support the reasoning effort."""
        return

    def parameters(self, config: RequestConfig) -> JsonObject:
        """Every parameter that a request of this configuration carries, for the log."""
        return dict(config.parameters)

    def encode_message(self, message: JsonObject) -> bytes | None:
        """One surface message (user, assistant or tool) as JSON for this provider; None to leave it out.

        Always the same for the same message. May be called in another thread.
        """
        return encode_json(message)

    def encode_request(self, request: ModelRequest) -> bytes:
        """The body of the request as it goes to the model, byte for byte."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Chunk]]:
        """Chunks in batches, one batch per read from the network, ended by one `finish`.

        Failures come as a `finish` of kind `error`, never as an exception. Closing the iterator, or
        cancelling the task that reads it, releases the connection.
        """
        ...


@dataclass(slots=True)
class ModelRegistry:
    """The adapters of the daemon, by provider."""

    _adapters: dict[str, ModelAdapter] = field(default_factory=dict)

    def add(self, adapter: ModelAdapter) -> Callable[[], None]:
        """Serve `adapter.provider` from now on; the returned function takes it back.

        Raises:
            CordisError: the provider is taken.
        """
        provider = adapter.provider
        if provider in self._adapters:
            raise CordisError(f'provider "{provider}" already has an adapter')
        self._adapters[provider] = adapter

        def remove() -> None:
            self._adapters.pop(provider, None)

        return remove

    def get(self, provider: str) -> ModelAdapter:
        """The adapter of `provider`.

        Raises:
            CordisError: there is none; the message lists those there are.
        """
        if provider not in self._adapters:
            known = ", ".join(sorted(self._adapters)) or "(none)"
            raise CordisError(
                f'no adapter registered for provider "{provider}"{nearest(provider, self._adapters)}; '
                f"registered providers: {known}"
            )
        return self._adapters[provider]

    def prices(self, provider: str, model: str) -> Prices | None:
        """What a model costs; None if nobody has said so, or nobody serves it any more."""
        adapter = self._adapters.get(provider)
        return None if adapter is None else adapter.describe(model).prices

    def providers(self) -> list[str]:
        """The providers served, sorted."""
        return sorted(self._adapters)

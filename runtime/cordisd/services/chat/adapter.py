"""The model adapter that speaks OpenAI-style chat completions.

HTTP is aiohttp, by measurement (Python 3.11, 2 cores, loopback, CPU of our side): a request with a short
streamed answer takes 0.5 ms, all of this package included, against 0.9 ms over httpx2; a chunk of a long
stream takes 5 µs. Its import costs 65 ms where httpx2's costs 40, so it is left to the first request.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from cordisd import __version__
from cordisd.errors import InvalidParamsError, nearest
from cordisd.events import Failure, JsonObject
from cordisd.services.chat.assemble import failed
from cordisd.services.chat.completion import CompletionStream
from cordisd.services.chat.encode import (
    WireArguments,
    encode_body,
    encode_message,
    encode_tools,
)
from cordisd.services.chat.endpoint import OFFLINE, CredentialError, Endpoint
from cordisd.services.chat.failures import RequestFault, http_failure, secrets_of, without_secrets
from cordisd.services.models import LIMIT_NAMES, Chunk, ModelInfo, ModelRequest, RequestConfig
from cordisd.services.retry import RetryPolicy

if TYPE_CHECKING:
    from cordisd.services.traffic import Response, Traffic, Transport


MAX_ERROR_BODY_BYTES = 64 * 1024

_AFTER_ANSWER_S = 15.0
"""How long usage and `[DONE]` are waited for after a finish reason; the idle timeout may be days."""


class CatalogModel(NamedTuple):
    """What a composition says of one model. `efforts` None: any reasoning effort is passed on."""

    info: ModelInfo
    efforts: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """One provider: where it is, what it serves, what a request says besides messages and tools."""

    provider: str
    find_endpoint: Callable[[Mapping[str, str]], Endpoint]
    """The endpoint for an environment; raises `CredentialError`. Asked at each request."""
    parameters: Callable[[RequestConfig], tuple[JsonObject, JsonObject]]
    """Body members for a session's settings: those before `tools`, and those after."""
    models: Mapping[str, CatalogModel] = field(default_factory=dict)
    other_models: CatalogModel = CatalogModel(ModelInfo())  # noqa: RUF009 - a record, never changed
    """Stands for every model that `models` does not list."""
    headers: Mapping[str, str] = field(default_factory=dict)
    wire_arguments: WireArguments = "sanitize"
    idle_timeout_s: float | None = 300.0
    connect_timeout_s: float | None = 30.0
    max_in_flight: int | None = None
    retry_policy: RetryPolicy = field(default_factory=RetryPolicy)


class ChatAdapter:
    """Serves one provider; a `ModelAdapter`. Leave it with `close`."""

    def __init__(
        self,
        settings: ChatSettings,
        environ: Mapping[str, str] = os.environ,
        traffic: Traffic | None = None,
    ) -> None:
        self._settings = settings
        self._environ = environ
        self._traffic = traffic
        self._transport: Transport | None = None
        self._places = asyncio.Semaphore(settings.max_in_flight) if settings.max_in_flight else None

    @property
    def provider(self) -> str:
        return self._settings.provider

    @property
    def retry_policy(self) -> RetryPolicy:
        return self._settings.retry_policy

    def describe(self, model: str) -> ModelInfo:
        """Limits of `model`; those of an unlisted one are the provider's defaults."""
        return self._catalog_model(model).info

    def check_effort(self, model: str, effort: str) -> None:
        """Raise `InvalidParamsError` when `model` does not support the reasoning effort."""
        efforts = self._catalog_model(model).efforts
        if not effort.strip() or (efforts is not None and effort not in efforts):
            allowed = "a non-empty string" if efforts is None else f"one of {', '.join(efforts)}"
            raise InvalidParamsError(
                f'reasoningEffort "{effort}" is not supported by model "{model}" of provider '
                f'"{self.provider}"; it must be {allowed}{nearest(effort, efforts or ())}'
            )

    def parameters(self, config: RequestConfig) -> JsonObject:
        """Every parameter that the composition, or the client, has written into the request."""
        before_tools, after_tools = self._parameters(config)
        return {**before_tools, **after_tools}

    def encode_message(self, message: JsonObject) -> bytes | None:
        """One surface message as a chat message; None for an assistant without content.

        Raises:
            UnsupportedContentError: it holds something other than text.
        """
        return encode_message(message, self._settings.wire_arguments)

    def encode_request(self, request: ModelRequest) -> bytes:
        """The body that `stream` posts for this request."""
        return b"".join(self._body(request))

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Chunk]]:
        """Chunks in batches, one batch per read from the network, ended by one `finish`."""
        async with AsyncExitStack() as held:
            if self._places is not None:
                await held.enter_async_context(self._places)
            try:
                endpoint = self._endpoint()
            except CredentialError as error:
                yield [failed({"message": str(error), "code": error.code})]
                return
            headers = self._headers(endpoint)
            body = self._body(request)
            completion = CompletionStream(
                request.call_ids.__contains__, first_call_number=len(request.messages) + 1
            )
            try:
                response = await self._connected().post(request, endpoint.completions_url, headers, body)
                held.callback(response.close)
                if 200 <= response.status < 300:
                    while not completion.finished:
                        if chunks := await _next_chunks(response, completion):
                            yield self._clean(chunks, headers)
                    await response.drain()
                    return
                error_body = await response.read_up_to(MAX_ERROR_BODY_BYTES)
                failure = http_failure(
                    response.status, response.headers, error_body, endpoint.completions_url
                )
                if endpoint.key is None and endpoint is not OFFLINE and failure["code"] == "AUTH":
                    failure["message"] += " (the composition names no API key for this URL, so none was sent)"
            except RequestFault as fault:
                failure = fault.failure
            # A connection that breaks after the finish reason takes nothing from the answer.
            chunks = completion.end() if completion.answered else completion.fail(failure)
            yield self._clean(chunks, headers)

    async def close(self) -> None:
        """Close the connections; a later request opens new ones."""
        transport, self._transport = self._transport, None
        if transport is not None:
            await transport.close()

    def _catalog_model(self, model: str) -> CatalogModel:
        return self._settings.models.get(model, self._settings.other_models)

    def _endpoint(self) -> Endpoint:
        taps = self._traffic.taps if self._traffic is not None else ()
        if taps and self._connected().is_offline:
            return OFFLINE
        return self._settings.find_endpoint(self._environ)

    def _connected(self) -> Transport:
        if self._transport is None:
            live = self._live
            self._transport = live() if self._traffic is None else self._traffic.connect(live)
        return self._transport

    def _live(self) -> Transport:
        from cordisd.services.chat.transport import ChatClient  # loads aiohttp

        return ChatClient(self._settings.connect_timeout_s, self._settings.idle_timeout_s)

    def _headers(self, endpoint: Endpoint) -> dict[str, str]:
        headers = {
            "content-type": "application/json",
            "accept": "text/event-stream",
            "user-agent": f"cordisd/{__version__}",
        }
        if endpoint.key is not None:
            headers["authorization"] = f"Bearer {endpoint.key}"
        for name, value in self._settings.headers.items():
            headers[name.lower()] = value
        return headers

    def _body(self, request: ModelRequest) -> tuple[bytes, bytes, bytes]:
        before_tools, after_tools = self._parameters(request.config)
        tools = encode_tools(request.tools)
        return encode_body(
            request.config.model, request.system, request.messages, before_tools, tools, after_tools
        )

    def _parameters(self, config: RequestConfig) -> tuple[JsonObject, JsonObject]:
        """The body members before and after `tools`; what the agent sets stands where the row has it."""
        before_tools, after_tools = self._settings.parameters(config)
        own = dict(config.parameters)
        if not LIMIT_NAMES.isdisjoint(own):
            after_tools = {name: value for name, value in after_tools.items() if name not in LIMIT_NAMES}
        before_tools = {name: own.pop(name, value) for name, value in before_tools.items()}
        return before_tools, {**after_tools, **own}

    def _clean(self, chunks: list[Chunk], headers: Mapping[str, str]) -> list[Chunk]:
        """`chunks`, with the secrets of `headers` cut out of a failure's text: providers quote them."""
        last = chunks[-1]
        failure: Failure | None = last["reason"].get("failure") if last["type"] == "finish" else None
        if failure is not None:
            chunks[-1] = failed(without_secrets(failure, secrets_of(headers)))
        return chunks


async def _next_chunks(response: Response, completion: CompletionStream) -> list[Chunk]:
    """The chunks of the next read; may be empty."""
    if not completion.answered:
        received = await response.read()
    else:
        try:
            async with asyncio.timeout(_AFTER_ANSWER_S):
                received = await response.read()
        except TimeoutError:
            received = b""
    return completion.feed(received) if received else completion.end()

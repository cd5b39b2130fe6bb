"""Asking a chat adapter in tests: one adapter for a server, the chunks of one request."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any, cast

from cordisd.mock import MockModel, Reply
from cordisd.services.chat.adapter import ChatAdapter, ChatSettings
from cordisd.services.chat.endpoint import Endpoint
from cordisd.services.models import ModelRequest, RequestConfig
from cordisd.services.tools import ToolSchema

Chunk = dict[str, Any]
KEY = "sk-secret-123456"
PING = b'{"role":"user","content":"ping"}'


def adapter_for(url: str, key: str | None = KEY, **settings: Any) -> ChatAdapter:
    return ChatAdapter(
        ChatSettings(
            "p",
            lambda environ: Endpoint(url, key),
            settings.pop("parameters", lambda config: ({}, {})),
            **settings,
        )
    )


def request(
    *messages: bytes, session: str = "s", tools: Sequence[ToolSchema] = (), system: str = ""
) -> ModelRequest:
    return ModelRequest(session, "/", RequestConfig("p", "m"), system, tools, messages or (PING,))


async def chunks_of(adapter: ChatAdapter, asked: ModelRequest | None = None) -> list[Chunk]:
    async with aclosing(cast(Any, adapter.stream(asked or request()))) as batches:
        return [chunk async for batch in batches for chunk in batch]


def ask(*replies: Reply, n: int = 1, **settings: Any) -> tuple[list[Chunk], MockModel]:
    """The chunks of the last of `n` requests, and the server."""

    async def scenario() -> tuple[list[Chunk], MockModel]:
        async with MockModel(replies) as mock:
            adapter = adapter_for(mock.url, **settings)
            try:
                for _ in range(n):
                    chunks = await chunks_of(adapter)
            finally:
                await adapter.close()
        return chunks, mock

    return asyncio.run(scenario())


def failure(chunks: list[Chunk]) -> dict[str, Any]:
    return cast(dict[str, Any], chunks[-1]["reason"]["failure"])


def text_of(chunks: list[Chunk]) -> str:
    return "".join(chunk["text"] for chunk in chunks if chunk["type"] == "text-delta")

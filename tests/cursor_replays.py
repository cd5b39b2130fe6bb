"""Session logs that are played by their cursor, and what is said then."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cordisd.entries.replay import ReplayEntry
from cordisd.errors import CompositionError
from cordisd.events import encode_json
from cordisd.kernel.scope import Scope
from cordisd.services.models import ModelAdapter, ModelRegistry, ModelRequest, RequestConfig
from cordisd.session.header import SessionHeader
from log_samples import text_chunks

CHUNKS = text_chunks("SDK", " snap", "shot")


def line(kind: str, data: dict[str, Any], **more: Any) -> str:
    return json.dumps({"type": kind, "data": data, **more})


def chunk_lines(*chunks: dict[str, Any], step: int = 1) -> list[str]:
    return [line("assistant/chunk", {"turn": 1, "step": step, "chunk": chunk}) for chunk in chunks]


def fixture(path: Path, *lines: str, **fields: Any) -> str:
    """A projected fixture with the given body; returns its path."""
    first = SessionHeader(**{"id": path.stem, "created_at": 1, "cwd": "{{cwd}}", **fields}).as_dict()
    path.write_text("\n".join([json.dumps(first), *lines, ""]))
    return str(path)


def answers(path: Path, *texts: str, **fields: Any) -> str:
    """A fixture in which the model gives these answers, one per step."""
    lines = [
        text for step, answer in enumerate(texts, 1) for text in chunk_lines(*text_chunks(answer), step=step)
    ]
    return fixture(path, *lines, **fields)


@asynccontextmanager
async def replaying(**config: Any) -> AsyncIterator[ModelRegistry]:
    """The registry with the replay mounted in it."""
    scope = Scope("host")
    registry = ModelRegistry()
    scope.provide(ModelRegistry, registry)
    try:
        async with ReplayEntry(ReplayEntry.read_config(config)).mount(scope):
            yield registry
    finally:
        await scope.close()


def request(session: str = "live", cwd: str = "/w", messages: Sequence[dict[str, Any]] = ()) -> ModelRequest:
    encoded = [encode_json(message) for message in messages]
    return ModelRequest(session, cwd, RequestConfig("deepseek-official", "m"), "", [], encoded)


async def played(adapter: ModelAdapter, **fields: Any) -> list[dict[str, Any]]:
    return [chunk async for batch in adapter.stream(request(**fields)) for chunk in batch]


def play(*requests: dict[str, Any], **config: Any) -> list[list[dict[str, Any]]]:
    """The chunks of these model calls, made one after the other."""

    async def run() -> list[list[dict[str, Any]]]:
        async with replaying(**config) as registry:
            adapter = registry.get("deepseek-official")
            return [await played(adapter, **fields) for fields in requests or ({},)]

    return asyncio.run(run())


def said(chunks: list[dict[str, Any]]) -> str:
    """The text of an answer, or the message of its failure."""
    reason = chunks[-1]["reason"]
    if reason["kind"] == "error":
        return f"{reason['failure']['code']}: {reason['failure']['message']}"
    return "".join(chunk["text"] for chunk in chunks if chunk["type"] == "text-delta")


def load_error(**config: Any) -> str:
    with pytest.raises(CompositionError) as caught:
        play(**config)
    return str(caught.value)

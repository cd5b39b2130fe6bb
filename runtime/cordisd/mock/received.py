"""One request as it came, and how it is read from a connection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

MAX_BODY_BYTES = 256 * 2**20
"""A larger body is refused by closing the connection."""


class BadRequestError(Exception):
    """What came is no HTTP request."""


@dataclass(frozen=True)
class Received:
    """One request. `headers` in order, names as sent; `connection` counts from 0."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    connection: int
    version: str = "HTTP/1.1"

    @cached_property
    def json(self) -> Any:
        """The body, decoded.

        Raises:
            ValueError: it is not JSON.
        """
        return json.loads(self.body)

    @property
    def object(self) -> dict[str, Any]:
        """The body where it is a JSON object, else an empty one."""
        return self.json if self.is_object else {}

    @cached_property
    def is_object(self) -> bool:
        """Whether the body is a JSON object."""
        try:
            return isinstance(self.json, dict)
        except (ValueError, RecursionError):
            return False

    def header(self, name: str) -> str | None:
        """The first header of that name, in any case."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages of the body, those that are objects."""
        messages = self.object.get("messages")
        found = messages if isinstance(messages, list) else []
        return [message for message in found if isinstance(message, dict)]

    def texts(self, role: str) -> Iterator[str]:
        """The texts of the messages of a role, first to last."""
        return (_text(message.get("content")) for message in self.messages if message.get("role") == role)

    @property
    def keeps_connection(self) -> bool:
        """Whether the client will send another request on this connection."""
        asked = (self.header("connection") or "").lower()
        return asked == "keep-alive" if self.version == "HTTP/1.0" else asked != "close"


def _text(content: object) -> str:
    if isinstance(content, list):
        return "".join(_text(part.get("text")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


async def read_request(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int
) -> Received | None:
    """The next request of a connection; None when the client is done.

    Raises:
        BadRequestError: what came is no HTTP request, or one too large.
        ConnectionError, asyncio.IncompleteReadError: the client went in the middle of it.
    """
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    except asyncio.LimitOverrunError as error:
        raise BadRequestError("the head of the request is too long") from error
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    try:
        method, path, version = first.split(" ")
        pairs = [line.split(":", 1) for line in lines]
        headers = tuple((name, value.strip()) for name, value in pairs)
        sizes = [int(value) for name, value in headers if name.lower() == "content-length"]
    except ValueError as error:
        raise BadRequestError(f"no HTTP request: {first[:80]!r}") from error
    sent = Received(method, path, headers, b"", connection, version)
    if (sent.header("expect") or "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    if (sent.header("transfer-encoding") or "").lower() == "chunked":
        body = await _read_chunks(reader)
    else:
        body = await _read_exactly(reader, sizes[0] if sizes else 0)
    return Received(method, path, headers, body, connection, version)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    parts: list[bytes] = []
    size = -1
    while size:
        try:
            size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
        except ValueError as error:
            raise BadRequestError("a chunk of the request without a size") from error
        parts.append(await _read_exactly(reader, size, sum(map(len, parts))))
        # After the last chunk come trailers, up to an empty line; after any other just that line.
        while (await reader.readuntil(b"\r\n")) != b"\r\n":
            pass
    return b"".join(parts)


async def _read_exactly(reader: asyncio.StreamReader, n_bytes: int, n_before: int = 0) -> bytes:
    if not 0 <= n_bytes <= MAX_BODY_BYTES - n_before:
        raise BadRequestError(f"a body of more than {MAX_BODY_BYTES} bytes")
    return await reader.readexactly(n_bytes)

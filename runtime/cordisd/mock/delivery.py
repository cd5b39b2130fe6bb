"""Writes one reply to its connection, part by part."""

from __future__ import annotations

import asyncio
import socket
import struct
from http import HTTPStatus
from typing import Literal

from cordisd.mock.parts import Cut, Framing, Hang, Pause, RawReply, Verbatim
from cordisd.mock.received import Received

End = Literal["whole", "closed", "left"]
"""How a reply ended: the connection goes on, is done with, or the client left it."""

_RESET = struct.pack("ii", 1, 0)


async def deliver(
    reply: RawReply, request: Received | None, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> End:
    """Write `reply` and tell how it ended; without a request, the connection ends with it.

    Raises:
        ConnectionError: the client left before the end.
    """
    framing, is_last = reply.framing, request is None or not request.keeps_connection
    if framing == "chunked" and request is not None and request.version == "HTTP/1.0":
        framing = "close"
    head = b"" if framing == "none" else _head(reply, framing, is_last)
    for part in reply.parts:
        if head and not isinstance(part, Pause):  # a pause before everything else holds the head back too
            writer.write(head)
            head = b""
        match part:
            case bytes():
                is_chunk = framing == "chunked" and part
                writer.write(b"%x\r\n%b\r\n" % (len(part), part) if is_chunk else part)
                await writer.drain()
            case Verbatim():
                writer.write(part.data)
                await writer.drain()
            case Pause():
                await asyncio.sleep(part.seconds)
            case Hang():
                while await reader.read(1):
                    pass
                return "left"
            case Cut():
                if part.kind == "rst":
                    connection = writer.get_extra_info("socket")
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                    writer.transport.abort()
                return "closed"
    writer.write(head)
    if framing == "chunked":
        writer.write(b"0\r\n\r\n")
    await writer.drain()
    return "closed" if framing in ("close", "none") or is_last else "whole"


def _head(reply: RawReply, framing: Framing, is_last: bool) -> bytes:
    headers = dict(reply.headers)
    match framing:
        case "chunked":
            headers["Transfer-Encoding"] = "chunked"
        case "length":
            n_bytes = sum(len(part) for part in reply.parts if isinstance(part, bytes))
            headers.setdefault("Content-Length", str(n_bytes))
        case "close":
            is_last = True
    if is_last:
        headers["Connection"] = "close"
    phrase = HTTPStatus(reply.status).phrase if reply.status in list(HTTPStatus) else "Status"
    lines = [f"HTTP/1.1 {reply.status} {phrase}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")

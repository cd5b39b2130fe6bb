"""Talking to the mock model in tests: on a raw socket, byte by byte."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from typing import Any

from cordisd.mock import Answer, MockModelThread, Reply, calls
from measure import PATIENCE_S

MESSAGES = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
STREAMED = {"model": "m", "messages": MESSAGES, "stream": True, "stream_options": {"include_usage": True}}
WHOLE = {"model": "m", "messages": MESSAGES}
TWO_CALLS = calls(("c1", "bash", {"command": "ls"}), ("c2", "bash", {"command": "pwd"}))


def post(body: object, path: str = "/v1/chat/completions", *headers: str) -> bytes:
    """The bytes of a request after which the server closes."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: x",
        "Connection: close",
        f"Content-Length: {len(data)}",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode() + data


def exchange(url: str, request: bytes, n_reads: list[bytes] | None = None) -> bytes:
    """All that a server writes in answer to these bytes, until it closes or resets.

    `n_reads` takes what each single read gave.
    """
    host, port = url.removeprefix("http://").split(":")
    reads = [] if n_reads is None else n_reads
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
        connection.sendall(request)
        try:
            while data := connection.recv(65536):
                reads.append(data)
        except ConnectionResetError:
            reads.append(b"<reset>")
    return b"".join(reads)


def answered(reply: Reply, body: object = STREAMED, **options: Any) -> tuple[int, str, bytes]:
    """Status, head and raw body of the answer to one request."""
    with MockModelThread([reply], **options) as mock:
        return split(exchange(mock.url, post(body)))


def split(received: bytes) -> tuple[int, str, bytes]:
    """Status, head and body of an answer as it came."""
    head, _, body = received.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), head.decode(), body


def http_chunks(body: bytes) -> list[bytes]:
    """The chunks of a chunked body as far as it is whole, the last and empty one left out."""
    found = []
    while body:
        size, _, rest = body.partition(b"\r\n")
        n_bytes = int(size, 16)
        if n_bytes == 0 or len(rest) < n_bytes:
            break
        found.append(rest[:n_bytes])
        body = rest[n_bytes + 2 :]
    return found


def payloads(stream: bytes) -> list[Any]:
    """The JSON payloads of an event stream in its plainest form."""
    lines = [line.removeprefix(b"data: ") for line in stream.split(b"\n\n") if line.startswith(b"data: {")]
    return [json.loads(line) for line in lines]


def streamed(reply: Reply, **options: Any) -> bytes:
    """The body of a streamed answer, out of its chunks."""
    return b"".join(http_chunks(answered(reply, **options)[2]))


def deltas(reply: Reply) -> list[dict[str, Any]]:
    """The tool-call deltas of a streamed answer, in order."""
    choices = [payload["choices"][0] for payload in payloads(streamed(reply)) if payload["choices"]]
    return [call for choice in choices for call in choice["delta"].get("tool_calls", ())]


def with_faults(answer: Answer, *names: str, **parameters: Any) -> Answer:
    """The answer, sent with these faults; a keyword is a fault with its parameter, `_` for `-`."""
    from dataclasses import replace

    named: dict[str, Any] = dict.fromkeys(names)
    return replace(answer, faults={**named, **{k.replace("_", "-"): v for k, v in parameters.items()}})


def finish_of(payload_list: Sequence[dict[str, Any]]) -> object:
    """The finish reason that a stream names; None for none."""
    named = [choice["finish_reason"] for payload in payload_list for choice in payload.get("choices", ())]
    return next((reason for reason in named if reason), None)

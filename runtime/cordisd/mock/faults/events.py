"""Faults, and rarer legal forms, of the event stream: the bytes of its events."""

from __future__ import annotations

import json
import re

from cordisd.mock.faults.draw import Draw
from cordisd.mock.sse import DONE

Events = list[bytes]


def no_done(events: Events, draw: Draw) -> Events:
    """The stream ends without `[DONE]`."""
    return [event for event in events if event != DONE]


def multi_line(events: Events, draw: Draw) -> Events:
    """Each payload comes in several `data:` lines of one event."""
    return [_in_lines(event) for event in events]


def comments(events: Events, draw: Draw) -> Events:
    """A comment comes before each event, as servers send to keep a connection alive."""
    return [piece for event in events for piece in (b": keep-alive\n\n", event)]


def pings(events: Events, draw: Draw) -> Events:
    """An event of another name comes before each event."""
    return [piece for event in events for piece in (b"event: ping\ndata: {}\n\n", event)]


def byte_order_mark(events: Events, draw: Draw) -> Events:
    """The stream begins with a byte order mark."""
    return [b"\xef\xbb\xbf" + events[0], *events[1:]] if events else events


def no_space(events: Events, draw: Draw) -> Events:
    """There is no space after the colon of a field."""
    return [re.sub(rb"(?m)^(\w+): ", rb"\1:", event) for event in events]


def crlf(events: Events, draw: Draw) -> Events:
    """Lines end in CR LF."""
    return [event.replace(b"\n", b"\r\n") for event in events]


def _in_lines(event: bytes) -> bytes:
    if not event.startswith(b"data: {"):
        return event
    try:
        payload = json.loads(event.removeprefix(b"data: "))
    except ValueError:  # another fault has broken it
        return event
    lines = json.dumps(payload, indent=1).encode().splitlines()
    return b"".join(b"data: " + line + b"\n" for line in lines) + b"\n"

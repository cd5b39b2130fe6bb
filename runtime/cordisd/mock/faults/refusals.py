"""Faults of the server: an HTTP error comes in the place of the answer."""

from __future__ import annotations

import time
from email.utils import formatdate

from cordisd.mock.faults.draw import Draw
from cordisd.mock.parts import RawReply
from cordisd.mock.sse import error

HTML = b"<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>"


def rate_limit(draw: Draw) -> RawReply:
    """429 that does not say when to come back."""
    return error(429, "Rate limit reached for requests")


def rate_limit_seconds(draw: Draw) -> RawReply:
    """429 with `Retry-After` in seconds."""
    return error(429, "Rate limit reached for requests", retry_after=f"{draw.amount:g}")


def rate_limit_date(draw: Draw) -> RawReply:
    """429 with `Retry-After` as an HTTP date so many seconds ahead."""
    date = formatdate(time.time() + draw.amount, usegmt=True)
    return error(429, "Rate limit reached for requests", retry_after=date)


def server_error(draw: Draw) -> RawReply:
    """An error of that status."""
    return error(int(draw.amount), "The server had an error while processing your request")


def html_error(draw: Draw) -> RawReply:
    """A proxy's HTML page with that status."""
    return error(int(draw.amount), HTML)

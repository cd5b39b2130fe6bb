"""Where a daemon listens: the URLs that clients are given."""

from __future__ import annotations

import os
from dataclasses import dataclass

from cordisd_sdk.errors import SdkError

FORMS = "unix:/run/cordisd.sock, or tcp://127.0.0.1:7000"


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """A Unix socket; `path` is absolute."""

    url: str
    path: str


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """A TCP socket; `host` is a name or a numeric address."""

    url: str
    host: str
    port: int


Address = UnixAddress | TcpAddress


def parse_url(url: str) -> Address:
    """The address that `unix:PATH` or `tcp://HOST:PORT` names.

    Raises:
        SdkError: it is neither.
    """
    scheme, _, rest = url.partition(":")
    if scheme == "unix" and rest.strip("/") and "\0" not in rest:
        return UnixAddress(url, os.path.abspath(rest))
    if scheme == "tcp" and rest.startswith("//"):
        host, _, digits = rest.removeprefix("//").removesuffix("/").rpartition(":")
        is_bracketed = host.startswith("[") and host.endswith("]")
        name = host[1:-1] if is_bracketed else host
        is_name = bool(name) and not set(name) & set("/@?#[] ") and (is_bracketed or ":" not in name)
        if is_name and digits.isascii() and digits.isdigit() and 0 < int(digits) <= 0xFFFF:
            return TcpAddress(url, name, int(digits))
    raise SdkError(f"no URL of a daemon: {url!r}; it looks like {FORMS}")

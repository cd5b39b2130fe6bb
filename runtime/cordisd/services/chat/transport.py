"""The HTTP client under the chat adapter. Importing this module loads aiohttp, so only a request does it."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from cordisd.services.chat.failures import RequestFault
from cordisd.services.models import ModelRequest


@contextmanager
def _no_certificates() -> Iterator[None]:
    """Let nobody load the system's certificates meanwhile."""
    before = os.environ.get("SSL_CERT_FILE")
    os.environ["SSL_CERT_FILE"] = os.devnull
    try:
        yield
    finally:
        if before is None:
            del os.environ["SSL_CERT_FILE"]
        else:
            os.environ["SSL_CERT_FILE"] = before


# At its import aiohttp makes two TLS contexts with those certificates: 57 of its 120 ms, at the first request
# of every daemon. Neither is ever used here, because each https request brings its own (`_trusted`).
with _no_certificates():
    import aiohttp
    from aiohttp.payload import Payload
    from yarl import URL

_DRAIN_S = 0.02
_SHORT_BODY_BYTES = 64 * 1024

_CA_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
"""Bundles trusted besides those of the system; `SSL_CERT_FILE` and `SSL_CERT_DIR` OpenSSL reads itself."""


class Body(Payload):
    """Request bytes in pieces: joined when short, and else written one by one, which saves a copy.

    aiohttp's own payload of bytes takes one piece, copies it behind the head, and warns of long ones.
    """

    _value: Sequence[bytes]

    def __init__(self, pieces: Sequence[bytes]) -> None:
        super().__init__(pieces, content_type="application/json")
        self._size = sum(map(len, pieces))

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return b"".join(self._value).decode(encoding, errors)

    async def write(self, writer: aiohttp.abc.AbstractStreamWriter) -> None:
        short = self._size is not None and self._size < _SHORT_BODY_BYTES
        for piece in [b"".join(self._value)] if short else self._value:
            await writer.write(piece)


class Response:
    """An answer under way. Leave it with `close`."""

    def __init__(
        self, response: aiohttp.ClientResponse, fault_of: Callable[[Exception], RequestFault]
    ) -> None:
        self._response = response
        self._fault_of = fault_of
        protocol = response.connection and response.connection.protocol
        self._closed = protocol.closed if protocol is not None else None
        if self._closed is not None:
            self._closed.add_done_callback(self._end)
        self.status = response.status
        self.at_ms: int | None = None
        self.headers: Mapping[str, str] = response.headers

    async def read(self) -> bytes:
        """What has arrived, at least one byte; b"" at the end.

        Raises:
            RequestFault: the connection failed, or was silent for the idle timeout.
        """
        try:
            return await self._response.content.readany()
        except (aiohttp.ClientError, OSError) as error:
            raise self._fault_of(error) from error

    async def read_up_to(self, max_bytes: int) -> bytes:
        """The body, cut at `max_bytes`; what arrived of it if the connection fails on the way."""
        parts: list[bytes] = []
        size = 0
        with suppress(RequestFault):
            while size < max_bytes and (part := await self.read()):
                parts.append(part)
                size += len(part)
        return b"".join(parts)[:max_bytes]

    async def drain(self) -> None:
        """Wait a moment for the end of a complete answer, so that its connection can be used again."""
        content = self._response.content
        if content.at_eof():
            return
        with suppress(aiohttp.ClientError, OSError):
            async with asyncio.timeout(_DRAIN_S):
                while not content.at_eof():
                    await content.readany()

    def _end(self, closed: asyncio.Future[None]) -> None:
        # aiohttp tells a reader of a connection that broke, but not of one that it closed itself because the
        # framing of the body was wrong; nor does its idle clock run on.
        if not closed.cancelled():
            closed.exception()
        content = self._response.content
        if not content.is_eof() and content.exception() is None:
            content.set_exception(aiohttp.ClientPayloadError("the framing of the body is wrong"))

    def close(self) -> None:
        """Drop the connection, unless the answer was read to its end: then it was given back already."""
        if self._closed is not None:
            self._closed.remove_done_callback(self._end)
        self._response.close()


class ChatClient:
    """Posts to chat-completions servers over one pool of connections. Leave it with `close`."""

    def __init__(self, connect_timeout_s: float | None, idle_timeout_s: float | None) -> None:
        self._connect_timeout_s = connect_timeout_s
        self._idle_timeout_s = idle_timeout_s
        self._proxies: dict[str, URL | None] = {}
        self._trust: ssl.SSLContext | None = None
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
            timeout=aiohttp.ClientTimeout(connect=connect_timeout_s, sock_read=idle_timeout_s),
        )

    is_offline = False

    async def post(
        self, request: ModelRequest, url: str, headers: Mapping[str, str], body: Sequence[bytes]
    ) -> Response:
        """The answer to one request, as soon as its head has arrived. Redirects are not followed.

        Raises:
            RequestFault: there is no answer; the failure tells the URL and the cause.
        """
        patience_s: float | None = None
        if self._idle_timeout_s is not None and self._connect_timeout_s is not None:
            # aiohttp's own idle clock starts when the body is out; a server may never read it.
            patience_s = self._connect_timeout_s + self._idle_timeout_s
        try:
            target = URL(url)
            async with asyncio.timeout(patience_s):
                response = await self._session.post(
                    target,
                    data=Body(body),
                    headers=headers,
                    allow_redirects=False,
                    proxy=self._proxy_for(target),
                    ssl=self._trusted() if target.scheme == "https" else True,
                )
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise self._fault_of(error, url) from error
        return Response(response, lambda error: self._fault_of(error, url))

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()

    def _proxy_for(self, url: URL) -> URL | None:
        # Not aiohttp's trust_env: it also sends credentials from ~/.netrc, and asks two threads per request.
        origin = f"{url.scheme}://{url.host}"
        if origin not in self._proxies:
            from urllib.request import getproxies, proxy_bypass

            bypassed = url.host is None or proxy_bypass(url.host)
            proxy = None if bypassed else getproxies().get(url.scheme) or getproxies().get("all")
            self._proxies[origin] = URL(proxy) if proxy else None
        return self._proxies[origin]

    def _trusted(self) -> ssl.SSLContext:
        if self._trust is None:
            trust = ssl.create_default_context()  # 40 ms: not for plain http
            for name in _CA_VARIABLES:
                if path := os.environ.get(name):
                    is_folder = os.path.isdir(path)
                    try:
                        trust.load_verify_locations(None if is_folder else path, path if is_folder else None)
                    except OSError as error:
                        raise ValueError(
                            f"{name} names {path}, which holds no certificates: {error}"
                        ) from error
            self._trust = trust
        return self._trust

    def _fault_of(self, error: Exception, url: str) -> RequestFault:
        """What the log says of an exception of the HTTP client."""
        shown, code = _without_user(url), "TRANSPORT"
        match error:
            case aiohttp.ConnectionTimeoutError():
                cause = f"no connection within {_ms(self._connect_timeout_s)} ms"
            case TimeoutError():
                text = f"model stream idle timeout after {_ms(self._idle_timeout_s)}ms ({shown})"
                return RequestFault({"message": text, "code": "TIMEOUT"})
            case aiohttp.ClientPayloadError():
                text = f"SSE stream ended without [DONE]: the connection to {shown} closed in mid-answer"
                return RequestFault({"message": text, "code": "STREAM_CLOSED"})
            case aiohttp.ServerDisconnectedError():
                cause = "the server closed the connection without an answer"
            case aiohttp.ClientConnectorCertificateError():
                cause = str(error.certificate_error)
            case aiohttp.ClientConnectorError():
                cause = _in_words(error.os_error)
            case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
                cause, code = "this is not an http or https URL", "INVALID_REQUEST"
            case ValueError():
                cause, code = str(error), "INVALID_REQUEST"
            case _:
                cause = _in_words(error)
        return RequestFault({"message": f"model API request to {shown} failed: {cause}", "code": code})


def _in_words(error: BaseException) -> str:
    if isinstance(error, OSError) and not isinstance(error, (socket.gaierror, ssl.SSLError)) and error.errno:
        return os.strerror(error.errno)
    if isinstance(error, socket.gaierror) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _without_user(url: str) -> str:
    """`url` without the user and password that it may hold."""
    scheme, mark, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{mark}{host.rpartition('@')[2]}{slash}{path}"


def _ms(limit_s: float | None) -> str:
    return f"{(limit_s or 0) * 1000:g}"

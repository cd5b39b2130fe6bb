"""Connections of the adapter: cuts, silence, proxies, certificates, and what is left behind."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

import pytest

from chat_requests import Chunk, adapter_for, ask, chunks_of, failure, request, text_of
from cordisd import mock as mc
from cordisd.mock import DONE, Cut, Hang, MockModel, Pause, RawReply, Verbatim, delta
from measure import PATIENCE_S, SOON_S


def test_without_a_key_no_authorization_is_sent_whatever_netrc_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login a password b\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    _, mock = ask(mc.text("hi"), key=None)
    assert mock.requests[0].header("authorization") is None


def test_one_connection_serves_one_request_after_another() -> None:
    _, mock = ask(*[mc.text("x")] * 5, n=5)
    assert {sent.connection for sent in mock.requests} == {0}


@pytest.mark.parametrize("framing", ["chunked", "close"])
@pytest.mark.parametrize("kind", ["fin", "rst"])
def test_a_connection_cut_in_mid_answer_is_a_retryable_failure_after_what_was_streamed(
    framing: Any, kind: Any
) -> None:
    chunks, _ = ask(RawReply([delta({"content": "part"}), Pause(0.02), Cut(kind)], framing=framing))
    assert text_of(chunks) == "part"
    assert failure(chunks)["code"] in ("STREAM_CLOSED", "TRANSPORT")
    assert all(chunk["type"] != "block-end" for chunk in chunks)


@pytest.mark.parametrize("kind", ["fin", "rst"])
def test_a_connection_cut_after_the_finish_reason_costs_nothing(kind: Any) -> None:
    chunks, _ = ask(RawReply([delta({"content": "all"}), delta({}, "stop"), Pause(0.02), Cut(kind)]))
    assert chunks[-2]["block"]["text"] == "all"
    assert chunks[-1] == {"type": "finish", "reason": {"kind": "stop"}, "done": False}


def test_a_server_that_holds_the_connection_after_done_costs_no_time() -> None:
    start = time.monotonic()
    chunks, mock = ask(
        RawReply([delta({"content": "x"}), delta({}, "stop"), DONE, Hang()]), mc.text("y"), n=2
    )
    assert text_of(chunks) == "y"
    assert time.monotonic() - start < SOON_S
    assert [sent.connection for sent in mock.requests] == [0, 1]


def test_silence_ends_in_a_timeout_that_names_the_limit() -> None:
    chunks, _ = ask(RawReply([delta({"content": "x"}), Hang()]), idle_timeout_s=0.15)
    assert failure(chunks)["code"] == "TIMEOUT"
    assert "idle timeout after 150ms" in failure(chunks)["message"]


def test_a_server_that_never_answers_ends_in_a_timeout() -> None:
    chunks, _ = ask(RawReply([Hang()], framing="none"), idle_timeout_s=0.15)
    assert failure(chunks)["code"] == "TIMEOUT"


def test_a_server_that_never_reads_the_request_ends_in_a_timeout() -> None:
    async def scenario() -> list[Chunk]:
        with socket.create_server(("127.0.0.1", 0)) as deaf:
            adapter = adapter_for(
                f"http://127.0.0.1:{deaf.getsockname()[1]}", idle_timeout_s=0.1, connect_timeout_s=0.2
            )
            chunks = await chunks_of(adapter, request(b'"' + b"x" * 30_000_000 + b'"'))
            await adapter.close()
            return chunks

    assert failure(asyncio.run(scenario()))["code"] == "TIMEOUT"


def test_comments_keep_a_slow_stream_alive() -> None:
    waiting = [part for _ in range(12) for part in (b": ping\n\n", Pause(0.1))]
    chunks, _ = ask(
        RawReply([*waiting, delta({"content": "late"}), delta({}, "stop"), DONE]), idle_timeout_s=1
    )
    assert text_of(chunks) == "late"
    assert chunks[-1]["reason"] == {"kind": "stop"}


@pytest.mark.parametrize("raw", [b"", b"HTTP/1.1 banana\r\n\r\n", b"SSH-2.0-x\r\n"])
def test_an_answer_that_is_no_http_is_a_transport_failure(raw: bytes) -> None:
    chunks, mock = ask(RawReply([raw, Cut()], framing="none"))
    assert failure(chunks)["code"] == "TRANSPORT"
    assert f"{mock.url}/chat/completions" in failure(chunks)["message"]


def test_a_wrong_chunk_size_in_mid_answer_ends_at_once() -> None:
    """The server's proxy writes its own error into the body; aiohttp then tells the reader nothing."""
    parts = [delta({"content": "x"}), Pause(0.05), Verbatim(b"HTTP/1.1 502 Bad Gateway\r\n\r\n"), Hang()]
    chunks, _ = ask(RawReply(parts), idle_timeout_s=60)
    assert text_of(chunks) == "x"
    assert failure(chunks)["code"] == "STREAM_CLOSED"


def test_an_unreachable_server_is_named_with_the_cause_in_words() -> None:
    async def scenario() -> list[Chunk]:
        with socket.socket() as unheard:  # bound, so that nobody else listens there
            unheard.bind(("127.0.0.1", 0))
            adapter = adapter_for(f"http://user:pass@127.0.0.1:{unheard.getsockname()[1]}/v1", key=None)
            chunks = await chunks_of(adapter)
            await adapter.close()
        return chunks

    told = failure(asyncio.run(scenario()))
    assert set(told) == {"message", "code"}
    assert told["code"] == "TRANSPORT"
    assert told["message"].endswith("/v1/chat/completions failed: Connection refused")
    assert "pass" not in told["message"]


@pytest.mark.parametrize(
    "url", ["ftp://host/v1", "http://", "not a url", "http://[::1", "http://host:99999", "http://me@host"]
)
def test_a_url_that_cannot_be_asked_is_a_failure_that_is_not_retried(url: str) -> None:
    async def scenario() -> list[Chunk]:
        adapter = adapter_for(url)
        chunks = await chunks_of(adapter)
        await adapter.close()
        return chunks

    told = failure(asyncio.run(scenario()))
    assert told["code"] == "INVALID_REQUEST"
    assert url.replace("me@", "") in told["message"]


def test_a_redirect_is_not_followed() -> None:
    chunks, mock = ask(RawReply([], 307, {"Location": "/elsewhere"}, "length"), mc.text("x"))
    assert failure(chunks)["code"] == "HTTP_307"
    assert len(mock.requests) == 1


def test_cookies_of_the_server_are_not_sent_back() -> None:
    first = RawReply(
        [delta({"content": "x"}, "stop"), DONE],
        headers={"Set-Cookie": "a=b", "Content-Type": "text/event-stream"},
    )
    _, mock = ask(first, mc.text("y"), n=2)
    assert mock.requests[1].header("cookie") is None


def test_many_requests_run_at_once_and_close_leaves_no_socket() -> None:
    async def scenario() -> None:
        slow = RawReply([Pause(1.5), delta({"content": "x"}, "stop"), DONE])
        async with MockModel([slow] * 150) as mock:
            before = set(os.listdir("/proc/self/fd"))
            adapter = adapter_for(mock.url)
            await asyncio.gather(*(chunks_of(adapter) for _ in range(150)))
            assert len({sent.connection for sent in mock.requests}) == 150
            await adapter.close()
            gc.collect()
            deadline = time.monotonic() + PATIENCE_S
            while set(os.listdir("/proc/self/fd")) - before and time.monotonic() < deadline:
                await asyncio.sleep(0.01)
            assert set(os.listdir("/proc/self/fd")) <= before

    asyncio.run(scenario())


@pytest.mark.parametrize("leave", ["close", "cancel"])
def test_leaving_a_running_answer_drops_its_connection(leave: str) -> None:
    async def scenario() -> int:
        async with MockModel([RawReply([delta({"content": "x"}), Hang()])]) as mock:
            adapter = adapter_for(mock.url)
            batches = cast(Any, adapter.stream(request()))
            await anext(batches)
            if leave == "cancel":
                task = asyncio.create_task(anext(batches))
                await asyncio.sleep(0.01)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            await batches.aclose()
            deadline = time.monotonic() + PATIENCE_S
            while not mock.aborted and time.monotonic() < deadline:
                await asyncio.sleep(0.005)
            await adapter.close()
            return mock.aborted

    assert asyncio.run(scenario()) == 1


def test_a_proxy_of_the_environment_is_asked_unless_no_proxy_names_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)

    async def scenario(target: str) -> str:
        async with MockModel([mc.text("via")]) as proxy:
            monkeypatch.setenv("http_proxy", proxy.url.replace("http://", "http://user:pw@"))
            adapter = adapter_for(target)
            chunks = await chunks_of(adapter)
            await adapter.close()
            if proxy.requests:
                assert proxy.requests[0].header("proxy-authorization") == "Basic dXNlcjpwdw=="
                return proxy.requests[0].path
            return cast(str, failure(chunks)["code"])

    assert asyncio.run(scenario("http://model.invalid/v1")) == "http://model.invalid/v1/chat/completions"
    monkeypatch.setenv("no_proxy", "model.invalid")
    assert asyncio.run(scenario("http://model.invalid/v1")) == "TRANSPORT"


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", None])
def test_a_ca_variable_decides_whether_a_server_is_trusted(
    variable: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ]
    names = [
        "-keyout",
        str(key),
        "-out",
        str(cert),
        "-subj",
        "/CN=localhost",
        "-addext",
        "subjectAltName=IP:127.0.0.1",
    ]
    try:
        subprocess.run([*command, *names, "-days", "2"], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("no openssl command to make a certificate with")
    if variable:
        monkeypatch.setenv(variable, str(cert))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = delta({"content": "safe"}, "stop") + DONE
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + body)
        writer.close()
        await writer.wait_closed()

    async def scenario() -> list[Chunk]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        asyncio.get_running_loop().set_exception_handler(lambda loop, told: None)
        async with server:
            adapter = adapter_for(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
            chunks = await chunks_of(adapter)
            await adapter.close()
        return chunks

    chunks = asyncio.run(scenario())
    if variable:
        assert text_of(chunks) == "safe"
    else:
        assert failure(chunks)["code"] == "TRANSPORT"
        assert "certificate" in failure(chunks)["message"]


def test_a_ca_variable_that_names_nothing_is_a_failure_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nonexistent/bundle.pem")

    async def scenario() -> list[Chunk]:
        adapter = adapter_for("https://127.0.0.1:1")
        for _ in range(2):
            chunks = await chunks_of(adapter)
        await adapter.close()
        return chunks

    told = failure(asyncio.run(scenario()))
    assert told["code"] == "INVALID_REQUEST"
    assert "REQUESTS_CA_BUNDLE names /nonexistent/bundle.pem" in told["message"]


def test_the_http_library_is_not_loaded_before_the_first_request() -> None:
    program = (
        "import sys, cordisd.entries.openai, cordisd.entries.llm_deepseek\nsys.exit('aiohttp' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0

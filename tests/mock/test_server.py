"""The server itself: what it serves, to whom, and how it ends."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest

from cordisd import mock as mc
from cordisd.mock import Hang, MockModel, MockModelThread, Pause, RawReply, Received
from mock_requests import MESSAGES, WHOLE, exchange, post, split, with_faults


def test_a_server_in_a_thread_answers_another_process_and_records_it() -> None:
    program = (
        "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], b'{\"stream\":true}').read().decode())"
    )
    with MockModelThread([mc.text("he", "llo")]) as mock:
        command = [sys.executable, "-c", program, mock.url + "/chat/completions"]
        shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        assert '"content": "he"' in shown
        assert shown.rstrip().endswith("data: [DONE]")
        (sent,) = mock.requests
    assert (sent.method, sent.path, sent.json) == ("POST", "/chat/completions", {"stream": True})


def test_a_request_past_the_script_is_refused_and_says_so() -> None:
    with MockModelThread([]) as mock:
        status, _, body = split(exchange(mock.url, post({})))
    assert (status, json.loads(body)["error"]["message"]) == (400, "mock script exhausted: request 1 of 0")


def test_a_script_may_be_a_function_of_the_request_async_or_not() -> None:
    async def later(sent: Received) -> mc.Reply:
        await asyncio.sleep(0)
        return mc.error(404, sent.path)

    for script in (lambda sent: mc.error(404, sent.path), later):
        with MockModelThread(script) as mock:
            assert b'"message": "/x/chat/completions"' in exchange(mock.url, post({}, "/x/chat/completions"))


def test_what_a_script_raises_is_answered_and_raised_again_on_leaving() -> None:
    def broken(sent: Received) -> mc.Reply:
        raise LookupError("no plan")

    with pytest.raises(LookupError, match="no plan"):
        with MockModelThread(broken) as mock:
            status, _, body = split(exchange(mock.url, post(WHOLE)))
            assert (status, b"no plan" in body) == (400, True)
    with pytest.raises(KeyError):  # which came first, and says more
        with MockModelThread(broken) as mock:
            exchange(mock.url, post(WHOLE))
            raise KeyError


def test_a_fault_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match=r'unknown fault "crlff" \(did you mean "crlf"\?\)'):
        MockModel([], faults={"crlff": 0.5})
    with pytest.raises(ValueError, match="the fault pace must be a number"):
        with MockModelThread([with_faults(mc.text("x"), pace="slow")]) as mock:
            assert b"the fault pace must be" in exchange(mock.url, post(WHOLE))


@pytest.mark.parametrize(
    ("request_bytes", "status", "said"),
    [
        (post(WHOLE, "/v1/embeddings"), 404, "/v1/embeddings is not served"),
        (b"GET /v1/chat/completions HTTP/1.1\r\nConnection: close\r\n\r\n", 405, "POST is"),
        (b"GET /v1/models?x=1 HTTP/1.1\r\nConnection: close\r\n\r\n", 200, '"id": "mock"'),
        (post(b"{"), 400, "could not parse the JSON body"),
        (post(b"[" * 100_000), 400, "could not parse the JSON body"),
        (b"SSH-2.0-x\r\n\r\n", 400, "no HTTP request"),
        (b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n", 400, "no HTTP request"),
        (b"POST / HTTP/1.1\r\nContent-Length: 9999999999\r\n\r\n", 400, "a body of more than"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400, "without a size"),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 2**20, 400, "head of the request is too long"),
    ],
)
def test_what_is_no_chat_request_takes_no_reply(request_bytes: bytes, status: int, said: str) -> None:
    with MockModelThread([mc.text("kept")]) as mock:
        received = exchange(mock.url, request_bytes)
        assert b"kept" in exchange(mock.url, post(WHOLE))
    assert (split(received)[0], said in split(received)[2].decode()) == (status, True)


def test_a_body_may_come_in_chunks_and_wait_for_a_go_ahead() -> None:
    head = b"POST /chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n"
    body = b'6;x=y\r\n{"a": \r\n2\r\n1}\r\n0\r\nTrailer: t\r\n\r\n'
    with MockModelThread([mc.text("ok")]) as mock:
        received = exchange(mock.url, head + b"Connection: close\r\n\r\n" + body)
        assert received.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")
        assert mock.requests[0].json == {"a": 1}


def test_a_client_of_http_1_0_gets_a_body_without_chunks() -> None:
    sent = post({"stream": True}).replace(b"HTTP/1.1", b"HTTP/1.0").replace(b"Connection: close\r\n", b"")
    with MockModelThread([mc.text("ok")]) as mock:
        _, head, body = split(exchange(mock.url, sent))
    assert "Transfer-Encoding" not in head
    assert body.startswith(b"data: {") and body.endswith(b"data: [DONE]\n\n")


def test_a_key_is_asked_for_on_every_path_and_never_logged() -> None:
    log: list[dict[str, Any]] = []
    with MockModelThread([mc.text("ok")], api_key="sk-1", log=log.append) as mock:
        for path in ("/v1/chat/completions", "/v1/models"):
            status, _, body = split(exchange(mock.url, post(WHOLE, path, "Authorization: Bearer sk-2")))
            assert (status, json.loads(body)["error"]["code"]) == (401, "invalid_api_key")
        status, _, _ = split(
            exchange(mock.url, post(WHOLE, "/chat/completions", "authorization: Bearer sk-1"))
        )
    assert status == 200
    assert [record["status"] for record in log] == [401, 401, 200]
    assert "sk-" not in json.dumps(log)
    assert log[2]["headers"]["authorization"] == "[redacted]"
    assert log[2]["body"] == {"model": "m", "messages": MESSAGES}


@pytest.mark.parametrize(
    "reply", [RawReply([Hang()]), RawReply([Pause(3600)]), RawReply([b"x" * 50_000_000])]
)
def test_leaving_does_not_wait_for_a_client(reply: RawReply) -> None:
    async def scenario() -> None:
        async with MockModel([reply]) as mock:
            host, port = mock.url.removeprefix("http://").split(":")
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(post({}))
            while not mock.requests:
                await asyncio.sleep(0.001)
        writer.transport.abort()

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_a_port_that_is_taken_is_an_error_at_once() -> None:
    with MockModelThread([]) as mock:
        taken = int(mock.url.rpartition(":")[2])
        with pytest.raises(OSError, match="address already in use"):
            MockModelThread([], port=taken).__enter__()

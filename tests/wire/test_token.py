"""TCP: a connection is good for nothing until it has shown the token, and is ended if it does not."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cordisd.rpc.peer import STRANGER_FRAME_BYTES
from socket_daemon import SocketClient, SocketDaemon, wait_for_words

TOKEN = "correct horse battery stäple"
UNAUTHORIZED = -32006


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SocketDaemon]:
    """A daemon that listens on TCP, and on the way out says nothing of the token."""
    folder = tmp_path_factory.mktemp("token")
    (folder / "w").mkdir()
    (folder / "token").write_text(f"{TOKEN}\n")
    (folder / "token").chmod(0o600)
    places = ["--listen", ":0", "--token-file", str(folder / "token"), "--socket", str(folder / "s")]
    with SocketDaemon(folder / "w", *places) as daemon:
        yield daemon
        assert daemon.end() == 0
        assert b"stack trace" not in daemon.stderr.lower() and b"Traceback" not in daemon.stderr
        assert TOKEN.encode() not in daemon.stderr


@pytest.fixture
def stranger(daemon: SocketDaemon) -> Iterator[SocketClient]:
    """A client that has shown nothing yet."""
    url = next(url for url in daemon.urls() if url.startswith("tcp:"))
    with daemon.connect(url) as client:
        yield client


def frame(number: object, method: str, **params: object) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def initialize(client: SocketClient, **params: object) -> dict[str, Any]:
    settings = {"cwd": str(client.cwd), "provider": "deepseek-official", "model": "m"}
    return frame("i", "initialize", **settings, **params)


def send(client: SocketClient, *frames: object) -> None:
    client.send_raw(b"".join(json.dumps(one).encode() + b"\n" for one in frames))


def test_the_token_opens_a_connection_for_good(daemon: SocketDaemon, stranger: SocketClient) -> None:
    stranger.initialize(token=TOKEN)
    assert stranger.request("session/create")["sessionId"]
    stranger.initialize(model="another")
    assert stranger.request("rpc.ping") == {}
    with daemon.connect(f"unix:{daemon.cwd.parent / 's'}") as local:
        local.initialize()
        local.initialize(token="whatever: nobody asks for it here")


@pytest.mark.parametrize(
    "params",
    [{}, *({"token": value} for value in ("wrong", "", TOKEN[:-1], f"{TOKEN} ", "\ud800" * 20))]
    + [{"token": value} for value in (None, 7, True, [TOKEN], {TOKEN: TOKEN})],
)
def test_anything_but_the_token_ends_the_connection(
    params: dict[str, object], stranger: SocketClient
) -> None:
    send(stranger, initialize(stranger, **params))
    [answer] = stranger.wait_end()
    assert (answer["id"], answer["error"]["code"]) == ("i", UNAUTHORIZED)
    assert answer["error"]["data"] == {"code": "unauthorized"}
    assert TOKEN not in json.dumps(answer)


FIRST_FRAMES: list[tuple[bytes, object, int]] = [
    (b'{"jsonrpc":"2.0","id":7,"method":"rpc.ping"}', 7, UNAUTHORIZED),
    (
        b'{"jsonrpc":"2.0","id":7,"method":"shutdown","params":{"token":"%b"}}' % TOKEN.encode(),
        7,
        UNAUTHORIZED,
    ),
    (b'{"jsonrpc":"2.0","method":"shutdown"}', None, UNAUTHORIZED),
    (b'{"jsonrpc":"2.0","id":7,"method":"initialize","params":["%b"]}' % TOKEN.encode(), 7, UNAUTHORIZED),
    (b'{"jsonrpc":"2.0","id":7,"method":"initialize"}', 7, UNAUTHORIZED),
    (b'{"jsonrpc":"2.0","id":7,"result":{}}', 7, UNAUTHORIZED),
    (b'[{"jsonrpc":"2.0","id":7,"method":"rpc.ping"}]', None, UNAUTHORIZED),
    (b"[[]]", None, UNAUTHORIZED),
    (b"[]", None, -32600),
    (b"null", None, UNAUTHORIZED),
    (b"GET / HTTP/1.1\r", None, -32700),
    (b"\xff", None, -32700),
    (b"x" * (STRANGER_FRAME_BYTES + 1), None, -32600),
]


@pytest.mark.parametrize(("line", "number", "code"), FIRST_FRAMES)
def test_whatever_else_comes_first_is_answered_once_and_ends_the_connection(
    line: bytes, number: object, code: int, stranger: SocketClient
) -> None:
    stranger.send_raw(b"\n\r\n" + line + b"\n" + line + b"\n")
    [answer] = stranger.wait_end()
    assert (answer["id"], answer["error"]["code"]) == (number, code)


def test_what_follows_a_wrong_token_is_not_served_though_it_was_sent_with_it(
    daemon: SocketDaemon, stranger: SocketClient
) -> None:
    right = initialize(stranger, token=TOKEN)
    create = frame(2, "session/create", sessionId="never")
    send(stranger, initialize(stranger, token="wrong"), right, create, frame(3, "shutdown"))
    assert [answer["error"]["code"] for answer in stranger.wait_end()] == [UNAUTHORIZED]
    with daemon.connect(f"unix:{daemon.cwd.parent / 's'}") as local:
        sessions = local.request("session/list")["sessions"]
        assert "never" not in {session["sessionId"] for session in sessions}


def test_what_follows_the_token_is_served_though_it_was_sent_with_it_and_may_be_long(
    stranger: SocketClient,
) -> None:
    long = frame("p", "rpc.ping", unknown="x" * (2 * STRANGER_FRAME_BYTES))
    send(stranger, initialize(stranger, token=TOKEN), frame("c", "session/create"), long)
    stranger.wait(lambda: len(stranger.frames) == 3)
    answers = {answer["id"]: answer for answer in stranger.frames}
    assert "result" in answers["i"] and "result" in answers["c"]
    assert answers["p"]["error"]["code"] == -32602


def test_a_batch_may_begin_with_the_token(stranger: SocketClient) -> None:
    send(stranger, [initialize(stranger, token=TOKEN), frame(2, "session/create"), frame(3, "rpc.ping")])
    answers = json.loads(stranger.next_line())
    assert [answer["id"] for answer in answers] == ["i", 2, 3]
    assert all("result" in answer for answer in answers)


def test_an_initialize_that_fails_though_it_has_the_token_leaves_the_connection_open(
    stranger: SocketClient,
) -> None:
    send(stranger, initialize(stranger, token=TOKEN, unknown=1))
    stranger.wait(lambda: stranger.frames)
    assert stranger.frames[0]["error"]["code"] == -32602
    assert stranger.initialize()["protocolVersion"] == 1


def test_a_frame_without_an_end_is_held_to_a_strangers_length(stranger: SocketClient) -> None:
    stranger.send_raw(b"x" * (64 * STRANGER_FRAME_BYTES))  # all of it is taken: nothing of it is kept
    stranger.finish()
    assert stranger.wait_end() == []


def test_strangers_are_told_of_on_stderr(daemon: SocketDaemon, stranger: SocketClient) -> None:
    send(stranger, frame(1, "rpc.ping"))
    stranger.wait_end()
    assert "WARNING" in wait_for_words(daemon, "a connection that has not shown the token is ended")


def test_every_address_is_served(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    work = tmp_path / "w"
    work.mkdir()
    places = ["--listen", "127.0.0.1:0", "--listen", "localhost:0", "--token-file", str(tmp_path / "token")]
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
        places += ["--listen", "[::1]:0"]
    except OSError:
        pass  # no IPv6 here
    with SocketDaemon(work, *places) as daemon:
        for url in daemon.urls():
            with daemon.connect(url) as client:
                client.initialize(token=TOKEN)
        assert len(daemon.urls()) == places.count("--listen")
        assert b"other users can read the token" in daemon.stderr

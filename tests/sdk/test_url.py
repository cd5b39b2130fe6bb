"""A client of a daemon that others run: by which URLs it is reached, and what is said when it is not."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cordisd import mock as model
from cordisd_sdk import (
    AsyncClient,
    Client,
    ConnectionClosedError,
    NotListeningError,
    ProtocolError,
    RequestTimeoutError,
    RpcError,
    RunResult,
    SdkError,
)
from cordisd_sdk.address import TcpAddress, UnixAddress, parse_url
from measure import PATIENCE_S, comes_meanwhile
from served import TOKEN, Served, obey

INITIALIZED = b'{"jsonrpc":"2.0","id":1,"result":{}}\n'


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with model.MockModelThread(obey) as mock:
        with Served(tmp_path_factory.mktemp("served"), mock.url) as daemon:
            yield daemon


def against(
    server: Callable[[Any, Any], Awaitable[None]], **options: Any
) -> tuple[str, BaseException | None]:
    """The URL of `server`, which is no daemon, and what starting a client of it, and a ping, has raised."""

    async def main() -> tuple[str, BaseException | None]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await server(reader, writer)
                await reader.read()
            finally:
                writer.close()

        listening = await asyncio.start_server(serve, "127.0.0.1", 0)
        host, port = listening.sockets[0].getsockname()
        async with listening:
            client = AsyncClient(url=f"tcp://{host}:{port}", **options)
            try:
                async with client:
                    await client.ping()
            except SdkError as error:
                return f"tcp://{host}:{port}", error
            return "", None

    return asyncio.run(main())


@pytest.mark.parametrize("place", ["unix", "tcp"])
def test_closing_a_client_of_a_url_leaves_the_daemon_and_the_sessions_to_the_next_one(
    served: Served, place: str
) -> None:
    with Client(**served.options(place)) as first:
        session = first.session(f"left-{place}")
        assert session.run("hello").final_response == "answer to hello"
        assert (first.pid, first.exit_code, first.stderr_tail) == (None, None, "")
    with Client(**served.options(place)) as second:
        assert f"left-{place}" in [row["sessionId"] for row in second.list()]
        assert second.session(f"left-{place}").run("and again").turn == 2


def test_the_token_may_be_given_as_it_is(served: Served) -> None:
    with Client(url=served.tcp, token=TOKEN, cwd=served.cwd) as client:
        client.ping()


@pytest.mark.parametrize("token", [{}, {"token": "not the one, but as long"}])
def test_a_wrong_or_missing_token_is_one_error_that_names_the_url(
    served: Served, token: dict[str, Any]
) -> None:
    with pytest.raises(RpcError, match="token") as caught:
        Client(url=served.tcp, **token).start()
    assert caught.value.code == -32006
    assert str(caught.value).startswith(served.tcp)
    assert "not the one" not in str(caught.value)


@pytest.mark.parametrize("text", [None, "", "\n"])
def test_a_token_that_cannot_be_read_is_told_before_anybody_is_asked(
    tmp_path: Path, text: str | None
) -> None:
    file = tmp_path / "token"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SdkError, match=f"the token cannot be read: .*{file}"):
        Client(url="tcp://127.0.0.1:9", token_file=file).start()


def test_where_nobody_listens_the_error_names_the_url(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        tcp = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        stale = tmp_path / "stale.sock"
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(stale))
        for url in (tcp, f"unix:{stale}", f"unix:{tmp_path}/none.sock"):
            with pytest.raises(NotListeningError, match=f"^{url}: no daemon listens there: "):
                Client(url=url).start()


def test_a_place_that_cannot_be_reached_is_an_error_that_names_the_url(tmp_path: Path) -> None:
    for url in (f"unix:{tmp_path}/{'x' * 120}.sock", f"unix:{__file__}/x", "tcp://no.such.host.invalid:7000"):
        with pytest.raises(ConnectionClosedError, match=f"^{url}: cannot connect: .*[a-z]") as caught:
            Client(url=url).start()
        assert not isinstance(caught.value, NotListeningError)


@pytest.mark.parametrize("banner", [b"HTTP/1.1 400 Bad Request\r\n", b"SSH-2.0-OpenSSH_9.6\r\n", b"[1]\n"])
def test_a_server_that_says_something_else_is_a_protocol_error_that_shows_it(banner: bytes) -> None:
    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(banner + b"and more\r\n")

    url, error = against(server)
    assert type(error) is ProtocolError
    assert str(error).startswith(f"{url}: what listens there is no cordisd")
    assert repr(banner.strip())[1:] in str(error)


def test_a_server_that_says_nothing_is_a_timeout_that_names_the_url() -> None:
    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pass

    url, error = against(server, start_timeout_s=0.2)
    assert type(error) is RequestTimeoutError
    assert str(error).startswith(f"{url}: no answer to initialize within 0.2 s")


def test_a_connection_that_is_closed_or_reset_is_an_error_that_names_the_url() -> None:
    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(INITIALIZED)
        await reader.readline()
        writer.write_eof()

    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        linger = b"\1\0\0\0\0\0\0\0"
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()

    for server, how in ((close, "closed at the other end"), (reset, "lost: .*reset")):
        url, error = against(server)
        assert type(error) is ConnectionClosedError
        assert re.match(f"{url}: the connection was {how}", str(error))


def test_a_backlog_that_is_full_is_waited_for(tmp_path: Path) -> None:
    async def main() -> None:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(tmp_path / "d.sock"))
            listening.listen(0)
            with socket.socket(socket.AF_UNIX) as ahead:
                ahead.connect(str(tmp_path / "d.sock"))
                client = AsyncClient(url=f"unix:{tmp_path}/d.sock", start_timeout_s=0.2)
                with pytest.raises(RequestTimeoutError, match="sock: cannot be reached in time"):
                    await client.start()
                client = AsyncClient(url=f"unix:{tmp_path}/d.sock")
                starting = asyncio.create_task(client.start())
                await asyncio.sleep(0.1)
                listening.accept()[0].close()
            accepted, _ = await asyncio.to_thread(listening.accept)
            with accepted:
                await asyncio.to_thread(accepted.recv, 1 << 16)
                accepted.sendall(INITIALIZED)
                await starting
                await client.close()

    asyncio.run(main())


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_socket_of_another_user_is_refused(tmp_path: Path) -> None:
    code = """if True:
        import asyncio, os, socket, sys
        from cordisd_sdk import Client, SdkError
        import cordisd_sdk.sync
        os.chdir("/")
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(sys.argv[1])
        os.chmod(sys.argv[1], 0o777)
        if os.fork() == 0:
            os.setresuid(4711, 4711, 4711)
            listening.listen()
            os._exit(0)
        os.wait()
        os.setresuid(4712, 4712, 4712)
        try:
            Client(url="unix:" + sys.argv[1], start_timeout_s=5).start()
        except SdkError as error:
            print(error)
    """
    path = f"/tmp/cordisd-test-{os.urandom(6).hex()}.sock"
    try:
        done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
    finally:
        os.unlink(path)
    assert done.stdout == f"unix:{path}: who listens there is user 4711, neither root nor you\n", done.stderr


def test_a_shutdown_ends_a_daemon_that_others_use(tmp_path: Path) -> None:
    with model.MockModelThread(obey) as mock, Served(tmp_path, mock.url) as daemon:
        with Client(**daemon.options()) as other:
            client = Client(**daemon.options("tcp")).start()
            client.shutdown()
            assert daemon.process.wait(PATIENCE_S) == 0
            with pytest.raises(ConnectionClosedError, match="closed at the other end"):
                other.ping()
            with pytest.raises(ConnectionClosedError, match="the client was closed"):
                client.ping()


def test_kill_drops_the_connection_and_leaves_the_daemon_alone(served: Served) -> None:
    with Client(**served.options()) as client:
        prompt = client.session("dropped").prompt("$ sleep 60")
        client.kill()
        with pytest.raises(ConnectionClosedError, match="the connection was dropped here"):
            prompt.result()
    with Client(**served.options()) as client:
        assert client.session("dropped").cancel()["cancelled"]


def test_a_daemon_killed_in_turns_is_an_error_for_all_that_is_under_way(tmp_path: Path) -> None:
    async def run(client: AsyncClient, name: str) -> RunResult:
        return await client.session(name).run(f"$ touch {name}; sleep 60")

    async def main(daemon: Served) -> list[Any]:
        async with AsyncClient(**daemon.options()) as one, AsyncClient(**daemon.options("tcp")) as two:
            runs = [run(one, "a"), run(one, "b"), run(two, "c")]
            tasks = [asyncio.ensure_future(work) for work in runs]
            attachment = await one.attach("c") if await comes_meanwhile((daemon.cwd / "c").exists) else None
            assert attachment is not None
            assert await comes_meanwhile(lambda: all((daemon.cwd / name).exists() for name in "ab"))
            daemon.process.kill()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            with pytest.raises(ConnectionClosedError):
                async for _ in attachment:
                    pass
            with pytest.raises(ConnectionClosedError):
                await two.ping()
            return outcomes

    with model.MockModelThread(obey) as mock, Served(tmp_path, mock.url) as daemon:
        for error, url in zip(asyncio.run(main(daemon)), (daemon.unix, daemon.unix, daemon.tcp), strict=True):
            assert type(error) is ConnectionClosedError and str(error).startswith(
                f"{url}: the connection was"
            )


def test_each_client_hears_its_own_sessions_only(served: Served) -> None:
    async def main() -> None:
        async with (
            AsyncClient(**served.options()) as one,
            AsyncClient(**served.options("tcp")) as two,
            AsyncClient(**served.options()) as idle,
        ):
            heard: dict[AsyncClient, set[str]] = {one: set(), two: set(), idle: set()}
            for client, ids in heard.items():
                receive = client.connection.receive

                def note(piece: bytes, ids: set[str] = ids, receive: Any = receive) -> None:
                    ids.update(name for name in ("r1", "r2", "r3", "r4") if f'"{name}"'.encode() in piece)
                    receive(piece)

                client.connection.receive = note  # type: ignore[method-assign]
            runs = [
                client.session(name).run(f"$ sleep 0.0{turn}; echo {name}-{turn}")
                for turn in range(3)
                for client, name in ((one, "r1"), (two, "r2"), (one, "r3"), (two, "r4"))
            ]
            results = await asyncio.gather(*runs)
            assert heard == {one: {"r1", "r3"}, two: {"r2", "r4"}, idle: set()}
            for name in ("r1", "r2", "r3", "r4"):
                events = [e for r in results if r.session_id == name for e in r.events]
                results_of = [e for e in events if e["type"] == "tool/result"]
                said = [e["data"]["message"]["content"][0]["content"][0]["text"] for e in results_of]
                assert sorted(said) == [f"{name}-{turn}" for turn in range(3)]

    asyncio.run(main())


def test_a_url_is_a_unix_path_or_a_host_and_port() -> None:
    assert parse_url("unix:/run/x.sock") == UnixAddress("unix:/run/x.sock", "/run/x.sock")
    assert parse_url("unix:///run/x.sock") == UnixAddress("unix:///run/x.sock", "/run/x.sock")
    assert parse_url("unix:x.sock") == UnixAddress("unix:x.sock", f"{os.getcwd()}/x.sock")
    assert parse_url("tcp://localhost:7000/") == TcpAddress("tcp://localhost:7000/", "localhost", 7000)
    assert parse_url("tcp://[::1]:7000") == TcpAddress("tcp://[::1]:7000", "::1", 7000)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "unix:",
        "unix:/",
        "/run/x.sock",
        "http://127.0.0.1:7000",
        "tcp:127.0.0.1:7000",
        "tcp://127.0.0.1",
        "tcp://:7000",
        "tcp://::1:7000",
        "tcp://127.0.0.1:0",
        "tcp://127.0.0.1:65536",
        "tcp://127.0.0.1:٣",
        "tcp://user@host:7000",
        "tcp://host:7000/path",
    ],
)
def test_what_is_no_url_of_a_daemon_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(SdkError, match=r"no URL of a daemon: .*; it looks like unix:/run/"):
        Client(url=url)


def test_options_that_a_daemon_of_others_cannot_heed_are_refused() -> None:
    with pytest.raises(TypeError, match="composition is for a daemon that this client starts"):
        Client(url="unix:/x.sock", composition="host")
    with pytest.raises(TypeError, match="token needs a url"):
        Client(token="x")
    with pytest.raises(TypeError, match="token or token_file"):
        Client(url="tcp://127.0.0.1:1", token="x", token_file="y")
    with pytest.raises(TypeError, match="spawn needs a unix: url"):
        Client(url="tcp://127.0.0.1:1", spawn=True)
    with pytest.raises(TypeError, match="on_stderr does not go with spawn"):
        Client(url="unix:/x.sock", spawn=True, on_stderr=print)

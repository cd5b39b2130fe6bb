"""A daemon that its clients start and share."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from cordisd import mock as model
from cordisd_sdk import (
    AsyncClient,
    Client,
    ConnectionClosedError,
    NotListeningError,
    RequestTimeoutError,
    RpcError,
    SdkError,
)
from daemon import module_path
from measure import PATIENCE_S, comes
from processes import gone
from served import daemons_at, obey

START = """
import asyncio, json, sys
from cordisd_sdk import AsyncClient

async def start(name, options):
    client = await AsyncClient(**options).start()
    await client.session(name).create()
    return client

async def main(prefix, n_clients, options):
    starting = [start(f"{prefix}-{number}", options) for number in range(n_clients)]
    clients = await asyncio.gather(*starting)
    sys.stdin.read()
    for client in clients:
        await client.close()

asyncio.run(main(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])))
"""
HANGS = """
import asyncio
from contextlib import asynccontextmanager
from cordisd.kernel.entry import Entry

class Hang(Entry):
    lifetime = "host"

    @asynccontextmanager
    async def mount(self, scope):
        print("I hang", flush=True)
        await asyncio.Event().wait()
        yield
"""


class Spot:
    """A place for a socket; whatever serves there is killed in the end."""

    def __init__(self, folder: Path, model_url: str) -> None:
        self.folder = folder
        self.path = folder / "shared.sock"
        self.log = folder / "shared.sock.log"
        self.url = f"unix:{self.path}"
        self._model_url = model_url

    def options(self, **more: Any) -> dict[str, Any]:
        cleared = {name: None for name in os.environ if name.startswith("DSH_")}
        return {
            "url": self.url,
            "spawn": True,
            "cwd": str(self.folder),
            "session_root": str(self.folder / "sessions"),
            "base_url": self._model_url,
            "exit_when_idle_s": 60,
            "env": cleared | {"DSH_SESSION_ROOT": str(self.folder / "sessions"), **more.pop("env", {})},
            **more,
        }

    def daemon(self) -> int:
        [pid] = daemons_at(self.path)
        return pid

    def kill(self) -> None:
        pids = set(daemons_at(self.path))
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        assert gone(pids, PATIENCE_S)


@pytest.fixture(scope="module")
def model_url() -> Iterator[str]:
    with model.MockModelThread(obey) as mock:
        yield mock.url


@pytest.fixture
def spot(tmp_path: Path, model_url: str) -> Iterator[Spot]:
    spot = Spot(tmp_path, model_url)
    yield spot
    spot.kill()


def test_a_spawned_daemon_outlives_its_client_and_serves_the_next_one_with_what_lives_there(
    spot: Spot,
) -> None:
    with Client(**spot.options()) as first:
        assert first.session("s").run("$ x=1; cd /").final_response == "done"
        pid = spot.daemon()
        assert os.getsid(pid) not in (os.getsid(0), pid)
        assert Path(f"/proc/{pid}/cwd").resolve() == spot.folder
    with Client(url=spot.url) as second:
        result = second.session("s").run("$ echo $x $PWD")
        assert '"text":"1 /"' in json.dumps(result.events, separators=(",", ":"))
        assert spot.daemon() == pid
        second.shutdown()
    assert gone({pid}, PATIENCE_S)
    assert not spot.path.exists()
    assert spot.log.read_text() == f"cordisd: listening on {spot.url}\n"
    assert spot.log.stat().st_mode & 0o777 == 0o600


def test_of_many_clients_in_many_processes_that_start_together_one_starts_the_daemon(spot: Spot) -> None:
    wanted = [f"p{number}-{client}" for number in range(3) for client in range(4)]
    with ExitStack() as stack:
        for number in range(3):
            command = [sys.executable, "-c", START, f"p{number}", "4", json.dumps(spot.options())]
            process = stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE))
            stack.callback(process.kill)
        with Client(**spot.options()) as client:
            assert comes(lambda: sorted(row["sessionId"] for row in client.list()) == wanted)
            assert len(daemons_at(spot.path)) == 1
    assert spot.log.read_text() == f"cordisd: listening on {spot.url}\n"


def test_a_daemon_that_was_started_by_hand_and_was_quicker_is_the_one_to_connect_to(spot: Spot) -> None:
    site = spot.folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        f"import os, time\nwhile not os.path.exists({str(spot.path)!r}): time.sleep(0.01)"
    )
    options = spot.options(env={"PYTHONPATH": module_path(site)})
    n_initialized = 0
    with socket.socket(socket.AF_UNIX) as quicker, ThreadPoolExecutor() as threads, ExitStack() as stack:
        clients = [Client(**options) for _ in range(2)]
        starting = [threads.submit(client.start) for client in clients]
        assert comes(lambda: daemons_at(spot.path))  # it waits for the socket
        quicker.bind(str(spot.path))
        quicker.listen()
        while n_initialized < len(clients):
            connection = stack.enter_context(quicker.accept()[0])
            if connection.recv(1 << 16):  # else it was the daemon, which looks who is there
                connection.sendall(b'{"jsonrpc":"2.0","id":1,"result":{}}\n')
                n_initialized += 1
        for client, started in zip(clients, starting, strict=True):
            assert started.result() is client
            client.close()
    assert "a daemon listens there already" in spot.log.read_text()


def test_a_faulty_composition_is_told_to_every_client_that_asks_for_it_with_its_line(spot: Spot) -> None:
    broken = spot.folder / "broken.cordis.yml"
    broken.write_text("- {id: x, name: bassh}\n")

    async def main() -> list[Any]:
        clients = [AsyncClient(**spot.options(composition=str(broken))) for _ in range(3)]
        return await asyncio.gather(*(client.start() for client in clients), return_exceptions=True)

    for error in asyncio.run(main()):
        assert type(error) is ConnectionClosedError
        assert str(error).startswith(f"{spot.url}: the daemon that was started there ended\n")
        assert "broken.cordis.yml:1" in error.stderr_tail and "bassh" in str(error)
    assert daemons_at(spot.path) == []


def test_a_daemon_that_does_not_come_up_in_time_is_told_with_its_last_words_and_is_gone(spot: Spot) -> None:
    (spot.folder / "hanging.py").write_text(HANGS)
    hanging = spot.folder / "hanging.cordis.yml"
    hanging.write_text("- {id: x, name: 'hanging:Hang'}\n")
    path = {"PYTHONPATH": module_path(spot.folder)}
    options = spot.options(composition=str(hanging), env=path)

    async def main() -> None:
        starting = asyncio.ensure_future(AsyncClient(**options).start())
        async with asyncio.timeout(PATIENCE_S):
            while not (spot.log.exists() and "I hang" in spot.log.read_text()):
                await asyncio.sleep(0.01)
        waiting = AsyncClient(**spot.options(start_timeout_s=0.3))
        with pytest.raises(RequestTimeoutError, match=f"^{spot.url}: no "):
            await waiting.start()
        [pid] = daemons_at(spot.path)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert gone({pid}, PATIENCE_S)

    asyncio.run(main())
    for limit_s in (1.0, 4.0, 16.0):  # on a busy machine it may not have said anything yet
        with pytest.raises(RequestTimeoutError, match="was not ready in time") as caught:
            Client(**options | {"start_timeout_s": limit_s}).start()
        assert comes(lambda: daemons_at(spot.path) == [])
        if caught.value.stderr_tail:
            break
    assert caught.value.stderr_tail == "I hang"


def test_a_daemon_that_was_idle_for_long_enough_ends_and_the_next_client_starts_another(spot: Spot) -> None:
    with Client(**spot.options(exit_when_idle_s=1)) as client:
        client.session("s").create()
        first = spot.daemon()
    assert gone({first}, PATIENCE_S)
    with pytest.raises(NotListeningError):
        Client(url=spot.url).start()
    with Client(**spot.options()) as client:
        assert client.list() == []
        assert spot.daemon() != first


def test_a_client_that_meets_a_daemon_which_is_about_to_end_tries_again(spot: Spot) -> None:
    ending = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32004,"message":"the daemon is shutting down"}}\n'
    answers = [b"", ending, b'{"jsonrpc":"2.0","id":1,"result":{}}\n']

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        if answer := answers.pop(0):
            writer.write(answer)
            await reader.read()
        writer.close()

    async def main() -> None:
        async with await asyncio.start_unix_server(serve, spot.path):
            async with AsyncClient(**spot.options()):
                pass
            answers[:] = [ending]
            with pytest.raises(RpcError, match=f"^{spot.url}: the daemon is shutting down"):
                await AsyncClient(url=spot.url).start()

    asyncio.run(main())
    assert answers == []


def test_a_daemon_that_was_killed_is_replaced_though_its_socket_is_still_there(spot: Spot) -> None:
    with Client(**spot.options()) as client:
        first = spot.daemon()
        spot.kill()
        with pytest.raises(ConnectionClosedError):
            client.ping()
    assert spot.path.is_socket()
    with Client(**spot.options()) as client:
        client.ping()
        assert spot.daemon() != first


def test_another_agent_than_the_one_that_runs_is_refused_if_its_digest_is_required(spot: Spot) -> None:
    with Client(**spot.options()) as client:
        digest = client.server["digest"]
        Client(**spot.options(composition="host", require_preset=digest)).start().close()
        with pytest.raises(RpcError, match=f"^{spot.url}: ") as caught:
            Client(**spot.options(require_preset="sha256:" + "0" * 64)).start()
        assert caught.value.code == -32021
        client.ping()


def test_a_log_that_is_not_ours_is_left_alone_and_told(spot: Spot) -> None:
    victim = spot.folder / "victim"
    victim.write_text("precious")
    spot.log.symlink_to(victim)
    with pytest.raises(SdkError, match=r"cannot open .*shared\.sock\.log"):
        Client(**spot.options()).start()
    spot.log.unlink()
    os.mkfifo(spot.log)
    with pytest.raises(SdkError, match=r"shared\.sock\.log is no file of yours"):
        Client(**spot.options()).start()
    nowhere = f"unix:{spot.folder}/none/x.sock"
    with pytest.raises(SdkError, match=f"^{nowhere}: cannot open .*: No such file"):
        Client(**spot.options() | {"url": nowhere}).start()
    assert victim.read_text() == "precious"
    assert daemons_at(spot.path) == []

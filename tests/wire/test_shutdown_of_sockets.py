"""However a daemon with many connections ends: each hears the end of its sessions, and nothing is left."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordisd.mock import MockModel, MockModelThread, Received, Reply, call, text
from daemon import clean_environment
from floods import flood, is_idle
from measure import PATIENCE_S, SOON_S, comes
from processes import alive, children, descendants, gone
from socket_daemon import SocketClient, SocketDaemon, dial, is_reached, wait_for_words

STUBBORN = "trap '' TERM; setsid sleep 1000 & (sleep 1000 &) ; touch started-$$; sleep 1000"


def reply(request: Received) -> Reply:
    last = request.json["messages"][-1]
    if last["role"] == "user" and last["content"] == "flood":
        return flood(10_000_000)
    if last["role"] == "user" and last["content"].startswith("run "):
        return call("c1", "bash", {"command": last["content"].removeprefix("run ")})
    return text("ok")


@pytest.fixture
def mock() -> Iterator[MockModel]:
    with MockModelThread(reply) as mock:
        yield mock


def listening(tmp_path: Path, mock: MockModel, *places: str) -> SocketDaemon:
    work = tmp_path / "w"
    work.mkdir()
    return SocketDaemon(work, "--socket", str(tmp_path / "s"), *places, model_url=mock.url)


def start(client: SocketClient, session: str, command: str = STUBBORN) -> None:
    client.initialize()
    client.prompt(session, f"run {command}")


@pytest.mark.parametrize("how", ["shutdown", "SIGTERM"])
def test_every_client_hears_the_end_of_its_sessions_though_one_does_not_read(
    how: str, tmp_path: Path, mock: MockModel
) -> None:
    with listening(tmp_path, mock) as daemon:
        clients = [daemon.connect() for _ in range(4)]
        asking, deaf, half_closed = daemon.connect(), daemon.connect(), daemon.connect()
        for number, client in enumerate(clients):
            start(client, f"s{number}")
        deaf.pause_reading()
        for client in (deaf, asking, half_closed):
            client.initialize()
        deaf.send(
            "session/prompt", {"sessionId": "deaf", "contentBlocks": [{"type": "text", "text": "flood"}]}
        )
        assert comes(lambda: is_idle(asking, "deaf"))
        half_closed.pause_reading()
        half_closed.send("session/attach", {"sessionId": "deaf", "from": 0})
        half_closed.finish()
        assert comes(lambda: len(list(daemon.cwd.glob("started-*"))) == len(clients))
        below = descendants(daemon.process.pid)
        assert len(below) > 4 * len(clients)
        if how == "shutdown":
            assert asking.request("shutdown") == {}
        else:
            daemon.process.send_signal(signal.SIGTERM)
        for number, client in enumerate(clients):
            client.wait_end()
            last = client.events(f"s{number}")[-1]
            assert last["data"]["reason"] == {"kind": "aborted", "reason": {"kind": "disposed"}}
            assert client.frames[-1]["params"] == {"sessionId": f"s{number}", "status": "idle"}
            assert daemon.log(f"s{number}")[-1] == last
        assert daemon.process.wait(SOON_S) == 0
        assert gone(below), alive(below)
        assert not (tmp_path / "s").exists()
        for client in (*clients, asking, deaf, half_closed):
            client.close()
        daemon.end()
        assert daemon.stderr.count(b"\n") == 1, daemon.stderr


def test_no_connection_is_taken_while_the_daemon_ends(tmp_path: Path, mock: MockModel) -> None:
    with listening(tmp_path, mock) as daemon, daemon.connect() as client:
        [guardian] = children(daemon.process.pid)
        start(client, "s", "touch started; sleep 1000")
        assert comes((daemon.cwd / "started").exists)
        os.kill(guardian, signal.SIGSTOP)  # which makes the end take two seconds
        try:
            assert client.request("shutdown") == {}
            assert comes(lambda: not (tmp_path / "s").exists())
            with pytest.raises(OSError):
                dial(f"unix:{tmp_path / 's'}")
        finally:
            os.kill(guardian, signal.SIGCONT)
        assert daemon.process.wait(SOON_S) == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_ends_it_at_once_and_still_nothing_is_left(
    number: signal.Signals, code: int, tmp_path: Path, mock: MockModel
) -> None:
    with listening(tmp_path, mock) as daemon, daemon.connect() as client:
        [guardian] = children(daemon.process.pid)
        start(client, "s")
        assert comes(lambda: list(daemon.cwd.glob("started-*")))
        below = descendants(daemon.process.pid)
        os.kill(guardian, signal.SIGSTOP)
        daemon.process.send_signal(signal.SIGTERM)
        assert comes(lambda: not (tmp_path / "s").exists())
        daemon.process.send_signal(number)
        assert daemon.process.wait(SOON_S) == code
        assert gone(below), alive(below)


def test_a_daemon_of_sockets_outlives_who_has_started_it(tmp_path: Path, mock: MockModel) -> None:
    path = tmp_path / "s"
    serve = f"{sys.executable} -m cordisd serve --socket {path}"
    started = subprocess.run(
        ["/bin/sh", "-c", f"{serve} </dev/null >/dev/null 2>{tmp_path}/errors & echo $!"],
        cwd=tmp_path,
        env=clean_environment(DSH_SESSION_ROOT=str(tmp_path / "logs")),
        capture_output=True,
        timeout=PATIENCE_S,
    )
    pid = int(started.stdout)
    try:
        assert comes(lambda: "listening on" in (tmp_path / "errors").read_text())
        with SocketClient(f"unix:{path}", tmp_path) as client:
            client.initialize()
            assert client.request("shutdown") == {}
        assert gone({pid})
        assert (tmp_path / "errors").read_text() == f"cordisd: listening on unix:{path}\n"
    finally:
        if alive({pid}):
            os.kill(pid, signal.SIGKILL)


def test_a_daemon_is_not_idle_while_a_session_runs(tmp_path: Path, mock: MockModel) -> None:
    daemon = listening(tmp_path, mock, "--exit-when-idle", "0.3")
    with daemon.connect_early(tmp_path / "s") as client:
        start(client, "s", "until [ -e go ]; do sleep 0.05; done")
    with pytest.raises(subprocess.TimeoutExpired):
        daemon.process.wait(1)
    (daemon.cwd / "go").touch()
    assert daemon.process.wait(SOON_S) == 0
    assert daemon.end() == 0
    assert daemon.log("s")[-1]["data"]["reason"] == {"kind": "completed"}


def test_whoever_cannot_be_told_that_it_is_ready_is_served_all_the_same(
    tmp_path: Path, mock: MockModel
) -> None:
    path = tmp_path / "s"
    reader, writer = os.pipe()
    os.close(reader)
    with subprocess.Popen(
        [sys.executable, "-m", "cordisd", "serve", "--socket", str(path)],
        cwd=tmp_path,
        env=clean_environment(DSH_SESSION_ROOT=str(tmp_path / "logs")),
        stdin=subprocess.DEVNULL,
        stderr=writer,
    ) as process:
        os.close(writer)
        assert comes(lambda: is_reached(path))
        with SocketClient(f"unix:{path}", tmp_path) as client:
            client.initialize()
            assert client.request("shutdown") == {}
        assert process.wait(SOON_S) == 0


def test_a_daemon_without_descriptors_says_so_and_accepts_again_when_it_has_some(
    tmp_path: Path, mock: MockModel
) -> None:
    with listening(tmp_path, mock) as daemon:
        before = resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (24, before[1]))
        clients = [daemon.connect() for _ in range(12)]
        wait_for_words(daemon, "Too many open files")
        with clients[0] as first:
            first.initialize()
        resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, before)
        served = daemon.connect()
        assert served.request("rpc.ping", timeout_s=PATIENCE_S) == {}
        for client in (*clients, served):
            client.close()

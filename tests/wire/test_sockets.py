"""A daemon that listens on Unix sockets: who reaches it, where, and what is left of that at its end."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordisd.mock import MockModelThread, text
from daemon import Daemon, clean_environment, module_path
from measure import PATIENCE_S, SOON_S
from socket_daemon import SocketClient, SocketDaemon, wait_for_words

NOBODY, SOMEBODY = 65534, 65533


def serve(cwd: Path, *places: str) -> subprocess.CompletedProcess[bytes]:
    """The end of a daemon that should not have started."""
    return subprocess.run(
        [sys.executable, "-m", "cordisd", "serve", *places],
        cwd=cwd,
        env=clean_environment(DSH_SESSION_ROOT=str(cwd / "logs")),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE_S,
    )


def work_in(tmp_path: Path) -> Path:
    work = tmp_path / "w"
    work.mkdir()
    return work


def test_one_that_listens_is_left_alone_and_one_that_was_killed_is_replaced(tmp_path: Path) -> None:
    work, path = work_in(tmp_path), tmp_path / "s"
    with SocketDaemon(work, "--socket", str(path)) as first:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        refused = serve(work, "--socket", str(tmp_path / "other"), "--socket", str(path))
        assert refused.returncode == 2
        assert refused.stderr.decode() == f"cordisd serve: {path}: a daemon listens there already\n"
        assert not (tmp_path / "other").exists(), "either all places or none"
        with first.connect() as client:
            assert client.request("rpc.ping") == {}
        first.process.kill()
        first.end()
    assert path.is_socket()
    with SocketDaemon(work, "--socket", str(path)) as second:
        with second.connect() as client:
            assert client.request("rpc.ping") == {}
        assert second.end() == 0
        assert not path.exists()
        assert second.stderr.decode() == f"cordisd: listening on unix:{path}\n"


def test_a_file_that_somebody_has_put_there_since_stays_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with SocketDaemon(work_in(tmp_path), "--socket", str(path)) as daemon:
        path.unlink()
        path.write_text("precious")
        assert daemon.end() == 0
    assert path.read_text() == "precious"


@pytest.mark.parametrize("composition", ["nowhere", "broken"])
def test_a_daemon_that_cannot_start_leaves_no_socket(composition: str, tmp_path: Path) -> None:
    (tmp_path / "broken.yml").write_text("- {id: slow, name: 'loop_entries:SleepersEntry'}\n")
    name = str(tmp_path / "broken.yml") if composition == "broken" else composition
    assert serve(work_in(tmp_path), "--socket", str(tmp_path / "s"), name).returncode == 2
    assert not (tmp_path / "s").exists()


def test_nothing_to_serve_on_is_refused(tmp_path: Path) -> None:
    for places, told in (
        ([], "give --stdio, --socket PATH or --listen HOST:PORT"),
        (["--socket", str(tmp_path / "none" / "s")], "cannot listen there: No such file or directory"),
        (["--listen", "127.0.0.1:0"], "--listen needs --token-file"),
        (["--listen", "7000", "--token-file", "/proc/self/exe"], "the token cannot be read"),
    ):
        refused = serve(tmp_path, *places)
        assert refused.returncode == 2
        assert told in refused.stderr.decode()
        assert len(refused.stderr.splitlines()) == 1


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can go into."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def as_user(uid: int) -> tuple[str, ...]:
    return ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups")


def reached_by(uid: int, path: Path) -> bool:
    """Whether a process of that user that connects and asks gets an answer."""
    program = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); "
        """s.send(b'{"jsonrpc":"2.0","id":1,"method":"rpc.ping"}\\n'); """
        "sys.stdout.write(s.makefile().readline())"
    )
    asked = subprocess.run(
        [*as_user(uid), sys.executable, "-c", program, os.fspath(path)], capture_output=True, text=True
    )
    return '"result"' in asked.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_only_its_own_user_and_root_are_served_even_if_the_file_lets_others_in(open_folder: Path) -> None:
    work = work_in(open_folder)
    logs = open_folder / "w-sessions"
    logs.mkdir()
    for folder in (open_folder, work, logs):
        os.chown(folder, NOBODY, NOBODY)
    path = open_folder / "s"
    with SocketDaemon(work, "--socket", str(path), launcher=as_user(NOBODY)) as daemon:
        assert path.stat().st_uid == NOBODY
        assert reached_by(NOBODY, path)
        assert reached_by(0, path)
        path.chmod(0o666)
        assert not reached_by(SOMEBODY, path)
        wait_for_words(daemon, f"a connection of user {SOMEBODY} was refused")
        assert reached_by(NOBODY, path)


def test_stdio_hears_every_session_a_client_its_own_and_those_it_attaches_to(tmp_path: Path) -> None:
    work, path = work_in(tmp_path), tmp_path / "s"
    argv = [sys.executable, "-m", "cordisd", "serve", "--stdio", "--socket", str(path), "minimal"]
    with MockModelThread(lambda _: text("ok")) as mock, Daemon(work, model_url=mock.url, argv=argv) as stdio:
        wait_for_words(stdio, "listening on")
        with SocketClient(f"unix:{path}", work) as one, SocketClient(f"unix:{path}", work) as other:
            for client in (stdio, one, other):
                client.initialize()
            stdio.run("a", "x")
            of_b = one.run("b", "x")
            of_c = other.run("c", "x")
            assert other.request("session/attach", {"sessionId": "b", "from": 0}) == {
                "lastSeq": len(of_b) - 1
            }
            stdio.wait_idle("c")
            assert (stdio.events("b"), stdio.events("c")) == (of_b, of_c)
            other.wait(lambda: other.events("b") == of_b)
            assert one.request("rpc.ping") == {}, "and so whatever was to come is there"
            assert {event["params"]["sessionId"] for event in one.frames if "method" in event} == {"b"}
            assert {event["params"]["sessionId"] for event in other.frames if "method" in event} == {"b", "c"}
            stdio.process.stdin.close()  # type: ignore[union-attr]
            assert stdio.process.wait(SOON_S) == 0
            one.wait_end()
        assert not path.exists()


def test_without_stdio_the_end_of_standard_input_means_nothing(tmp_path: Path) -> None:
    with SocketDaemon(work_in(tmp_path), "--socket", str(tmp_path / "s")) as daemon:
        daemon.process.stdin.close()  # type: ignore[union-attr]
        with daemon.connect() as client:
            client.initialize()
        with daemon.connect() as client:
            assert client.request("shutdown") == {}
            client.wait_end()
        assert daemon.process.wait(SOON_S) == 0


def test_a_daemon_ends_when_nobody_has_needed_it_for_long_enough(tmp_path: Path) -> None:
    path = tmp_path / "s"
    daemon = SocketDaemon(work_in(tmp_path), "--socket", str(path), "--exit-when-idle", "0.3")
    with daemon.connect_early(path) as client:
        client.initialize()
        with pytest.raises(subprocess.TimeoutExpired):
            daemon.process.wait(0.8)
    assert daemon.process.wait(SOON_S) == 0
    assert daemon.end() == 0
    assert not path.exists()


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "x"])
def test_an_idle_time_is_a_positive_number(seconds: str, tmp_path: Path) -> None:
    refused = serve(tmp_path, "--socket", str(tmp_path / "s"), f"--exit-when-idle={seconds}")
    assert refused.returncode == 2
    assert b"argument --exit-when-idle: must be a number of seconds above 0, not " in refused.stderr


def heeds(pid: int, number: int) -> bool:
    """Whether a process handles that signal."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    mask = next(int(line.split()[1], 16) for line in status if line.startswith("SigCgt"))
    return bool(mask >> (number - 1) & 1)


def test_a_signal_while_the_composition_mounts_leaves_no_socket(tmp_path: Path) -> None:
    (tmp_path / "slow.yml").write_text("- insert: [{id: slow, name: 'loop_entries:SlowEntry'}]\n")
    path = tmp_path / "s"
    daemon = SocketDaemon(
        work_in(tmp_path),
        "--socket",
        str(path),
        composition=("minimal", "--patch", str(tmp_path / "slow.yml")),
        PYTHONPATH=module_path(Path(__file__).parents[1]),
    )
    while not (path.exists() and heeds(daemon.process.pid, signal.SIGTERM)):
        assert daemon.process.poll() is None, daemon.stderr
    with socket.socket(socket.AF_UNIX) as early:
        early.connect(os.fspath(path))
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.wait(SOON_S) == 0
    daemon.end()
    assert not path.exists()

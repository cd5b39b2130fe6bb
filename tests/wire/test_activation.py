"""Sockets that systemd opens and hands over, and that none of them reaches a tool."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from cordisd.mock import MockModelThread, call, text
from measure import PATIENCE_S
from processes import children, descendants
from socket_daemon import SocketDaemon

TOKEN = "0123456789abcdef0123"
LAUNCHER = """
import os, socket, sys
kinds, command = sys.argv[1 : sys.argv.index("--")], sys.argv[sys.argv.index("--") + 1 :]
fds = []
for kind, _, where in (word.partition("=") for word in kinds):
    match kind:
        case "unix":
            made = socket.socket(socket.AF_UNIX)
            made.bind(where)
            made.listen()
        case "tcp":
            made = socket.create_server(("127.0.0.1", 0))
        case "datagram":
            made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        case "deaf":
            made = socket.socket(socket.AF_UNIX)
        case "file":
            made = open(where)
        case "nothing":
            continue
    fds.append(made.detach() if isinstance(made, socket.socket) else os.dup(made.fileno()))
high = [os.dup2(fd, 100 + n) for n, fd in enumerate(fds)]
os.closerange(3, 100)
for n, fd in enumerate(high):
    os.dup2(fd, 3 + n)
os.closerange(3 + len(fds), 200)
os.environ.setdefault("LISTEN_PID", str(os.getpid()))
os.environ.setdefault("LISTEN_FDS", str(len(kinds)))
os.environ["LISTEN_FDNAMES"] = ":".join(["name"] * len(kinds))
os.execv(command[0], command)
"""
"""What systemd does: the sockets of argv, up to `--`, from fd 3 on, for the command behind it."""


def activated(tmp_path: Path, *kinds: str, places: tuple[str, ...] = (), **options: Any) -> SocketDaemon:
    work = tmp_path / "w"
    work.mkdir(exist_ok=True)
    launcher = (sys.executable, "-c", LAUNCHER, *kinds, "--")
    return SocketDaemon(work, *places, launcher=launcher, **options)


def sockets_of(pid: int) -> list[str]:
    """What the descriptors of a process refer to, if they are sockets."""
    found = [os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()]
    return [target for target in found if target.startswith("socket:")]


def environment_of(pid: int) -> set[str]:
    words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return {os.fsdecode(word.partition(b"=")[0]) for word in words}


def test_what_systemd_hands_over_is_served_beside_the_daemons_own(tmp_path: Path) -> None:
    given, own, token = tmp_path / "given", tmp_path / "own", tmp_path / "token"
    token.write_text(TOKEN)
    places = ("--socket", str(own), "--token-file", str(token))
    script = [call("c1", "bash", {"command": "env; sleep 1000 & echo $!"}), text("ok")]
    with (
        MockModelThread(script) as mock,
        activated(tmp_path, f"unix={given}", "tcp", places=places, model_url=mock.url) as daemon,
    ):
        unix, tcp, ours = daemon.urls()
        assert (unix, ours) == (f"unix:{given}", f"unix:{own}")
        with daemon.connect(ours) as client:
            client.initialize()
        with daemon.connect(tcp) as client:
            assert client.refused("rpc.ping")[0] == -32006
        with daemon.connect(tcp) as remote, daemon.connect(unix) as client:
            remote.initialize(token=TOKEN)
            client.initialize()
            result = next(e["data"] for e in client.run("s", "go") if e["type"] == "tool/result")
            told = result["message"]["content"][0]["content"][0]["text"]
            assert "LISTEN_" not in told
            assert "PATH=" in told
            [guardian] = children(daemon.process.pid)
            assert len(sockets_of(guardian)) == 1, "its connection to the daemon"
            tools = descendants(guardian)
            assert len(tools) >= 2, "a bash and its job"
            for pid in tools:
                assert sockets_of(pid) == []
                assert not {name for name in environment_of(pid) if name.startswith("LISTEN")}
        assert daemon.end() == 0
        assert given.exists(), "it is systemd's to remove"
        assert not own.exists()


@pytest.mark.parametrize(
    ("kinds", "complaint"),
    [
        (["datagram"], "fd 3 is no listening stream socket"),
        (["unix={}/s", "deaf"], "fd 4 is no listening stream socket"),
        (["file=/dev/null"], "fd 3: Socket operation on non-socket"),
        (["nothing"], "LISTEN_FDS: fd 3"),
        ([], "LISTEN_FDS must be a number of sockets, not '0'"),
        (["tcp"], "that needs --token-file"),
    ],
)
def test_what_is_no_listening_socket_is_refused(kinds: list[str], complaint: str, tmp_path: Path) -> None:
    daemon = activated(tmp_path, *(kind.format(tmp_path) for kind in kinds))
    assert daemon.process.wait(PATIENCE_S) == 2
    daemon.end()
    assert complaint in daemon.stderr.decode()
    assert b"Traceback" not in daemon.stderr


def test_what_is_meant_for_another_process_is_left_alone_and_not_passed_on(tmp_path: Path) -> None:
    given, own = tmp_path / "given", tmp_path / "own"
    script = [call("c1", "bash", {"command": "env"}), text("ok")]
    with (
        MockModelThread(script) as mock,
        activated(
            tmp_path, f"unix={given}", places=("--socket", str(own)), model_url=mock.url, LISTEN_PID="1"
        ) as daemon,
    ):
        assert daemon.urls() == [f"unix:{own}"]
        with daemon.connect() as client:
            client.initialize()
            client.run("s", "go")
            told = mock.requests[1].json["messages"][-1]["content"]
            assert "LISTEN_" not in told

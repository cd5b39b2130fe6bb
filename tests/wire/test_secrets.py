"""Model keys and the socket's token are in no tool, file, frame or message, nor can a tool look for them."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordisd.mock import MockModelThread, Received, Reply, call, error, text
from measure import PATIENCE_S, comes
from processes import children
from socket_daemon import SocketDaemon

NOBODY = 65534
KEY, OTHER_KEY = "sk-model-0123456789abcdef", "sk-other-0123456789abcdef"
TOKEN = "token-0123456789abcdef"
LOOK = """
guardian=$PPID
daemon=$(awk '/^PPid/ {print $2}' /proc/$guardian/status)
for pid in $guardian $daemon; do
  for name in environ mem maps; do
    if head -c 1 /proc/$pid/$name >/dev/null 2>why; then echo "OPEN $pid $name"
    else grep -q 'Permission denied' why || echo "UNEXPECTED $(<why)"; fi
  done
  ls /proc/$pid/fd >/dev/null 2>&1 && echo "OPEN $pid fd"
done
env
echo looked
"""
"""A command that tries to see what its daemon holds."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of the user as whom the daemon runs: nobody, for root could look into everything."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for inner in ("w", "w-sessions", "tmp"):
            (folder / inner).mkdir()
        (folder / "token").write_text(TOKEN)
        (folder / "token").chmod(0o600)
        if os.geteuid() == 0:
            for path in (folder, *folder.iterdir()):
                os.chown(path, NOBODY, NOBODY)
        yield folder


def launcher() -> tuple[str, ...]:
    """A command that runs another as nobody, with as large cores as there may be."""
    with_cores = ("sh", "-c", 'ulimit -c "$(ulimit -Hc)"; exec "$@"', "sh")
    if os.geteuid() != 0:
        return with_cores
    return (*with_cores, "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")


def daemon_in(folder: Path, model_url: str) -> SocketDaemon:
    places = ["--socket", str(folder / "s"), "--listen", ":0", "--token-file", str(folder / "token")]
    return SocketDaemon(
        folder / "w",
        *places,
        "--log-level",
        "debug",
        model_url=model_url,
        launcher=launcher(),
        DEEPSEEK_API_KEY=KEY,
        OPENAI_API_KEY=OTHER_KEY,
        TMPDIR=str(folder / "tmp"),
    )


def holding(folder: Path, secret: str) -> list[Path]:
    """The files under `folder` that hold the secret."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return [path for path in files if secret.encode() in path.read_bytes()]


def test_no_secret_is_told_written_or_seen(folder: Path) -> None:
    def reply(request: Received) -> Reply:
        messages = request.json["messages"]
        if len(mock.requests) == 1:
            return error(401, f"Incorrect API key provided: {request.header('authorization')}")
        return text("ok") if messages[-1]["role"] == "tool" else call("c1", "bash", {"command": LOOK})

    with MockModelThread(reply) as mock, daemon_in(folder, mock.url) as daemon:
        unix, tcp = daemon.urls()
        with daemon.connect(tcp) as stranger:
            stranger.send("initialize", {"token": f"{TOKEN}x"})
            told = stranger.wait_end()
        with daemon.connect(tcp) as client, daemon.connect(unix) as local:
            client.initialize(token=TOKEN)
            local.initialize()
            client.run("s", "go")
            events = client.run("s", "go on")
            [looked] = [event["data"]["message"] for event in events if event["type"] == "tool/result"]
            seen = looked["content"][0]["content"][0]["text"]
            client.refused("session/create", {"cwd": "/nowhere", "token": TOKEN})
            client.request("session/close", {"sessionId": "s"})
            told += client.frames + local.frames
        assert daemon.end() == 0
    assert any(request.header("authorization") == f"Bearer {KEY}" for request in mock.requests)
    assert "PATH=" in seen and seen.rstrip().endswith("looked")
    assert "OPEN" not in seen and "UNEXPECTED" not in seen, seen
    for secret in (KEY, OTHER_KEY, TOKEN):
        assert secret not in seen
        assert secret not in repr(told)
        assert secret.encode() not in daemon.stderr
        assert [path for path in holding(folder, secret) if path.name != "token"] == []
    assert list((folder / "tmp").iterdir()) == []


def test_neither_daemon_nor_guardian_can_be_looked_into_or_leaves_a_core(folder: Path) -> None:
    with MockModelThread([text("ok")]) as mock, daemon_in(folder, mock.url) as daemon:
        pid = daemon.process.pid
        [guardian] = children(pid)
        for hidden in (pid, guardian):
            assert comes(lambda hidden=hidden: os.stat(f"/proc/{hidden}/environ").st_uid == 0)
        daemon.process.send_signal(signal.SIGSEGV)
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        assert (ended.si_status, ended.si_code) == (signal.SIGSEGV, os.CLD_KILLED), "and not CLD_DUMPED"
        daemon.process.wait(PATIENCE_S)

"""Sessions that say more than anybody reads, and what a daemon holds meanwhile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cordisd.mock import RawReply, Received, Reply, call, delta, text
from cordisd.session.store import SessionStore
from measure import comes
from processes import footprint
from socket_daemon import SocketClient, SocketDaemon

CHUNK_BYTES = 50_000


def flood(n_bytes: int) -> RawReply:
    """An answer of that length."""
    chunk = delta({"content": "x" * CHUNK_BYTES})
    return RawReply([chunk] * (n_bytes // CHUNK_BYTES) + [delta({}, "stop")])


def reply(request: Received) -> Reply:
    """A prompt `flood N` is answered with N megabytes, `echo` with a command first, any other with a word."""
    last = request.json["messages"][-1]
    match last["content"].split() if last["role"] == "user" else []:
        case ["flood", megabytes]:
            return flood(int(megabytes) * 1_000_000)
        case ["echo"]:
            return call("c1", "bash", {"command": "echo hi"})
    return text("ok")


def start_flood(client: SocketClient, session: str, megabytes: int) -> None:
    """Prompt, without waiting for the answer."""
    blocks = [{"type": "text", "text": f"flood {megabytes}"}]
    client.send("session/prompt", {"sessionId": session, "contentBlocks": blocks})


def is_idle(client: SocketClient, session: str) -> bool:
    """Whether there is such a session, and it has done what it was asked."""
    result = client.ask("session/get", {"sessionId": session}).get("result")
    return result is not None and result["status"] == "idle" and result["turns"] > 0


def path_of(daemon: SocketDaemon, session: str) -> Path:
    """The session's log, once there is one."""
    pattern = f"*/{session}/session.jsonl"
    assert comes(lambda: list(daemon.sessions.glob(pattern)))
    [path] = daemon.sessions.glob(pattern)
    return path


def logged(daemon: SocketDaemon, session: str) -> list[dict[str, Any]]:
    """The events of a session's log, one by one."""
    _, events = SessionStore(daemon.sessions).read(path_of(daemon, session))
    return [json.loads(event.json) for event in events]


def peak_kb(pid: int) -> int:
    """The peak of a process's resident memory since `reset_peak`."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])


def reset_peak(pid: int) -> None:
    """Have the kernel measure the peak of resident memory anew."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def held(daemon: SocketDaemon) -> dict[str, int]:
    """What a daemon holds: open descriptors by kind, and connections of clients.

    Sockets are left out: those to the model are kept for a while.
    """
    found = {name: n for name, n in footprint(daemon.process.pid).items() if name.startswith("fd ")}
    del found["fd socket"]
    path = daemon.urls()[0].removeprefix("unix:")
    sockets = Path("/proc/net/unix").read_text().splitlines()
    return {**found, "connections": sum(line.endswith(f" {path}") for line in sockets)}

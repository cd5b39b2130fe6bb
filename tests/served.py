"""A daemon that serves on sockets, and a model that does what prompts say; for the SDK and its clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cordisd import mock as model
from socket_daemon import SocketDaemon

TOKEN = "a token of this test 0123456789"


def obey(request: model.Received) -> model.Reply:
    """`$ COMMAND` runs the command; anything else is answered, and so is a command's end."""
    last = request.json["messages"][-1]
    if last["role"] == "user" and last["content"].startswith("$ "):
        return model.call("c1", "bash", {"command": last["content"][2:]})
    return model.text("done" if last["role"] == "tool" else f"answer to {last['content']}")


class Served(SocketDaemon):
    """`cordisd serve` on a Unix socket and on TCP in `folder`, until the end of the `with`."""

    def __init__(self, folder: Path, model_url: str) -> None:
        workspace = folder / "work"
        workspace.mkdir()
        self.token_file = folder / "token"
        self.token_file.write_text(f"{TOKEN}\n")
        self.token_file.chmod(0o600)
        places = ["--socket", str(folder / "d.sock"), "--listen", "127.0.0.1:0"]
        super().__init__(workspace, *places, "--token-file", str(self.token_file), model_url=model_url)
        self.unix, self.tcp = self.urls()

    def __enter__(self) -> Served:
        return self

    def options(self, place: str = "unix", **more: Any) -> dict[str, Any]:
        """What a client of the SDK needs to connect to it."""
        told: dict[str, Any] = {"url": self.unix}
        if place == "tcp":
            told = {"url": self.tcp, "token_file": self.token_file}
        return {**told, "cwd": self.cwd, **more}


def daemons_at(path: Path) -> list[int]:
    """The daemons, not their guardians, that were started to serve on the socket at `path`."""
    parents = {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and bytes(path) in (entry / "cmdline").read_bytes().split(b"\0"):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it ended while we looked
    return [pid for pid, parent in parents.items() if parent not in parents]

"""Whose a fork is, and who may read, fork and judge a session that another connection owns."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cordisd.mock import MockModelThread, text
from daemon import Daemon, wait_for_file
from measure import PATIENCE_S


def connected(path: Path) -> socket.socket:
    """A connection, as soon as one can be made."""
    wait_for_file(path)
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(PATIENCE_S)
        try:
            made.connect(str(path))
            return made
        except ConnectionRefusedError:
            made.close()
            assert time.monotonic() < deadline_s
            time.sleep(0.01)


class Guest:
    """A second connection to a daemon, on its socket."""

    def __init__(self, path: Path, cwd: Path) -> None:
        self._socket = connected(path)
        self._lines = self._socket.makefile("rb")
        self.heard: list[dict[str, Any]] = []
        self.ask("initialize", cwd=str(cwd), provider="deepseek-official", model="another-model")

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The whole answer; what is heard until then is kept."""
        frame = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        self._socket.sendall(json.dumps(frame).encode() + b"\n")
        while "method" in (got := json.loads(self._lines.readline())):
            self.heard.append(got)
        assert isinstance(got, dict)
        return got

    def hear(self, method: str, session: str) -> None:
        """Read on until that is announced of the session."""
        while not any(
            one["method"] == method and one["params"]["sessionId"] == session for one in self.heard
        ):
            self.heard.append(json.loads(self._lines.readline()))

    def close(self) -> None:
        self._lines.close()
        self._socket.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Daemon, Guest]]:
    work = tmp_path / "w"
    work.mkdir()
    argv = [sys.executable, "-m", "cordisd", "serve", "--stdio", "--socket", str(tmp_path / "s")]
    script = [text("one"), text("two"), text("three")]
    with MockModelThread(script) as mock, Daemon(work, model_url=mock.url, argv=argv) as daemon:
        daemon.initialize()
        guest = Guest(tmp_path / "s", work)
        try:
            yield daemon, guest
        finally:
            guest.close()


def test_a_fork_is_whose_connection_asked_for_it(pair: tuple[Daemon, Guest]) -> None:
    daemon, guest = pair
    daemon.run("s", "first")
    blocks = [{"type": "text", "text": "on"}]
    assert guest.ask("session/prompt", sessionId="s", contentBlocks=blocks)["error"]["code"] == -32003
    assert guest.ask("session/fork", sessionId="s", newSessionId="child")["result"]["sessionId"] == "child"
    asked = {"sessionId": "child", "contentBlocks": blocks}
    assert daemon.refused("session/prompt", asked)[0] == -32003
    assert "result" in guest.ask("session/prompt", **asked)
    guest.hear("session.completed", "child")
    assert {one["params"]["sessionId"] for one in guest.heard} == {"child"}
    model = guest.ask("session/get", sessionId="child")["result"]["model"]
    assert model == daemon.request("session/get", {"sessionId": "s"})["model"], (
        "the parent's, not the guest's"
    )


def test_anybody_reads_and_judges(pair: tuple[Daemon, Guest]) -> None:
    daemon, guest = pair
    sent = daemon.run("s", "first")
    assert guest.ask("session/events", sessionId="s")["result"]["events"] == sent
    assert guest.ask("session/metrics", sessionId="s")["result"]["turns"] == 1
    outcome = {"class": "success", "reward": 1}
    assert guest.ask("session/outcome", sessionId="s", **outcome)["result"] == {}
    assert daemon.request("session/get", {"sessionId": "s"})["outcome"] == outcome
    daemon.wait(lambda: daemon.events("s")[-1]["type"] == "session/outcome")
    assert guest.heard == []

"""A composition that isolates its terminals and its files, as the published minimal preset does."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cordisd.mock import MockModelThread, Received, Reply, calls, text
from daemon import Daemon
from measure import PATIENCE_S
from processes import alive, children, descendants, gone

COMPOSITION = """
- {id: model, name: openai, config: {provider: deepseek-official, models: [{id: deepseek-v4-flash}]}}
- {id: persona, name: "@deepseek-ai/dsh-persona", config: {text: Work., complete: true}}
- id: terminals
  name: cordis:group
  isolate: {terminals: true}
  config:
    - {id: terminal, name: "@deepseek-ai/dsh-terminal"}
    - {id: subprocess, name: "@deepseek-ai/dsh-subprocess-local"}
    - {id: bash, name: "@deepseek-ai/dsh-tool-bash-persistent", config: {timeoutMs: 300000}}
- id: files
  name: cordis:group
  isolate: {fs: true}
  config:
    - {id: fs, name: "@deepseek-ai/dsh-fs-local"}
    - {id: editor, name: "@deepseek-ai/dsh-tool-str-replace-editor"}
- {id: sessions, name: sessions-jsonl}
"""


class Model:
    """Calls what the last user message lists, one call a step; `results` are what it was told."""

    def __init__(self) -> None:
        self.results: list[str] = []

    def __call__(self, request: Received) -> Reply:
        messages = request.json["messages"]
        users = [n for n, message in enumerate(messages) if message["role"] == "user"]
        start = max(n for n in users if messages[n]["content"].startswith("["))  # else a note of the daemon
        steps: list[Any] = json.loads(messages[start]["content"])
        self.results = [message["content"] for message in messages[start:] if message["role"] == "tool"]
        n_done = len(self.results)
        if n_done == len(steps):
            return text("done")
        step = steps[n_done]
        name = "bash" if "path" not in step else "str_replace_editor"
        return calls((f"{start}-{n_done}", name, step))


def bash(command: str) -> dict[str, str]:
    return {"command": command}


@pytest.fixture
def composition(tmp_path: Path) -> Path:
    path = tmp_path / "isolated.cordis.yml"
    path.write_text(COMPOSITION)
    return path


def test_groups_with_private_terminals_and_files_work_like_any_and_leave_nothing(
    composition: Path, tmp_path: Path
) -> None:
    work, other, model = tmp_path / "work", tmp_path / "other", Model()
    work.mkdir()
    other.mkdir()

    def told(daemon: Daemon, session: str, *steps: object) -> list[str]:
        daemon.run(session, json.dumps(steps))
        return model.results

    with (
        MockModelThread(model) as mock,
        Daemon(work, model_url=mock.url, composition=composition) as daemon,
    ):
        daemon.initialize()
        [guardian] = children(daemon.process.pid)
        for session in ("s1", "s2"):
            daemon.request("session/create", {"sessionId": session})
            lines = told(
                daemon,
                session,
                bash(f"kept={session}; cd /; echo here > {work}/{session}.txt; setsid -f sleep 600"),
                bash("echo $kept $PWD"),
                {"command": "view", "path": f"{work}/{session}.txt"},
            )
            assert lines[1] == f"{session} /"
            assert "1  here" in lines[2]
        daemon.request("session/working-directory/set", {"sessionId": "s1", "path": str(other)})
        assert told(daemon, "s1", bash("echo $kept $PWD")) == [f"s1 {other}"]
        assert told(daemon, "s2", bash("echo $kept $PWD")) == ["s2 /"]

        before = descendants(guardian)
        daemon.request("session/close", {"sessionId": "s1"})
        left = alive(before)
        assert len(left) == len(before) // 2, "s2 has lost something, or s1 has left something"
        assert told(daemon, "s2", bash("echo $kept")) == ["s2"]

        daemon.prompt("s2", json.dumps([bash(f"touch {work}/begun; sleep 31415")]))
        while not (work / "begun").exists():
            time.sleep(0.02)
        seen = len(daemon.frames)
        daemon.request("session/cancel", {"sessionId": "s2"})
        daemon.wait_idle("s2", seen)
        assert told(daemon, "s2", bash("echo $kept; pgrep -P $$ -f 31415")) == ["s2\n[exit code: 1]"]

        daemon.request("session/close", {"sessionId": "s2"})
        assert gone(descendants(guardian))
        daemon.request("session/resume", {"sessionId": "s1"})
        lines = told(daemon, "s1", bash('echo "[$kept] $PWD"'), bash("echo again"))
        assert "shell was reset" in lines[0] and lines[0].endswith(f"[] {other}")
        assert lines[1] == "again"
        below = descendants(daemon.process.pid)
        assert daemon.end() == 0
        assert gone(below)
        assert b"Traceback" not in daemon.stderr


def test_what_the_agent_loop_reads_cannot_be_isolated(composition: Path, tmp_path: Path) -> None:
    rows = COMPOSITION.replace("isolate: {fs: true}", "isolate: {toolRegistry: true}").splitlines()
    composition.write_text("\n".join(row for row in rows if "dsh-fs-local" not in row))
    argv = [sys.executable, "-m", "cordisd", "serve", "--stdio", str(composition)]
    daemon = Daemon(tmp_path, argv=argv)
    assert daemon.process.wait(PATIENCE_S) != 0
    daemon.end()
    message = daemon.stderr.decode()
    assert f'{composition}:15, entry "editor"' in message
    assert "toolRegistry cannot be isolated" in message
    assert "realm, terminals, terminal, subprocess, fs" in message

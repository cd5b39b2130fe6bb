"""The published log reader opens our logs."""

from __future__ import annotations

from pathlib import Path

import agent_trajviz

from cordisd.mock import MockModelThread, call, text
from daemon import Daemon


def test_the_reader_shows_our_turns_tools_and_tokens(tmp_path: Path) -> None:
    script = [call("c1", "bash", {"command": "echo shown"}), text("final ", "words")]
    with MockModelThread(script) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        daemon.initialize()
        daemon.run("s", "a question")
        [path] = daemon.sessions.glob("*/s/session.jsonl")
    shown = agent_trajviz.load(path)
    assert shown.format == "dsh"
    assert not shown.warnings
    assert [step["role"] for step in shown.steps] == ["user", "assistant", "assistant"]
    [tool] = shown.steps[1]["tool_calls"]
    assert tool["tool_name"].lower() == "bash"
    assert tool["input"] == {"command": "echo shown"}
    assert "shown" in str(tool["output"])
    assert shown.steps[2]["text_preview"] == "final words"
    assert shown.steps[1]["tokens"]["input"] == 20


def test_the_reader_shows_a_turn_that_a_limit_has_ended(tmp_path: Path) -> None:
    script = [call("c1", "bash", {"command": "echo shown"}), call("c2", "bash", {"command": "echo last"})]
    with MockModelThread(script) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        daemon.initialize()
        limits = {"maxTurns": 2, "noticeTurns": 1, "maxSessionTurns": 1}
        daemon.request("session/create", {"sessionId": "s", "limits": limits})
        for words in ("a question", "another"):
            daemon.run("s", words)
        [path] = daemon.sessions.glob("*/s/session.jsonl")
    shown = agent_trajviz.load(path)
    assert not shown.warnings
    roles = [step["role"] for step in shown.steps]
    assert roles == ["user", "assistant", "assistant", "user"], "it shows no messages of the runtime"
    assert "last" in str(shown.steps[2]["tool_calls"][0]["output"])


def test_the_reader_opens_a_fork_and_what_was_judged(tmp_path: Path) -> None:
    script = [call("c1", "bash", {"command": "echo shown"}), text("before"), text("after")]
    with MockModelThread(script) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        daemon.initialize()
        daemon.request("session/create", {"sessionId": "s"})
        daemon.request("session/outcome", {"sessionId": "s", "class": "setup_failure"})
        daemon.run("s", "a question")
        daemon.request("session/fork", {"sessionId": "s", "newSessionId": "child"})
        daemon.run("child", "another")
        daemon.request("session/close", {"sessionId": "child"})
        daemon.request("session/outcome", {"sessionId": "child", "class": "success", "reward": 1})
        paths = [path for name in ("s", "child") for path in daemon.sessions.glob(f"*/{name}/session.jsonl")]
    parent, child = map(agent_trajviz.load, paths)
    assert not parent.warnings and not child.warnings
    assert [step["text_preview"] for step in parent.steps][::2] == ["a question", "before"]
    assert [step["text_preview"] for step in child.steps] == ["another", "after"], "it leaves the seed out"

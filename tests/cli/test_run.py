"""`cordisd run` as a person or a script starts it."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

import pexpect
import pytest

import processes
from cordisd import mock as model
from cordisd.cli import rollout
from cordisd.cli import run as command
from daemon import clean_environment
from measure import PATIENCE_S, SOON_S

COMMAND = [sys.executable, "-m", "cordisd", "run"]
SLEEP = model.call("c1", "bash", {"command": "echo begun; sleep 60"})


class Shell:
    """A workspace with a log folder; whatever is started from here carries a mark in its environment."""

    def __init__(self, root: Path) -> None:
        self.workspace = root / "work"
        self.workspace.mkdir()
        self.sessions = root / "logs"
        self.mark = f"TEST_{os.urandom(8).hex()}"
        self.env = clean_environment(**{self.mark: "1"})
        self.arguments = ["--cwd", str(self.workspace), "--session-root", str(self.sessions)]

    def run(self, *words: str, text: str | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*COMMAND, *self.arguments, *words],
            env=self.env | env,
            input=text,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert processes.gone_within(self.mark)
        return done

    def log(self) -> list[dict[str, Any]]:
        [path] = self.sessions.glob("*/*/session.jsonl")
        return [json.loads(line) for line in path.read_bytes().splitlines()]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_the_answer_alone_goes_to_stdout_and_the_story_to_stderr(shell: Shell) -> None:
    script = [model.call("c1", "bash", {"command": "echo out; exit 3"}), model.text("All ", "done.")]
    with model.MockModelThread(script) as mock:
        done = shell.run("do it", "--base-url", mock.url)
    assert (done.returncode, done.stdout) == (0, "All done.\n")
    assert "$ echo out; exit 3\n  out\n" in done.stderr
    assert "All done." not in done.stderr and "\x1b" not in done.stderr
    assert f"log: {shell.sessions}" in done.stderr
    assert mock.requests[0].json["model"] == "deepseek-v4-flash"


def test_json_prints_one_document_with_the_outcome(shell: Shell) -> None:
    with model.MockModelThread([model.text("caf\u00e9")]) as mock:
        done = shell.run("-", "--json", "--base-url", mock.url, "--session", "s1", text="from stdin")
    document = json.loads(done.stdout)
    log = Path(document.pop("logPath"))
    assert log.is_file() and log.parent.name == "s1"
    assert document == {
        "sessionId": "s1",
        "finalResponse": "caf\u00e9",
        "finishReason": "completed",
        "stopReason": "completed",
        "error": None,
        "usage": {"inputTokens": 20, "outputTokens": 4},
        "turns": 1,
        "steps": 1,
    }
    assert mock.requests[0].json["messages"][-1]["content"] == "from stdin"


def test_a_session_is_begun_and_then_continued(shell: Shell) -> None:
    with model.MockModelThread([model.text("one"), model.text("two")]) as mock:
        assert shell.run("first", "--session", "s1", "--base-url", mock.url).stdout == "one\n"
        assert shell.run("second", "--session", "s1", "--base-url", mock.url).stdout == "two\n"
    said = [m["content"] for m in mock.requests[1].json["messages"] if m["role"] != "system"]
    assert said == ["first", "one", "second"]


def test_a_failed_run_exits_1_and_tells_the_providers_text(shell: Shell) -> None:
    with model.MockModelThread([model.error(401, "that key is not ours")]) as mock:
        done = shell.run("do it", "--base-url", mock.url)
    assert (done.returncode, done.stdout) == (1, "")
    assert "that key is not ours (AUTH, HTTP 401)" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_faulty_composition_exits_2_and_is_told_once(shell: Shell, tmp_path: Path) -> None:
    broken = tmp_path / "broken.cordis.yml"
    broken.write_text("- {id: x, name: bassh}\n")
    done = shell.run("do it", "--composition", str(broken))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("broken.cordis.yml:1") == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["x", "--api-key-env", "KEY"], "--api-key-env needs --base-url"),
        (["x", "--base-url", "http://h", "--api-key-env", "NOT_SET"], "NOT_SET is not set"),
        (["x", "--cwd", "/no/such/place"], "no such directory: /no/such/place"),
        (["x", "--max-tokens", "0"], "--max-tokens must be 1 or more"),
        ([" "], "the task is empty"),
        (["x", "--provider", "nobody"], "no adapter registered"),
    ],
)
def test_a_wrong_command_line_exits_2_with_one_reason(shell: Shell, words: list[str], message: str) -> None:
    done = shell.run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_key_and_address_travel_as_a_pair(shell: Shell) -> None:
    foreign = {"DEEPSEEK_API_KEY": "deepseek-secret", "OPENAI_API_KEY": "openai-secret"}
    with model.MockModelThread([model.text("a"), model.text("b")]) as mock:
        shell.run("x", "--base-url", mock.url, **foreign)
        shell.run("x", "--base-url", mock.url, "--api-key-env", "MINE", MINE="my-secret", **foreign)
    sent = [request.header("authorization") for request in mock.requests]
    assert sent == ["Bearer none", "Bearer my-secret"]


@pytest.mark.parametrize(
    ("base_url", "named", "env", "key"),
    [
        ("https://api.openai.com/v1/", None, {"OPENAI_API_KEY": "o"}, "o"),
        ("https://api.deepseek.com", None, {"DEEPSEEK_API_KEY": "d", "OPENAI_API_KEY": "o"}, "d"),
        ("https://api.openai.com/v1", "", {"OPENAI_API_KEY": "o"}, ""),
        ("https://api.openai.com/v1", None, {"OPENAI_API_KEY": "o", "OPENAI_BASE_URL": "http://h"}, ""),
        ("http://elsewhere", None, {"DEEPSEEK_API_KEY": "d", "OPENAI_API_KEY": "o"}, ""),
    ],
)
def test_a_key_goes_only_to_the_address_it_belongs_to(
    base_url: str, named: str | None, env: dict[str, str], key: str
) -> None:
    assert rollout.key_for(base_url, named, env) == key


def parse(*words: str) -> Namespace:
    parser = ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args(words)


def test_model_and_session_root_come_from_flag_then_variable_then_default(tmp_path: Path) -> None:
    env = {"DSH_MODEL": "from-env", "DSH_SESSION_ROOT": "/env/logs", "XDG_STATE_HOME": "/state"}
    root = tmp_path
    assert command.daemon_options(parse("x", "--model", "flag"), root, env)["model"] == "flag"
    assert command.daemon_options(parse("x"), root, env)["model"] == "from-env"
    assert command.daemon_options(parse("x"), root, {})["model"] == "deepseek-v4-flash"
    assert command.session_root("/flag", env) == Path("/flag")
    assert command.session_root(None, env) == Path("/env/logs")
    assert command.session_root(None, {"XDG_STATE_HOME": "/state"}) == Path("/state/cordisd/sessions")
    assert command.session_root(None, {}) == Path.home() / ".local/state/cordisd/sessions"


def test_ctrl_c_cancels_the_turn_exits_130_and_leaves_a_valid_log(shell: Shell) -> None:
    with model.MockModelThread([SLEEP]) as mock:
        child = start(shell, "--base-url", mock.url)
        wait_for(child, "$ echo begun; sleep 60")
        child.send_signal(signal.SIGINT)
        _, stderr = child.communicate(timeout=SOON_S)
    assert child.returncode == 130, stderr
    assert "Traceback" not in stderr
    assert shell.log()[-1]["type"] == "turn/end"
    assert shell.log()[-1]["data"]["reason"]["kind"] == "aborted"
    assert processes.gone_within(shell.mark)


def test_a_second_ctrl_c_kills_the_daemon_at_once(shell: Shell) -> None:
    with model.MockModelThread([SLEEP]) as mock:
        child = start(shell, "--base-url", mock.url)
        wait_for(child, "$ echo begun; sleep 60")
        [daemon] = processes.children(child.pid)
        os.kill(daemon, signal.SIGSTOP)  # so that the first one cannot succeed
        child.send_signal(signal.SIGINT)
        time.sleep(1)
        assert child.poll() is None
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=SOON_S)
    assert child.returncode == 130
    assert processes.gone_within(shell.mark)


def test_ctrl_c_before_the_daemon_is_ready_exits_130(shell: Shell, tmp_path: Path) -> None:
    child = start(shell)
    end = time.monotonic() + PATIENCE_S
    while not processes.children(child.pid):  # any earlier, the interpreter itself may be starting
        assert time.monotonic() < end
    child.send_signal(signal.SIGINT)
    stdout, _ = child.communicate(timeout=SOON_S)
    assert child.returncode in (130, -signal.SIGINT)
    assert stdout == ""
    assert processes.gone_within(shell.mark)


def test_a_terminal_gets_a_living_status_line_and_colours(shell: Shell) -> None:
    command = "until [ -e go ]; do sleep 0.05; done; printf '\\033[31mred'"
    script = [model.call("c1", "bash", {"command": command}), model.text("Done.")]
    env = shell.env | {"TERM": "xterm"}
    with model.MockModelThread(script) as mock:
        words = [*COMMAND[1:], *shell.arguments, "do it", "--base-url", mock.url]
        child = pexpect.spawn(
            COMMAND[0], words, env=env, encoding="utf-8", timeout=PATIENCE_S, dimensions=(24, 60)
        )
        child.logfile_read = screen = io.StringIO()
        child.expect_exact("\r\x1b[2K")
        child.expect(r"1 step · 20 tokens in, 4 out · \d+ s · bash")
        (shell.workspace / "go").touch()
        child.expect_exact("Done.")
        child.expect(pexpect.EOF)
        child.close()
    assert child.exitstatus == 0
    assert "\x1b[36m$ until" in screen.getvalue()
    assert "\x1b[31mred" not in screen.getvalue()  # the tool's own escape sequences do not reach the terminal


def start(shell: Shell, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *shell.arguments, "do it", *words],
        env=shell.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(child: subprocess.Popen[str], text: str) -> None:
    assert child.stderr is not None
    for line in child.stderr:
        if text in line:
            return
    raise AssertionError(f"{text!r} did not appear")

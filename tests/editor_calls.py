"""Editor calls through a real daemon: a scripted model makes them, and what it is told comes back.

A plug-in of pytest: `pytest_plugins = ["editor_calls"]` in a test module gives it the fixtures below.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from daemon import Daemon
from mock_chat import MockChatThread, Recorded, Reply, calls, text

Call = dict[str, Any]

CONTROL_VIEW = (
    "Here's the content of {} with line numbers (which has a total of 2 lines):\n"
    "     1  control\n     2  \t$&\n"
)
_session_numbers = count(1)


def follow_the_prompt(request: Recorded) -> Reply:
    """The model: its prompt is a JSON list of steps, each a list of argument texts of calls."""
    messages = request.json["messages"]
    prompt_at = max(at for at, message in enumerate(messages) if message["role"] == "user")
    steps = json.loads(_text_of(messages[prompt_at]))
    step = sum(message["role"] == "assistant" for message in messages[prompt_at:])
    if step == len(steps):
        return text("end")
    return calls(*((f"s{step}c{n}", "str_replace_editor", raw) for n, raw in enumerate(steps[step])))


def _text_of(message: Call) -> str:
    content = message["content"]
    if isinstance(content, str):
        return content
    return "".join(block["text"] for block in content)


class EditorDaemon:
    """A daemon with the mock model that its sessions talk to."""

    def __init__(self, daemon: Daemon, mock: MockChatThread, control: Path) -> None:
        self.daemon = daemon
        self._mock = mock
        self._control = control

    def session(self, cwd: Path) -> EditorSession:
        """A new session in `cwd`."""
        name = f"edits-{next(_session_numbers)}"
        self.daemon.request("session/create", {"sessionId": name, "cwd": str(cwd)})
        return EditorSession(self, name)

    def told(self, session: str, steps: list[list[str]]) -> list[str]:
        """What the model was told in answer to the calls of `steps`, in order, exactly as it was sent."""
        self.daemon.run(session, json.dumps([*steps, [self._control_call()]]))
        messages = self._mock.requests[-1].json["messages"]
        prompt_at = max(at for at, message in enumerate(messages) if message["role"] == "user")
        answers = [_text_of(message) for message in messages[prompt_at:] if message["role"] == "tool"]
        assert len(answers) == sum(map(len, steps)) + 1
        control = answers.pop()
        assert control == CONTROL_VIEW.format(self._control), "the next call is not clean"
        return answers

    def _control_call(self) -> str:
        return json.dumps({"command": "view", "path": str(self._control)})


class EditorSession:
    """One session: `editor("view", path)` is what the model is told; then the next call is checked too."""

    def __init__(self, host: EditorDaemon, name: str) -> None:
        self._host = host
        self._name = name

    def __call__(self, command: str, path: Path | str, **arguments: object) -> str:
        return self.raw(json.dumps({"command": command, "path": str(path), **arguments}))

    def raw(self, arguments: str) -> str:
        """What the model is told in answer to a call with `arguments` as it wrote them."""
        return self._host.told(self._name, [[arguments]])[0]

    def in_one_step(self, *made: Call) -> list[str]:
        """What the model is told in answer to calls that it makes together."""
        return self._host.told(self._name, [[json.dumps(arguments) for arguments in made]])

    def refused(self, command: str, path: Path | str, **arguments: object) -> str:
        """The error that the model is told, which is always short and has no internals in it."""
        answer = self(command, path, **arguments)
        assert answer.startswith("Error: ")
        assert len(answer.encode()) <= 2048
        for internal in ("Errno", ".cordisd-", "Traceback", "fsync", "O_TMPFILE"):
            assert internal not in answer
        return answer.removeprefix("Error: ")


@contextmanager
def editor_host(
    folder: Path, composition: Path | str = "minimal", prefix: list[str] | None = None
) -> Iterator[EditorDaemon]:
    """A daemon whose files are in `folder`; `prefix` is put before its command."""
    cwd = folder / "cwd"
    cwd.mkdir()
    control = folder / "control"
    control.write_text("control\n\t$&\n")
    argv = [*(prefix or []), sys.executable, "-m", "cordisd", "serve", "--stdio", str(composition)]
    with MockChatThread(follow_the_prompt) as mock, Daemon(cwd, model_url=mock.url, argv=argv) as daemon:
        daemon.initialize()
        yield EditorDaemon(daemon, mock, control)


def without_capabilities() -> list[str]:
    """A command prefix after which even root has only the rights that modes give."""
    if shutil.which("setpriv") is None:
        pytest.skip("no setpriv to drop capabilities with")
    return ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []


@pytest.fixture(scope="module")
def editor_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EditorDaemon]:
    """One daemon for the module."""
    with editor_host(tmp_path_factory.mktemp("editor")) as host:
        yield host


@pytest.fixture
def editor(editor_daemon: EditorDaemon, tmp_path: Path) -> EditorSession:
    """A new session in `tmp_path`."""
    return editor_daemon.session(tmp_path)


@pytest.fixture(scope="module")
def plain_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EditorDaemon]:
    """One daemon without capabilities for the module."""
    with editor_host(tmp_path_factory.mktemp("plain"), prefix=without_capabilities()) as host:
        yield host


@pytest.fixture
def plain_editor(plain_daemon: EditorDaemon, tmp_path: Path) -> EditorSession:
    """A new session in `tmp_path`, whose daemon has no capabilities."""
    return plain_daemon.session(tmp_path)


@pytest.fixture
def configured_editor(tmp_path: Path) -> Iterator[Callable[..., EditorSession]]:
    """Starts a session of a daemon of its own, whose editor has the given configuration."""
    shipped = Path(__file__).parents[1] / "minimal.cordis.yml"

    def start(**config: object) -> EditorSession:
        entry = "  name: str-replace-editor\n"
        composition = tmp_path / "composition.cordis.yml"
        before, after = shipped.read_text().split(entry)
        composition.write_text(f"{before}{entry}  config: {json.dumps(config)}\n{after}")
        folder = tmp_path / "host"
        folder.mkdir()
        return stack.enter_context(editor_host(folder, composition)).session(tmp_path)

    with ExitStack() as stack:
        yield start

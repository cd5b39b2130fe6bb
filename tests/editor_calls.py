"""Editor calls through a real daemon: a scripted model makes them, and what it is told comes back."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from cordisd.mock import MockModelThread, Received, Reply, calls, text
from daemon import Daemon
from measure import PATIENCE_S

Call = dict[str, Any]

_session_numbers = count(1)


def follow_the_prompt(request: Received) -> Reply:
    """The model: its prompt is a JSON list of steps, each a list of argument texts of calls."""
    messages = _last_turn(request)
    steps = json.loads(_text_of(messages[0]))
    step = sum(message["role"] == "assistant" for message in messages)
    if step == len(steps):
        return text("end")
    return calls(*((f"s{step}c{n}", "str_replace_editor", raw) for n, raw in enumerate(steps[step])))


def _last_turn(request: Received) -> list[Call]:
    """The messages from the last prompt on."""
    messages: list[Call] = request.json["messages"]
    return messages[max(at for at, message in enumerate(messages) if message["role"] == "user") :]


def _text_of(message: Call) -> str:
    content = message["content"]
    if isinstance(content, str):
        return content
    return "".join(block["text"] for block in content)


class EditorDaemon:
    """A daemon with the mock model that its sessions talk to."""

    def __init__(self, daemon: Daemon, mock: MockModelThread, control: Path, number_gap: str) -> None:
        self.daemon = daemon
        self._mock = mock
        self._control = control
        self._control_view = (
            f"Here's the content of {control} with line numbers (which has a total of 2 lines):\n"
            f"     1{number_gap}control\n     2{number_gap}\t$&\n"
        )

    def cancel_while(self, session: str, situation: Callable[[], bool], call: Call) -> None:
        """Have the model make a call, and cancel it when `situation` has come."""
        start = len(self.daemon.frames)
        self.daemon.prompt(session, json.dumps([[json.dumps(call)]]))
        end = time.monotonic() + PATIENCE_S
        while not situation():  # as often as can be: it may be a short one
            assert time.monotonic() < end, "the situation never came"
        self.daemon.request("session/cancel", {"sessionId": session})
        self.daemon.wait_idle(session, start)

    def session(self, cwd: Path) -> EditorSession:
        """A new session in `cwd`."""
        name = f"edits-{next(_session_numbers)}"
        self.daemon.request("session/create", {"sessionId": name, "cwd": str(cwd)})
        return EditorSession(self, name)

    def told(
        self, session: str, steps: list[list[str]], meanwhile: Callable[[], object] = lambda: None
    ) -> list[str]:
        """What the model was told in answer to the calls of `steps`, in order, exactly as it was sent.

        `meanwhile` is called when the prompt is on its way.
        """
        start = len(self.daemon.frames)
        prompt = json.dumps([*steps, [self._control_call()]])
        self.daemon.prompt(session, prompt)
        meanwhile()
        self.daemon.wait_idle(session, start)
        turns = (_last_turn(request) for request in reversed(self._mock.requests))
        turn = next(messages for messages in turns if _text_of(messages[0]) == prompt)
        answers = [_text_of(message) for message in turn if message["role"] == "tool"]
        assert len(answers) == sum(map(len, steps)) + 1
        assert answers.pop() == self._control_view, "the next call is not clean"
        return answers

    def tool(self) -> Call:
        """The tool as the model was last shown it."""
        tools = [tool["function"] for tool in self._mock.requests[-1].json["tools"]]
        return next(tool for tool in tools if tool["name"] == "str_replace_editor")

    def _control_call(self) -> str:
        return json.dumps({"command": "view", "path": str(self._control)})


class EditorSession:
    """One session: `editor("view", path)` is what the model is told; then the next call is checked too."""

    def __init__(self, host: EditorDaemon, name: str) -> None:
        self._host = host
        self.name = name

    def __call__(self, command: str, path: Path | str, **arguments: object) -> str:
        return self.raw(json.dumps({"command": command, "path": str(path), **arguments}))

    def tool(self) -> Call:
        """The tool as the model was last shown it."""
        return self._host.tool()

    def raw(self, arguments: str) -> str:
        """What the model is told in answer to a call with `arguments` as it wrote them."""
        return self._host.told(self.name, [[arguments]])[0]

    def in_one_step(self, *made: Call, meanwhile: Callable[[], object] = lambda: None) -> list[str]:
        """What the model is told in answer to calls that it makes together."""
        return self._host.told(self.name, [[json.dumps(arguments) for arguments in made]], meanwhile)

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
    folder: Path,
    composition: Path | str = "minimal",
    prefix: list[str] | None = None,
    number_gap: str = "  ",
) -> Iterator[EditorDaemon]:
    """A daemon whose files are in `folder`; `prefix` is put before its command.

    `number_gap`: what the composition's editor writes after the numbers of lines.
    """
    cwd = folder / "cwd"
    cwd.mkdir()
    control = folder / "control"
    control.write_text("control\n\t$&\n")
    argv = [*(prefix or []), sys.executable, "-m", "cordisd", "serve", "--stdio", str(composition)]
    with MockModelThread(follow_the_prompt) as mock, Daemon(cwd, model_url=mock.url, argv=argv) as daemon:
        daemon.initialize()
        yield EditorDaemon(daemon, mock, control, number_gap)


def without_capabilities() -> list[str]:
    """A command prefix after which even root has only the rights that modes give."""
    if shutil.which("setpriv") is None:
        pytest.skip("no setpriv to drop capabilities with")
    return ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []


def stages_a_file(pid: int, folder: Path) -> bool:
    """Whether the process has a file of `folder` open that has no name yet, or a private one."""
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            name = os.readlink(entry)
        except OSError:
            continue  # it was closed while we looked
        if name.startswith(f"{folder}/") and (name.endswith("(deleted)") or "/.cordisd-" in name):
            return True
    return False

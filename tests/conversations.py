"""A scripted model for several sessions at once, and a daemon of the host composition beside it."""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from cordisd.mock import MockModelThread, Received, Reply, text
from daemon import Daemon

TESTS = Path(__file__).parent
PERSONA = "You are a helpful software engineer assistant."
Planned = Reply | Callable[[], Reply]


class Conversations:
    """A model that knows a session by its first prompt, and gives the replies planned for that; then "ok".

    A planned function is called when its request has come, so it can do something in the middle of a turn.
    """

    def __init__(self) -> None:
        self.received: dict[str, list[dict[str, Any]]] = defaultdict(list)
        """The bodies of all requests by first prompt, in order."""
        self.bodies: dict[str, list[bytes]] = defaultdict(list)
        self._planned: dict[str, list[Planned]] = defaultdict(list)

    def plan(self, prompt: str, *replies: Planned) -> None:
        """Have these replies given, one after the other, to the conversation that begins with `prompt`."""
        self._planned[prompt] += replies

    def __call__(self, request: Received) -> Reply:
        body = request.json
        prompt = next(one["content"] for one in body["messages"] if one["role"] == "user")
        self.received[prompt].append(body)
        self.bodies[prompt].append(request.body)
        planned = self._planned[prompt]
        reply = planned.pop(0) if planned else text("ok")
        return reply() if callable(reply) else reply

    def systems(self, prompt: str) -> list[str | None]:
        """The system prompt of each request of a conversation; None: it had none."""
        return [system_of(body) for body in self.received[prompt]]

    def tools(self, prompt: str) -> list[list[str]]:
        """The names of the tools of each request of a conversation."""
        return [tools_of(body) for body in self.received[prompt]]


class World(NamedTuple):
    """A daemon and its model for many cases, each with a session of its own that is named like its prompt."""

    daemon: Daemon
    model: Conversations

    def run(self, name: str, *replies: Planned, provider: str = "deepseek-official") -> list[dict[str, Any]]:
        """The events of a new session whose model gives these replies, then "ok"."""
        self.model.plan(name, *replies)
        self.daemon.request("session/create", {"sessionId": name, "provider": provider})
        return self.daemon.run(name, name)


def system_of(body: dict[str, Any]) -> str | None:
    first = body["messages"][0]
    content: str | None = first["content"] if first["role"] == "system" else None
    return content


def tools_of(body: dict[str, Any]) -> list[str]:
    return [tool["function"]["name"] for tool in body.get("tools", [])]


@contextmanager
def hosted(
    folder: Path, patch: str = "[]\n", *, composition: str = "host", **environment: str
) -> Iterator[tuple[Daemon, Conversations]]:
    """An initialized daemon with `patch` applied, working in `folder`/w, and the model that it asks.

    Presets of the user lie in `folder`/home/.agent-presets.
    """
    (folder / "patch.yml").write_text(patch)
    (folder / "w").mkdir(exist_ok=True)
    model = Conversations()
    command = [sys.executable, "-m", "cordisd", "serve", "--stdio", composition]
    with (
        MockModelThread(model) as mock,
        Daemon(
            folder / "w",
            model_url=mock.url,
            argv=[*command, "--patch", str(folder / "patch.yml")],
            PYTHONPATH=python_path(),
            **{"DSH_HOME": str(folder / "home"), **environment},
        ) as daemon,
    ):
        daemon.initialize()
        yield daemon, model


def python_path() -> str:
    """This process's path, and the entries of the tests."""
    return os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])


def write_preset(root: Path, name: str, rows: object, label: str | None = None) -> Path:
    """A preset in `root`: `rows` as YAML, or as data; returns its folder."""
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    text = rows if isinstance(rows, str) else json.dumps(rows)
    (folder / "agent.cordis.yml").write_text(text)
    if label is not None:
        (folder / "preset.yml").write_text(label)
    return folder


def persona(text: str, *, complete: bool = True) -> dict[str, Any]:
    """The row of a persona that wants no runtime context."""
    config = {"text": text, "complete": complete, "includeRuntimeContext": False}
    return {"id": "persona", "name": "persona", "config": config}

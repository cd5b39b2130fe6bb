"""Drives the tool `terminal` through the real daemon, with a scripted model and real programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from cordisd.mock import MockModel, MockModelThread, Received, Reply, call, text
from daemon import Daemon

ROOT = Path(__file__).parents[2]


class Result(NamedTuple):
    """What one call gave: to the model, and to the log."""

    text: str
    is_error: bool
    meta: dict[str, Any]

    @property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    @property
    def state(self) -> str:
        """The last line."""
        return self.lines[-1]


def act(action: str, **arguments: object) -> dict[str, object]:
    """The arguments of one call."""
    return {"action": action, **arguments}


def composition(folder: Path, config: str = "{}") -> Path:
    """The shipped composition with a terminal."""
    path = folder.parent / f"{folder.name}.cordis.yml"
    minimal = (ROOT / "minimal.cordis.yml").read_text()
    path.write_text(f"{minimal}\n- id: terminal\n  name: terminal\n  config: {config}\n")
    return path


@contextmanager
def daemon_with(
    script: list[Reply] | Callable[[Received], Reply], folder: Path, config: str = "{}", **environment: str
) -> Iterator[tuple[Daemon, MockModel]]:
    with MockModelThread(script) as mock:
        path = composition(folder, config)
        with Daemon(folder, model_url=mock.url, composition=path, **environment) as daemon:
            daemon.initialize()
            yield daemon, mock


def results(events: list[dict[str, Any]]) -> list[Result]:
    """Of the tool calls among these events, in order."""
    found = []
    for event in events:
        if event["type"] == "tool/result":
            [block] = event["data"]["message"]["content"]
            [content] = block["content"]
            found.append(Result(content["text"], block["isError"], event["data"].get("meta") or {}))
    return found


def drive(
    folder: Path,
    *calls: dict[str, object],
    config: str = "{}",
    limit_s: float = 50,
    before: Mapping[int, Callable[[], None]] | None = None,
    **environment: str,
) -> list[Result]:
    """The result of each call, made one after another by the model of one session.

    `before` is what the model waits for before it makes the call of that number.
    """
    script = [call(f"c{n}", "terminal", arguments) for n, arguments in enumerate(calls)]
    replies = enumerate([*script, text("end")])

    def reply(request: Received) -> Reply:
        number, made = next(replies)
        if before is not None and number in before:
            before[number]()
        return made

    with daemon_with(reply if before else [*script, text("end")], folder, config, **environment) as (
        daemon,
        _,
    ):
        made = results(daemon.run("s", "go", limit_s))
        assert daemon.end() == 0
        assert b"Traceback" not in daemon.stderr, daemon.stderr.decode()
    assert len(made) == len(calls)
    return made

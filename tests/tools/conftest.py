"""The bash catalogue goes the real way: daemon, JSON-RPC, scripted model, real bash, real files.

The model of these tests does what the user's prompt says: a JSON document with the steps of the turn, each
a command or a list of commands to call at once; a mapping stands for a call of the editor. So one daemon
serves every case of a configuration.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cordisd.mock import MockModelThread, Received, Reply, calls, text
from cordisd.shell.report import RESET_NOTICE
from daemon import Daemon
from measure import ATTEMPTS, QUICK_S
from processes import children, descendants, gone

Call = str | dict[str, Any]
Step = Call | list[Call]

_NO_OUTPUT = "(no output)"
"""What a model adapter sends for an empty result."""


@dataclass(frozen=True, slots=True)
class Told:
    """What came of the calls of one turn, in order."""

    texts: list[str]
    """As the model received them."""
    took_s: list[float]
    """Between the events `tool/call` and `tool/result`."""
    facts: list[dict[str, Any]]
    """`meta` of the result events."""
    failed: list[bool]
    """`isError` of the result events."""


class Bench:
    """A daemon whose `bash` has this configuration, and the model that it asks."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None, **config: object) -> None:
        work = folder / "work"
        self.home = folder / "home"
        for made in (work, self.home):
            made.mkdir(exist_ok=True)
        patch = folder / "patch.yml"
        patch.write_text(f"- id: bash\n  config: {json.dumps(config)}\n" if config else "[]\n")
        argv = [sys.executable, "-m", "cordisd", "serve", "--stdio", "minimal", "--patch", str(patch)]
        self._received: dict[str, list[str]] = {}
        self._n_sessions = 0
        self._busy: set[str] = set()
        self.opened: list[str] = []
        """Sessions not closed yet."""
        self._n_seen = 0
        """Frames of the daemon that have been looked at."""
        self._model = MockModelThread(self._reply)
        self._mock = self._model.__enter__()
        self.daemon = Daemon(
            work, model_url=self._mock.url, argv=argv, HOME=str(self.home), **(environment or {})
        )
        self.daemon.initialize()
        [self.guardian] = children(self.daemon.process.pid)

    def begin(self, *steps: Step, folder: Path, session: str = "") -> str:
        """Have a session, a new one unless named, work in `folder` go through `steps`; returns its id."""
        if not session:
            self._n_sessions += 1
            session = f"s{self._n_sessions}"
            self.daemon.request("session/create", {"sessionId": session, "cwd": str(folder)})
            self.opened.append(session)
        self._busy.add(session)
        self.daemon.prompt(session, json.dumps({"session": session, "steps": steps}))
        return session

    def told(self, session: str) -> Told:
        """What the model was told in the last turn of a session; the log must say the same."""
        events = self.daemon.log(session)
        start = max(n for n, event in enumerate(events) if event.get("type") == "turn/start")
        made = [event for event in events[start:] if event.get("type") == "tool/call"]
        results = [event for event in events[start:] if event.get("type") == "tool/result"]
        blocks = [event["data"]["message"]["content"][0] for event in results]
        assert [event["data"]["callId"] for event in made] == [block["toolCallId"] for block in blocks]
        logged = [block["content"][0]["text"] for block in blocks]
        received = self._received.get(session, [])
        assert received == [words or _NO_OUTPUT for words in logged[: len(received)]]
        assert len(received) == len(logged) or events[-1]["data"]["reason"]["kind"] != "completed"
        return Told(
            logged,
            [(end["time"] - call["time"]) / 1000 for call, end in zip(made, results, strict=True)],
            [event["data"].get("meta", {}) for event in results],
            [block["isError"] for block in blocks],
        )

    def finish(self, session: str, timeout_s: float = 60) -> Told:
        """Wait for the end of a session's turn, and close the session: no process of it may be left."""
        try:
            self.wait([session], timeout_s)
            return self.told(session)
        finally:
            self.close(session)

    def wait(self, sessions: Sequence[str], timeout_s: float = 60) -> None:
        """Wait until the turns begun last in these sessions are over."""
        waited = set(sessions)

        def over() -> bool:
            frames = self.daemon.frames
            while self._n_seen < len(frames):
                frame = frames[self._n_seen]
                self._n_seen += 1
                if frame.get("method") == "session.completed":
                    self._busy.discard(frame["params"]["sessionId"])
            return not self._busy & waited

        self.daemon.wait(over, timeout_s)

    def wait_for_call(self, session: str, seen: int = 0) -> None:
        """Wait until, after frame number `seen`, a tool call of the session has begun."""
        self.daemon.wait(
            lambda: any(event["type"] == "tool/call" for event in self.daemon.events(session, seen))
        )

    def close(self, *sessions: str) -> None:
        """Close the sessions, all that there are; nothing but the guardian may be left."""
        self.opened = [session for session in self.opened if session not in sessions]
        sent = [self.daemon.send("session/close", {"sessionId": session}) for session in sessions]
        self.daemon.wait(lambda: all(self.daemon.answer(number) for number in sent))
        left = descendants(self.guardian)
        assert gone(left), {pid: _words(pid) for pid in left}

    def is_quick(self, session: str, took_s: list[float], folder: Path) -> bool:
        """Whether one of the session's last calls was, or else one of a few more."""
        took_s = list(took_s)
        while min(took_s) >= QUICK_S and len(took_s) < 3 * ATTEMPTS:
            self.begin(*["echo ok"] * 3, folder=folder, session=session)
            self.wait([session])
            more = self.told(session)
            assert more.texts == ["ok"] * 3
            took_s += more.took_s
        return min(took_s) < QUICK_S

    def run(self, *steps: Step, folder: Path, timeout_s: float = 60) -> Told:
        """What the model was told, by a session of its own in `folder`, of the calls of `steps`."""
        return self.finish(self.begin(*steps, folder=folder), timeout_s)

    def end(self) -> None:
        """End the daemon, which must not have complained."""
        try:
            assert self.daemon.end() == 0
            assert b"Traceback" not in self.daemon.stderr, self.daemon.stderr[-4000:].decode()
        finally:
            self._model.__exit__(None, None, None)

    def stop(self) -> None:
        """Kill the daemon if it still runs."""
        self.daemon.process.kill()
        self.daemon.end()
        self._model.__exit__(None, None, None)

    def _reply(self, request: Received) -> Reply:
        messages = request.json["messages"]
        self._mock.requests.clear()  # they hold every command of every case
        start = max(n for n, message in enumerate(messages) if message["role"] == "user")
        plan = json.loads(messages[start]["content"])
        told = [message["content"] for message in messages[start:] if message["role"] == "tool"]
        self._received[plan["session"]] = told
        n_done = sum(message["role"] == "assistant" for message in messages[start:])
        if n_done == len(plan["steps"]):
            return text("end")
        step = plan["steps"][n_done]
        made = step if isinstance(step, list) else [step]
        return calls(*((f"c{len(told) + n}", *_tool_and_arguments(it)) for n, it in enumerate(made)))


@pytest.fixture(scope="module")
def bash_benches() -> Iterator[dict[str, Bench]]:
    """The daemons that run, by their configuration. No other module's tests find processes of them."""
    benches: dict[str, Bench] = {}
    yield benches
    for made in benches.values():
        made.end()


@pytest.fixture(scope="module")
def bash_bench(
    bash_benches: dict[str, Bench], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Bench]:
    """`bash_bench(**config)`: the one daemon of that configuration, started at its first use."""

    def bench(**config: object) -> Bench:
        key = json.dumps(config, sort_keys=True)
        if key not in bash_benches:
            bash_benches[key] = Bench(tmp_path_factory.mktemp("bench"), **config)
        return bash_benches[key]

    return bench


@pytest.fixture
def bash_own_bench(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    """`bash_own_bench(**config)`: a daemon for this test, which may kill it; the next one has its logs."""
    made: list[Bench] = []

    def bench(**config: object) -> Bench:
        made.append(Bench(tmp_path, **config))
        return made[-1]

    yield bench
    for one in made:
        one.stop()


@pytest.fixture(autouse=True)
def bash_nothing_open(bash_benches: dict[str, Bench]) -> Iterator[None]:
    """A failed test must not hand its sessions on to the next."""
    yield
    for bench in bash_benches.values():
        if bench.opened:
            bench.close(*bench.opened)


@pytest.fixture
def bash_calls(bash_bench: Callable[..., Bench], tmp_path: Path) -> Callable[..., Told]:
    """`bash_calls(step, …, **config)`: what the model is told by a new session in `tmp_path`."""

    def run(*steps: Step, **config: object) -> Told:
        return bash_bench(**config).run(*steps, folder=tmp_path)

    return run


@pytest.fixture
def bash_texts(bash_calls: Callable[..., Told]) -> Callable[..., list[str]]:
    """Like `bash_calls`, the texts only."""

    def run(*steps: Step, **config: object) -> list[str]:
        return bash_calls(*steps, **config).texts

    return run


@pytest.fixture
def bash_framed(bash_bench: Callable[..., Bench], tmp_path: Path) -> Callable[..., Told]:
    """`bash_framed(before, steps, after, **config)`: the calls of a new session in `tmp_path`.

    Between `steps` and `after` there are calls that must be clean and quick.
    """

    def run(before: str, steps: Sequence[Step], after: str, **config: object) -> Told:
        (tmp_path / "place").mkdir()
        bench = bash_bench(**config)
        session = bench.begin(before, *steps, *["echo ok"] * 3, after, folder=tmp_path)
        bench.wait([session])
        told = bench.told(session)
        assert told.texts[-4:-1] == ["ok", "ok", "ok"]
        assert bench.is_quick(session, told.took_s[-4:-1], tmp_path)
        bench.close(session)
        return told

    return run


@pytest.fixture
def bash_kept(bash_framed: Callable[..., Told]) -> Callable[..., Told]:
    """Like `bash_calls`, in a shell whose state must be there afterwards, the next calls clean and quick."""

    def run(*steps: Step, **config: object) -> Told:
        before = 'kept=yes; cd place; env true; check() { echo "$kept ${PWD##*/}"; }'
        told = bash_framed(before, steps, "check", **config)
        assert told.texts[-1] == "yes place"
        assert "shell was reset" not in "".join(told.texts)
        return _inner(told)

    return run


@pytest.fixture
def bash_lost(bash_framed: Callable[..., Told], tmp_path: Path) -> Callable[..., Told]:
    """Like `bash_calls`, with a last step that ends the shell: it says so once, the next calls are clean."""

    def run(*steps: Step, **config: object) -> Told:
        told = bash_framed("kept=yes; cd place; env true", steps, 'echo "[$kept]"; pwd', **config)
        assert told.texts[-1] == f"[]\n{tmp_path}"
        assert [n for n, words in enumerate(told.texts) if "shell was reset" in words] == [
            len(told.texts) - 5
        ]
        assert told.texts[-5].count(RESET_NOTICE) == 1 and told.texts[-5].endswith(RESET_NOTICE)
        assert [fact.get("shellReset") for fact in told.facts[-5:]] == [True, None, None, None, None]
        return _inner(told)

    return run


def _inner(told: Told) -> Told:
    """Without the frame of the case: the first call and the last four."""
    return Told(told.texts[1:-4], told.took_s[1:-4], told.facts[1:-4], told.failed[1:-4])


def _tool_and_arguments(call: Call) -> tuple[str, dict[str, Any]]:
    return ("bash", {"command": call}) if isinstance(call, str) else ("str_replace_editor", call)


def _words(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return "(gone)"

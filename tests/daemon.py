"""A real daemon in a subprocess, spoken to with raw frames."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from measure import PATIENCE_S, SOON_S

POLL_S = 0.05
CLEARED = ("DEEPSEEK_", "OPENAI_", "DSH_", "CORDISD_", "XDG_")


def clean_environment(**extra: str) -> dict[str, str]:
    """This process's environment without anything that steers a daemon, plus `extra`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(CLEARED)}
    return {**kept, **extra}


def module_path(folder: Path) -> str:
    """`PYTHONPATH` with `folder` before whatever it names already, which may be the code under test."""
    return os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])


def blocks(text: str) -> list[dict[str, str]]:
    """The content of a prompt that is a text."""
    return [{"type": "text", "text": text}]


def wait_for_file(path: Path) -> None:
    """Wait until a command has made the file."""
    end = time.monotonic() + PATIENCE_S
    while not path.exists():
        assert time.monotonic() < end, path
        time.sleep(0.01)


class Client:
    """Requests, answers and notifications. What carries them gives `send_raw` and runs `_read`."""

    def __init__(self, cwd: Path) -> None:
        self.cwd = cwd
        self.frames: list[dict[str, Any]] = []
        self.asked: dict[int, tuple[str, Any]] = {}
        """Method and params of each request by its id."""
        self.lines: list[bytes] | None = None
        """Every line of output as it came, if a test sets it to a list."""
        self._answers: dict[Any, dict[str, Any]] = {}
        self._next_id = 0
        self._lines: queue.Queue[bytes | None] = queue.Queue()

    def initialize(self, **params: object) -> dict[str, Any]:
        """The result of `initialize` with this daemon's cwd and the shipped provider."""
        defaults = {"cwd": str(self.cwd), "provider": "deepseek-official", "model": "deepseek-v4-flash"}
        return self.request("initialize", {**defaults, **params})

    def request(self, method: str, params: object = None, timeout_s: float = PATIENCE_S) -> dict[str, Any]:
        """The result of a request; an error answer raises `AssertionError`."""
        answer = self.ask(method, params, timeout_s)
        assert "result" in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def refused(self, method: str, params: object = None) -> tuple[int, str]:
        """Code and message of a request that must be refused."""
        answer = self.ask(method, params)
        assert "error" in answer, answer
        return answer["error"]["code"], answer["error"]["message"]

    def ask(self, method: str, params: object = None, timeout_s: float = PATIENCE_S) -> dict[str, Any]:
        """The whole answer to a request."""
        number = self.send(method, params)
        return self.wait(lambda: self._answers.get(number), timeout_s)

    def answer(self, number: int) -> dict[str, Any] | None:
        """The whole answer to request `number`, if it has been read."""
        return self._answers.get(number)

    def pause_reading(self) -> None:
        """From now on read only what is waited for: the pipe fills up."""
        self._lines.maxsize = 1

    def resume_reading(self) -> None:
        """Read all that comes, waited for or not."""
        with self._lines.mutex:
            self._lines.maxsize = sys.maxsize
            self._lines.not_full.notify_all()

    def send(self, method: str, params: object = None) -> int:
        """Send a request without waiting; returns its id."""
        self._next_id += 1
        self.asked[self._next_id] = method, params
        frame: dict[str, Any] = {"jsonrpc": "2.0", "id": self._next_id, "method": method}
        if params is not None:
            frame["params"] = params
        self.send_raw(json.dumps(frame).encode() + b"\n")
        return self._next_id

    def send_raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        raise NotImplementedError

    def prompt(self, session: str, text: str, **extra: object) -> str:
        """Send a prompt; returns its message id."""
        params = {"sessionId": session, "contentBlocks": blocks(text), **extra}
        answer = self.request("session/prompt", params)
        message_id: str = answer["messageId"]
        return message_id

    def run(self, session: str, text: str, timeout_s: float = PATIENCE_S) -> list[dict[str, Any]]:
        """Prompt and wait until the session is idle; returns the session's events since the prompt."""
        start = len(self.frames)
        self.prompt(session, text)
        self.wait_idle(session, start, timeout_s)
        return self.events(session, start)

    def wait_idle(self, session: str, start: int = 0, timeout_s: float = PATIENCE_S) -> None:
        def idle() -> bool:
            return any(
                frame.get("method") == "session.status"
                and frame["params"] == {"sessionId": session, "status": "idle"}
                for frame in self.frames[start:]
            )

        self.wait(idle, timeout_s)

    def events(self, session: str, start: int = 0) -> list[dict[str, Any]]:
        """The session's events that arrived since frame number `start`."""
        return [
            frame["params"]["event"]
            for frame in self.frames[start:]
            if frame.get("method") == "session.event" and frame["params"]["sessionId"] == session
        ]

    def wait(self, ready: Callable[[], Any], timeout_s: float = PATIENCE_S) -> Any:
        """Read frames until `ready` gives something; a dead or silent daemon raises with its stderr.

        `ready` may also look at what is no frame: a file, or what has come to a mock.
        """
        end = time.monotonic() + timeout_s
        while not (found := ready()):
            try:
                line = self._lines.get(timeout=POLL_S)
            except queue.Empty:
                if time.monotonic() < end:
                    continue
                raise AssertionError(
                    f"no answer in {timeout_s} s; last frames {self.frames[-5:]}; {self._state()}"
                ) from None
            if line is None:
                self._lines.put(None)
                if found := ready():
                    return found
                raise AssertionError(f"the connection ended; {self._state()}")
            self._take(line)
        return found

    def read_what_is_there(self) -> None:
        """Read what has come so far, without waiting; a frame that a killed daemon did not finish is none."""
        while not self._lines.empty():
            line = self._lines.get()
            if line is None:
                self._lines.put(None)
                return
            if line.endswith(b"\n"):
                self._take(line)

    def next_line(self, timeout_s: float = PATIENCE_S) -> bytes:
        """The next line of output as it came, not counted among the frames."""
        line = self._lines.get(timeout=timeout_s)
        assert line is not None, "the daemon ended"
        return line

    def _take(self, line: bytes) -> None:
        if self.lines is not None:
            self.lines.append(line)
        frame = json.loads(line)
        self.frames.append(frame)
        if "id" in frame and "method" not in frame:
            self._answers[frame["id"]] = frame

    def _read(self, stream: Iterable[bytes]) -> None:
        """Take the lines of `stream` as they come; the work of a thread."""
        try:
            for line in stream:
                self._lines.put(line)
        except OSError:
            pass  # the connection was reset
        self._lines.put(None)

    def _state(self) -> str:
        """What is known of the other side, for messages."""
        return ""


class Daemon(Client):
    """`cordisd serve --stdio` (or `argv`) in `cwd`, with its logs under `sessions`."""

    def __init__(
        self,
        cwd: Path,
        *,
        model_url: str = "http://127.0.0.1:9",
        composition: Path | str = "minimal",
        argv: list[str] | None = None,
        **environment: str,
    ) -> None:
        super().__init__(cwd)
        self.sessions = cwd.parent / f"{cwd.name}-sessions"
        self.stderr = b""
        settings = {
            "DEEPSEEK_BASE_URL": model_url,
            "DEEPSEEK_API_KEY": "test-key-0123456789",
            "DSH_SESSION_ROOT": str(self.sessions),
        }
        command = argv or [sys.executable, "-m", "cordisd", "serve", "--stdio", str(composition)]
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            env=clean_environment(**(settings | environment)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._threads = [
            threading.Thread(target=self._read, args=[self.process.stdout], daemon=True),
            threading.Thread(target=self._drain, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Daemon:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def send_raw(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def end(self, timeout_s: float = SOON_S) -> int:
        """Close stdin and wait; a daemon that does not end is killed and fails the test."""
        assert self.process.stdin and self.process.stdout and self.process.stderr
        if self.process.stdout.closed:
            return self.process.wait()
        if not self.process.stdin.closed:
            try:
                self.process.stdin.close()
            except BrokenPipeError:
                pass
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            raise AssertionError(f"the daemon did not end; stderr: {self.stderr[-2000:]!r}") from None
        finally:
            self.resume_reading()
            for thread in self._threads:
                thread.join(SOON_S)
            self.process.stdout.close()
            self.process.stderr.close()
        return code

    def log(self, session: str) -> list[dict[str, Any]]:
        """The lines of the session's log on disk."""
        [path] = self.sessions.glob(f"*/{session}/session.jsonl")
        return [json.loads(line) for line in path.read_bytes().splitlines()]

    def _drain(self) -> None:
        assert self.process.stderr is not None
        while data := self.process.stderr.read1(1 << 16):  # type: ignore[attr-defined]
            self.stderr += data

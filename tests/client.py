"""One end of a connection to a daemon, spoken with raw frames."""

from __future__ import annotations

import json
import queue
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


class Client:
    """Requests, answers and notifications. What carries them gives `send_raw` and runs `_read`."""

    def __init__(self, cwd: Path) -> None:
        self.cwd = cwd
        self.frames: list[dict[str, Any]] = []
        self._answers: dict[Any, dict[str, Any]] = {}
        self._next_id = 0
        self._lines: queue.Queue[bytes | None] = queue.Queue()

    def send_raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        raise NotImplementedError

    def initialize(self, **params: object) -> dict[str, Any]:
        """The result of `initialize` with this daemon's cwd and the shipped provider."""
        defaults = {"cwd": str(self.cwd), "provider": "deepseek-official", "model": "deepseek-v4-flash"}
        return self.request("initialize", {**defaults, **params})

    def request(self, method: str, params: object = None, timeout_s: float = 20) -> dict[str, Any]:
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

    def ask(self, method: str, params: object = None, timeout_s: float = 20) -> dict[str, Any]:
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
        frame: dict[str, Any] = {"jsonrpc": "2.0", "id": self._next_id, "method": method}
        if params is not None:
            frame["params"] = params
        self.send_raw(json.dumps(frame).encode() + b"\n")
        return self._next_id

    def prompt(self, session: str, text: str, **extra: object) -> str:
        """Send a prompt; returns its message id."""
        blocks = [{"type": "text", "text": text}]
        answer = self.request("session/prompt", {"sessionId": session, "contentBlocks": blocks, **extra})
        message_id: str = answer["messageId"]
        return message_id

    def run(self, session: str, text: str, timeout_s: float = 30) -> list[dict[str, Any]]:
        """Prompt and wait until the session is idle; returns the session's events since the prompt."""
        start = len(self.frames)
        self.prompt(session, text)
        self.wait_idle(session, start, timeout_s)
        return self.events(session, start)

    def wait_idle(self, session: str, start: int = 0, timeout_s: float = 30) -> None:
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

    def wait(self, ready: Callable[[], Any], timeout_s: float = 20) -> Any:
        """Read frames until `ready` gives something; a dead or silent daemon raises with its stderr."""
        end = time.monotonic() + timeout_s
        while not (found := ready()):
            try:
                line = self._lines.get(timeout=max(0.01, end - time.monotonic()))
            except queue.Empty:
                raise AssertionError(
                    f"no answer in {timeout_s} s; last frames {self.frames[-5:]}; {self._state()}"
                ) from None
            if line is None:
                self._lines.put(None)
                if found := ready():
                    return found
                raise AssertionError(f"the connection ended; {self._state()}")
            frame = json.loads(line)
            self.frames.append(frame)
            if "id" in frame and "method" not in frame:
                self._answers[frame["id"]] = frame
        return found

    def next_line(self, timeout_s: float = 10) -> bytes:
        """The next line of output as it came, not counted among the frames."""
        line = self._lines.get(timeout=timeout_s)
        assert line is not None, "the daemon ended"
        return line

    def _read(self, stream: Iterable[bytes]) -> None:
        """Take the lines of `stream` as they come; the work of a thread."""
        try:
            for line in stream:
                self._lines.put(line)
        except (OSError, ValueError):
            pass  # reset, or closed by us
        self._lines.put(None)

    def _state(self) -> str:
        """What is known of the other side, for messages."""
        return ""

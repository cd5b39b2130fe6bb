"""Random frames: the daemon answers every id that it can read exactly once, stays small, and ends when told.

The model answers in plain text, so that no random word reaches a shell. What fails is shrunk to the smallest
input that still does; it may need what was sent before.
"""

from __future__ import annotations

import json
import queue
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from contract import Contract
from cordisd.mock import MockModelThread, text
from daemon import Daemon, wait_for_file
from fuzz_frames import expected, pieces
from measure import PATIENCE_S, SOON_S
from processes import descendants, footprint, gone

pytestmark = [pytest.mark.load, pytest.mark.timeout(1800)]

FUZZ_S, FUZZ_LONG_S = 10.0, 60.0
N_INPUTS = 50
"""Until all sessions are closed and the memory is looked at."""
MAX_RISE_KB = 20_000
"""Of the daemon's own memory, from the end of the first round on."""
INITIALIZE = {"cwd": ".", "provider": "deepseek-official", "model": "m"}
OWN = '"our own"'
"""The id of the requests that are not random, as JSON."""


class Connection:
    """A connection to a daemon's Unix socket; written and read as a `Daemon` on stdio is."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        self._lines: queue.Queue[bytes] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def send_raw(self, data: bytes) -> None:
        self._socket.sendall(data)

    def next_line(self, timeout_s: float) -> bytes:
        return self._lines.get(timeout=timeout_s)

    def _read(self) -> None:
        with self._socket.makefile("rb") as stream:
            for line in stream:
                self._lines.put(line)


class Fuzzed:
    """A daemon under fire, and one connection to it."""

    def __init__(self, cwd: Path, model_url: str, transport: str) -> None:
        where = ["--stdio"] if transport == "stdio" else ["--socket", str(cwd.parent / "s")]
        argv = [sys.executable, "-m", "cordisd", "serve", *where, "host"]
        self.daemon = Daemon(cwd, model_url=model_url, argv=argv)
        self.connection: Daemon | Connection = self.daemon
        if transport == "socket":
            wait_for_file(cwd.parent / "s")
            self.connection = Connection(cwd.parent / "s")
        self.contract: Contract | None = None
        self.document = self.request("rpc.discover")
        self.contract = Contract(self.document)
        self.request("initialize", **INITIALIZE)
        self.n_answers = 0

    def request(self, method: str, **params: object) -> Any:
        """The result of a request of our own."""
        frame = {"jsonrpc": "2.0", "id": json.loads(OWN), "method": method, "params": params}
        self.connection.send_raw(json.dumps(frame).encode() + b"\n")
        missing = Counter({OWN: 1})
        while True:
            if answer := self._take(missing, {}, PATIENCE_S):
                return answer["result"]

    def check(self, sent: list[bytes], patience_s: float) -> None:
        """Send the pieces and read until everything that must be answered is, and nothing else."""
        due = expected(b"".join(sent))
        hypothesis.assume(not due.ends)
        for piece in sent:
            self.connection.send_raw(piece)
        missing = Counter(due.answers)
        while +missing:
            self._take(missing, due.methods, patience_s)
            self.n_answers += 1
        self.request("rpc.ping")  # before whose answer nothing more may come

    def close_sessions(self) -> None:
        for session in self.request("session/list")["sessions"]:
            self.request("session/close", sessionId=session["sessionId"])

    def memory_kb(self) -> int:
        return footprint(self.daemon.process.pid)["Pss_Anon kB"]

    def _take(self, missing: Counter[Any], methods: dict[str, str], patience_s: float) -> Any:
        """The next answer, which one of the `missing` must be; None for a notification."""
        try:
            line = self.connection.next_line(patience_s)
        except queue.Empty:
            raise AssertionError(f"no answer to {+missing}; stderr {self.daemon.stderr[-1000:]!r}") from None
        assert line.isascii() and line.endswith(b"\n"), line
        frame = json.loads(line)
        if isinstance(frame, dict) and "method" in frame:
            if self.contract is not None:
                assert self.contract.problems("params", frame["method"], frame["params"]) == []
            return None
        key = _key(frame)
        assert missing[key] > 0, f"answered twice, or without being asked: {frame}"
        missing[key] -= 1
        for answer in frame if isinstance(frame, list) else [frame]:
            self._check(methods.get(json.dumps(answer["id"])), answer)
        return frame

    def _check(self, method: str | None, answer: dict[str, Any]) -> None:
        """An answer is as documented, and no accident."""
        assert answer.keys() == {"jsonrpc", "id", "result" if "result" in answer else "error"}
        if "error" in answer:
            assert "failed inside the daemon" not in answer["error"]["message"], answer
        if self.contract is None or method not in self.contract.methods:
            return
        if "error" in answer:
            assert self.contract.error_problems(method, answer["error"]) == []
        else:
            assert self.contract.problems("result", method, answer["result"]) == []


def _key(frame: Any) -> str | tuple[str, ...]:
    """What `expected` calls an answer."""
    if isinstance(frame, list):
        return tuple(sorted(json.dumps(answer["id"]) for answer in frame))
    return json.dumps(frame["id"])


@pytest.mark.parametrize("transport", ["stdio", "socket"])
def test_random_frames_are_answered_exactly_once_and_leave_the_daemon_as_it_was(
    transport: str, tmp_path: Path, seed: int, long: bool, report: Callable[[str], None]
) -> None:
    work = tmp_path / "w"
    work.mkdir()
    memory_kb: list[int] = []
    n_inputs, patience_s = 0, PATIENCE_S
    with MockModelThread(lambda _: text("ok")) as mock:
        fuzzed = Fuzzed(work, mock.url, transport)

        def holds(sent: list[bytes]) -> None:
            nonlocal fuzzed, n_inputs, patience_s
            n_inputs += 1
            try:
                fuzzed.check(sent, patience_s)
            except AssertionError:
                fuzzed.daemon.process.kill()
                fuzzed.daemon.end()
                fuzzed, patience_s = Fuzzed(work, mock.url, transport), SOON_S
                raise

        strategy = pieces(fuzzed.document)
        end_s = time.monotonic() + (FUZZ_LONG_S if long else FUZZ_S)
        try:
            while time.monotonic() < end_s:
                hypothesis.seed(seed + len(memory_kb))(
                    settings(
                        max_examples=N_INPUTS,
                        database=None,
                        deadline=None,
                        phases=(Phase.generate, Phase.shrink),
                        suppress_health_check=list(HealthCheck),
                    )(given(strategy)(holds))
                )()
                fuzzed.close_sessions()
                memory_kb.append(fuzzed.memory_kb())
            report(
                f"{transport}: {n_inputs} inputs, {fuzzed.n_answers} answers, "
                f"memory {memory_kb[0]} -> {memory_kb[-1]} kB, most {max(memory_kb)} kB"
            )
            assert max(memory_kb) - memory_kb[0] <= MAX_RISE_KB, memory_kb
            started = descendants(fuzzed.daemon.process.pid)
            assert fuzzed.request("shutdown") == {}
            assert fuzzed.daemon.process.wait(SOON_S) == 0
            assert gone(started)
        finally:
            fuzzed.daemon.process.kill()
            fuzzed.daemon.end()
    assert b"Traceback" not in fuzzed.daemon.stderr, fuzzed.daemon.stderr[-4000:]
    assert list(work.iterdir()) == []

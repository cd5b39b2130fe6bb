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
from expected_answers import Key, expected, key_of
from fuzz_frames import UNWANTED, pieces
from measure import PATIENCE_S, SOON_S
from processes import descendants, footprint, gone

pytestmark = [pytest.mark.load, pytest.mark.timeout(1800)]

FUZZ_S, FUZZ_LONG_S = 10.0, 60.0
PAUSE_S = 0.001
"""Between two pieces, so that the daemon mostly reads them one by one."""
SHRINK_S = 2.0
"""How long an answer is waited for while an input is made smaller that has failed already."""
N_INPUTS = 50
"""Until all sessions are closed and the memory is looked at."""
MAX_RISE_KB = 10_000
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
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def send_raw(self, data: bytes) -> None:
        self._socket.sendall(data)

    def next_line(self, timeout_s: float) -> bytes:
        line = self._lines.get(timeout=timeout_s)
        assert line, "the connection has ended"
        return line

    def close(self) -> None:
        self._socket.close()
        self._thread.join()

    def _read(self) -> None:
        with self._socket.makefile("rb") as stream:
            for line in stream:
                self._lines.put(line)
        self._lines.put(b"")


class Fuzzed:
    """A daemon under fire, and one connection to it. Another takes its place when it has failed."""

    def __init__(self, cwd: Path, model_url: str, transport: str) -> None:
        self._cwd, self._model_url, self._transport = cwd, model_url, transport
        self._patience_s = PATIENCE_S
        self.n_inputs = self.n_answers = 0
        self.memory_kb: list[int] = []
        self.sessions: list[str] = []
        """Those of this round, which were live when it began."""
        self._start()

    def _start(self) -> None:
        place = self._cwd.parent / "s"
        where = ["--stdio"] if self._transport == "stdio" else ["--socket", str(place)]
        argv = [sys.executable, "-m", "cordisd", "serve", *where, "host"]
        self.daemon = Daemon(self._cwd, model_url=self._model_url, argv=argv)
        self._connection: Daemon | Connection = self.daemon
        if self._transport == "socket":
            wait_for_file(place)
            self._connection = Connection(place)
        self._contract: Contract | None = None
        self.document = self.request("rpc.discover")["result"]
        self._contract = Contract(self.document)
        self.digests = [self.request("initialize", **INITIALIZE)["result"]["digest"]]
        self.digests += [one["digest"] for one in self.request("preset/list")["result"]["presets"]]
        self._open_sessions()

    def end(self) -> None:
        """End it, whatever it does."""
        self.daemon.process.kill()
        self.daemon.end()
        if isinstance(self._connection, Connection):
            self._connection.close()

    def request(self, method: str, **params: object) -> Any:
        """The answer to a request of our own."""
        frame = {"jsonrpc": "2.0", "id": json.loads(OWN), "method": method, "params": params}
        self._connection.send_raw(json.dumps(frame).encode() + b"\n")
        missing: Counter[Key] = Counter({OWN: 1})
        while True:
            if answer := self._take(missing, {OWN: {method}}, PATIENCE_S):
                return answer

    def check(self, sent: list[bytes]) -> None:
        """Send the pieces and read until everything that must be answered is, and nothing else."""
        due = expected(b"".join(sent))
        hypothesis.assume(UNWANTED not in due.all_methods)
        self.n_inputs += 1
        try:
            for piece in sent:
                self._connection.send_raw(piece)
                time.sleep(PAUSE_S)
            missing = Counter(due.answers)
            end_s = time.monotonic() + self._patience_s
            while +missing:
                self._take(missing, due.methods, end_s - time.monotonic())
            self.request("initialize", **INITIALIZE)  # before whose answer nothing more may come
        except (AssertionError, OSError):
            self._patience_s = SHRINK_S
            self.end()
            self._start()
            raise

    def begin_round(self) -> None:
        """Make some sessions, new ones: long logs would take memory for themselves."""
        self.sessions = [f"s{len(self.memory_kb)}-{number}" for number in range(3)]
        self._open_sessions()

    def _open_sessions(self) -> None:
        for session in self.sessions:
            if "error" in self.request("session/create", sessionId=session):
                self.request("session/resume", sessionId=session)

    def end_round(self) -> None:
        """Close all sessions and look at the memory."""
        for session in self.request("session/list")["result"]["sessions"]:
            self.request("session/close", sessionId=session["sessionId"])
        self.memory_kb.append(footprint(self.daemon.process.pid)["Pss_Anon kB"])

    def _take(self, missing: Counter[Key], methods: dict[str, set[str]], timeout_s: float) -> Any:
        """The next answer, which one of the `missing` must be; None for a notification."""
        try:
            line = self._connection.next_line(max(0.0, timeout_s))
        except queue.Empty:
            raise AssertionError(f"no answer to {+missing}; stderr {self.daemon.stderr[-1000:]!r}") from None
        assert line.isascii() and line.endswith(b"\n"), line
        frame = json.loads(line)
        if isinstance(frame, dict) and "method" in frame:
            if self._contract is not None:
                assert self._contract.problems("params", frame["method"], frame["params"]) == []
            return None
        key = key_of(frame)
        assert missing[key] > 0, f"answered twice, or without being asked: {frame}"
        missing[key] -= 1
        for answer in frame if isinstance(frame, list) else [frame]:
            self._check(methods[json.dumps(answer["id"])], answer)
        self.n_answers += 1
        return frame

    def _check(self, methods: set[str], answer: dict[str, Any]) -> None:
        """An answer is no accident, and is as documented of one of the methods that it may be to."""
        assert answer.keys() == {"jsonrpc", "id", "result" if "result" in answer else "error"}
        if "error" in answer:
            assert "failed inside the daemon" not in answer["error"]["message"], answer
        contract = self._contract
        if contract is None or not methods <= contract.methods.keys():
            return  # a method that there is not, or none: the error is that of the specification
        problems = {
            method: contract.error_problems(method, answer["error"])
            if "error" in answer
            else contract.problems("result", method, answer["result"])
            for method in methods
        }
        assert not all(problems.values()), problems


@pytest.mark.parametrize("transport", ["stdio", "socket"])
def test_random_frames_are_answered_exactly_once_and_leave_the_daemon_as_it_was(
    transport: str, tmp_path: Path, seed: int, long: bool, report: Callable[[str], None]
) -> None:
    work = tmp_path / "w"
    work.mkdir()
    with MockModelThread(lambda _: text("ok")) as mock:
        fuzzed = Fuzzed(work, mock.url, transport)
        try:
            fire(fuzzed, seed, FUZZ_LONG_S if long else FUZZ_S)
            memory_kb = fuzzed.memory_kb
            report(
                f"{fuzzed.n_inputs} inputs, {fuzzed.n_answers} answers, memory {memory_kb[0]} -> "
                f"{memory_kb[-1]} kB, most {max(memory_kb)} kB"
            )
            assert max(memory_kb) - memory_kb[0] <= MAX_RISE_KB, memory_kb
            started = descendants(fuzzed.daemon.process.pid)
            assert fuzzed.request("shutdown")["result"] == {}
            assert fuzzed.daemon.process.wait(SOON_S) == 0
            assert gone(started)
        finally:
            fuzzed.end()
    assert b"Traceback" not in fuzzed.daemon.stderr, fuzzed.daemon.stderr[-4000:]
    assert list(work.iterdir()) == []


def fire(fuzzed: Fuzzed, seed: int, time_s: float) -> None:
    """Send random input for so long, in rounds after each of which nothing is left of it."""
    chosen = settings(
        max_examples=N_INPUTS,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    end_s = time.monotonic() + time_s
    while time.monotonic() < end_s:
        fuzzed.begin_round()

        @hypothesis.seed(f"{seed} {len(fuzzed.memory_kb)}")
        @chosen
        @given(pieces(fuzzed.document, fuzzed.digests, fuzzed.sessions))
        def a_round(sent: list[bytes]) -> None:
            fuzzed.check(sent)

        a_round()
        fuzzed.end_round()

"""A real daemon in a subprocess, spoken to with raw frames."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from client import Client
from measure import PATIENCE_S, SOON_S

CLEARED = ("DEEPSEEK_", "OPENAI_", "DSH_", "CORDISD_", "XDG_")


def clean_environment(**extra: str) -> dict[str, str]:
    """This process's environment without anything that steers a daemon, plus `extra`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(CLEARED)}
    return {**kept, **extra}


def module_path(folder: Path) -> str:
    """`PYTHONPATH` with `folder` before whatever it names already, which may be the code under test."""
    return os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])


def wait_for_file(path: Path) -> None:
    """Wait until a command has made the file."""
    end = time.monotonic() + PATIENCE_S
    while not path.exists():
        assert time.monotonic() < end, path
        time.sleep(0.01)


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

    def _state(self) -> str:
        code = self.process.poll()
        return f"the daemon {'runs' if code is None else f'ended ({code})'}; stderr: {self.stderr[-4000:]!r}"

    def _drain(self) -> None:
        assert self.process.stderr is not None
        while data := self.process.stderr.read1(1 << 16):  # type: ignore[attr-defined]
            self.stderr += data

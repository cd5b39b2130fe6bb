"""A real daemon that listens on sockets, and clients that connect to it."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from daemon import Client, Daemon
from measure import PATIENCE_S, SOON_S, comes


def dial(url: str) -> socket.socket:
    """A connection to `unix:PATH` or `tcp://HOST:PORT`."""
    if url.startswith("unix:"):
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(url.removeprefix("unix:"))
        except OSError:
            connection.close()
            raise
        return connection
    host, _, port = url.removeprefix("tcp://").rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)))


def is_reached(path: Path) -> bool:
    """Whether somebody listens there."""
    try:
        dial(f"unix:{path}").close()
    except OSError:
        return False
    return True


def wait_for_words(daemon: Daemon, words: str) -> str:
    """The line of a daemon's stderr that holds `words`, once it is there."""

    def found() -> list[str]:
        lines = os.fsdecode(daemon.stderr).splitlines(keepends=True)
        return [line for line in lines if words in line and line.endswith("\n")]

    assert comes(lambda: found() or daemon.process.poll() is not None), daemon.stderr
    assert found(), daemon.stderr
    return found()[0]


class SocketClient(Client):
    """One connection to a daemon; everything that comes is read by a thread."""

    def __init__(self, url: str, cwd: Path) -> None:
        super().__init__(cwd)
        self.socket = dial(url)
        self._stream = self.socket.makefile("rb")
        whole = (line for line in self._stream if line.endswith(b"\n"))  # the last one may be cut
        self._thread = threading.Thread(target=self._read, args=[whole], daemon=True)
        self._thread.start()

    def __enter__(self) -> SocketClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send_raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    def n_waiting(self) -> int:
        """How many frames have come that nobody has looked at yet."""
        return self._lines.qsize()

    def finish(self) -> None:
        """Send nothing more; what comes is still read."""
        self.socket.shutdown(socket.SHUT_WR)

    def wait_end(self, timeout_s: float = PATIENCE_S) -> list[dict[str, Any]]:
        """All frames, once the daemon has ended the connection."""
        self.resume_reading()
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), f"the connection did not end; last frames {self.frames[-5:]}"
        self.wait(lambda: self._lines.queue[0] is None)
        return self.frames

    def close(self) -> None:
        """End the connection, whatever is unread."""
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the daemon was first
        self.resume_reading()
        self._thread.join(SOON_S)
        self._stream.close()
        self.socket.close()


class SocketDaemon(Daemon):
    """`cordisd serve` with `places`, such as `["--socket", PATH]`; SIGTERM ends it.

    `launcher`: a command that runs the command behind it. `composition`: words of its own for `serve`.
    """

    def __init__(
        self,
        cwd: Path,
        *places: str,
        model_url: str = "http://127.0.0.1:9",
        composition: tuple[str, ...] = ("minimal",),
        launcher: tuple[str, ...] = (),
        **environment: str,
    ) -> None:
        argv = [*launcher, sys.executable, "-m", "cordisd", "serve", *places, *composition]
        super().__init__(cwd, model_url=model_url, argv=argv, **environment)

    def __enter__(self) -> SocketDaemon:
        self.urls()
        return self

    def connect_early(self, path: Path) -> SocketClient:
        """A client that is there before the daemon says that it is ready."""

        assert comes(lambda: is_reached(path))
        return SocketClient(f"unix:{path}", self.cwd)

    def urls(self) -> list[str]:
        """Where it listens, once it does."""
        return wait_for_words(self, "listening on ").split("listening on ")[1].split()

    def connect(self, url: str | None = None) -> SocketClient:
        """A client of its first, or the given, place."""
        return SocketClient(url or self.urls()[0], self.cwd)

    def end(self, timeout_s: float = SOON_S) -> int:
        """Have it end by SIGTERM; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return super().end(timeout_s)


@contextmanager
def clients_of(daemon: SocketDaemon) -> Iterator[Callable[[], SocketClient]]:
    """Makes clients that are initialized, and closes them."""
    clients: list[SocketClient] = []

    def make() -> SocketClient:
        clients.append(daemon.connect())
        clients[-1].initialize()
        return clients[-1]

    yield make
    for client in clients:
        client.close()

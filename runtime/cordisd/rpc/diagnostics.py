"""Diagnostics on stderr: ASCII lines that never block the daemon, even when nobody reads them."""

from __future__ import annotations

import logging
import select
from os import write
from typing import Final

STDERR: Final = 2
PIPE_BYTES: Final = 4096
"""A pipe that polls as writable takes at least this much without blocking."""


class StderrHandler(logging.Handler):
    """Writes each record as one or more ASCII lines; drops it, and says so later, when stderr is full."""

    def __init__(self) -> None:
        super().__init__()
        self._dropped = 0
        self.setFormatter(logging.Formatter("cordisd: %(levelname)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        text = self.format(record)
        if self._dropped:
            text = f"cordisd: WARNING: {self._dropped} messages were dropped\n{text}"
        data = text.encode("ascii", "backslashreplace") + b"\n"
        try:
            while data and select.select([], [STDERR], [], 0)[1]:
                data = data[write(STDERR, data[:PIPE_BYTES]) :]
        except OSError:
            pass  # stderr is gone: there is nowhere left to say so
        self._dropped = self._dropped + 1 if data else 0


def start_logging(level: str) -> None:
    """Send records of `level` (a name such as "warning") and above to stderr."""
    logging.basicConfig(level=level.upper(), handlers=[StderrHandler()])

"""What goes to standard output, and what becomes of a command when that cannot be written."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

PRINTED_CHARS: Final = 1 << 16
"""About as much is printed at a time."""


def print_out(text: str) -> None:
    """Print a line now; characters that stdout cannot encode are replaced.

    Raises:
        SystemExit: with 1, when standard output is closed or full; the latter is said on stderr.
    """
    encoding = sys.stdout.encoding or "utf-8"
    with _to_stdout():
        print(text.encode(encoding, "replace").decode(encoding), flush=True)


def write_out(data: bytes) -> None:
    """Write bytes as they are, now.

    Raises:
        SystemExit: as `print_out`.
    """
    with _to_stdout():
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def print_lines(lines: Iterable[str]) -> None:
    """Print lines as they come: one by one on a terminal, else many at a time.

    Raises:
        SystemExit: as `print_out`.
    """
    held: list[str] = []
    n_chars = 0
    for line in lines:
        held.append(line)
        n_chars += len(line)
        if n_chars >= PRINTED_CHARS or sys.stdout.isatty():
            print_out("\n".join(held))
            held, n_chars = [], 0
    if held:
        print_out("\n".join(held))


def complain(*problems: object, kind: str = "cordisd") -> None:
    """Print a line for each problem on stderr."""
    for problem in problems:
        print(f"{kind}: {problem}", file=sys.stderr)


def shown(path: Path) -> str:
    """A path on one line, whatever bytes it is made of."""
    text = str(path)
    return text if text.isprintable() else ascii(text)[1:-1]


@contextmanager
def _to_stdout() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if not isinstance(error, BrokenPipeError):  # whoever read our output has just seen enough
            print(f"cordisd: cannot write to standard output: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or the interpreter fails once more when it flushes
        raise SystemExit(1) from None

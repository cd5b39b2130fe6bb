"""What goes to standard output, and what becomes of a command when that cannot be written."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


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


@contextmanager
def _to_stdout() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if not isinstance(error, BrokenPipeError):  # whoever read our output has just seen enough
            print(f"cordisd: cannot write to standard output: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or the interpreter fails once more when it flushes
        raise SystemExit(1) from None

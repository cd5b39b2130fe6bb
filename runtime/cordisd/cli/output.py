"""What goes to standard output, and what becomes of a command when that cannot be written."""

from __future__ import annotations

import os
import sys


def print_out(text: str) -> None:
    """Print a line now.

    Raises:
        SystemExit: with 1, when standard output is closed or full; the latter is said on stderr.
    """
    try:
        print(text, flush=True)
    except OSError as error:
        if not isinstance(error, BrokenPipeError):  # whoever read our output has just seen enough
            print(f"cordisd: cannot write to standard output: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or the interpreter fails once more when it flushes
        raise SystemExit(1) from None

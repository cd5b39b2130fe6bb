"""`cordisd check`: every problem of a composition, without starting anything."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

HELP = "check a composition and list every problem with its file and line"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments of `cordisd check`."""
    parser.add_argument("file", metavar="FILE", help="a composition file, or the name of a shipped one")
    parser.add_argument(
        "--patch", metavar="FILE", action="append", default=[], help="a patch list to apply first; repeatable"
    )


def run(args: Namespace) -> int:
    """Print problems and warnings on stderr; 2 when there are problems, else 0 and a summary on stdout."""
    from cordisd.errors import CompositionError
    from cordisd.kernel.load import load
    from cordisd.shipped import composition_path, shipped_names

    path = composition_path(args.file)
    try:
        composition = load(path, patches=args.patch)
    except CompositionError as error:
        for problem in error.problems:
            print(problem, file=sys.stderr)
        if not path.exists():
            print(f"shipped compositions: {', '.join(shipped_names()) or 'none'}", file=sys.stderr)
        return 2
    for warning in composition.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    host, session = (
        ", ".join(entry.id for entry in entries) or "none"
        for entries in (composition.host, composition.session)
    )
    n_entries = len(composition.entries)
    print(f"ok: {n_entries} {'entry' if n_entries == 1 else 'entries'} (host: {host}; session: {session})")
    return 0

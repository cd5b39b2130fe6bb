"""`cordisd check`: every problem of a composition, found by loading it and mounting and rendering it once."""

from __future__ import annotations

import asyncio
import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from cordisd.cli.output import print_out

if TYPE_CHECKING:
    from cordisd.kernel.load import Composition
    from cordisd.shell.guardian import Guardian


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments of `cordisd check`."""
    parser.add_argument("file", metavar="FILE", help="a composition file, or the name of a shipped one")
    parser.add_argument(
        "--patch", metavar="FILE", action="append", default=[], help="a patch list to apply first; repeatable"
    )


def run(args: Namespace) -> int:
    """Print problems and warnings on stderr; 2 when there are problems, else 0 and a summary on stdout.

    The digest is that of the agent which sessions without a preset get.
    """
    from cordisd.shell.guardian import Guardian

    guardian = Guardian.fork()
    from cordisd.errors import CompositionError
    from cordisd.kernel.load import load
    from cordisd.shipped import composition_path, shipped_names

    path = composition_path(args.file)
    try:
        composition = load(path, patches=args.patch)
        digest = asyncio.run(_digest(composition, guardian))
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
    summary = f"{n_entries} {'entry' if n_entries == 1 else 'entries'} (host: {host}; session: {session})"
    print_out(f"ok: {summary}\ndigest: {digest}")
    return 0


async def _digest(composition: Composition, guardian: Guardian) -> str:
    """Start the host as the daemon does, look at the agents of sessions without a preset, take it down.

    Raises:
        CompositionError: with every problem.
    """
    from cordisd.agent.check import check_agent, problems_of
    from cordisd.agent.host import Host
    from cordisd.agent.preset import own_preset
    from cordisd.errors import CompositionError, PresetError

    host = Host(composition, guardian)
    try:
        await host.mount()
        own = await check_agent(host, own_preset(composition))
        try:
            default = await check_agent(host, host.preset(None))
        except PresetError as error:
            raise CompositionError([*own.problems, *problems_of(error, str(composition.path))]) from error
    finally:
        await host.close()
    if problems := list(dict.fromkeys((*own.problems, *default.problems))):
        raise CompositionError(problems)
    assert default.digest is not None
    return default.digest

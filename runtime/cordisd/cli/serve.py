"""`cordisd serve`: the daemon."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import argparse

PROFILES = ("sdk", "sdk-minimal", "minimal")
LOG_LEVELS = ("debug", "info", "warning", "error")


class ServeOptions(NamedTuple):
    """What `serve` is told; `composition` and `profile` None: the shipped minimal."""

    stdio: bool = False
    composition: str | None = None
    profile: str | None = None
    patch: Sequence[Path] = ()
    session_root: str | None = None
    log_level: str = "warning"
    socket: Sequence[Path] = ()
    listen: Sequence[str] = ()
    token_file: Path | None = None
    exit_when_idle: float | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `serve`."""
    parser.add_argument("--stdio", action="store_true", help="serve one client on standard input and output")
    parser.add_argument(
        "--socket",
        action="append",
        default=[],
        type=Path,
        metavar="PATH",
        help="serve on a Unix socket, for this user only; repeatable",
    )
    parser.add_argument(
        "--listen",
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="serve on TCP; without HOST on the loopback; needs --token-file; repeatable",
    )
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE", help="what TCP clients must show in initialize"
    )
    parser.add_argument(
        "--exit-when-idle",
        type=_seconds,
        metavar="SECONDS",
        help="end when for so long nobody was connected and no session ran",
    )
    parser.add_argument("composition", nargs="?", help="a file or a shipped name (default: minimal)")
    parser.add_argument(
        "--profile", choices=PROFILES, help="a shipped composition, logs under DSH_HOME/sessions"
    )
    parser.add_argument(
        "--patch", action="append", default=[], type=Path, help="a patch list to apply; repeatable"
    )
    parser.add_argument(
        "--session-root", help="where session logs go (else DSH_SESSION_ROOT, else the state folder)"
    )
    parser.add_argument("--log-level", choices=LOG_LEVELS, default="warning", help="diagnostics on stderr")


def _seconds(text: str) -> float:
    import argparse

    seconds = float(text)
    if not seconds > 0:  # nor is NaN
        raise argparse.ArgumentTypeError("must be a number of seconds above 0")
    return seconds


def run(args: ServeOptions | argparse.Namespace) -> int:
    """Serve until the client is done; returns the exit code."""
    parent = os.getppid()  # now: it may die while we start
    # Forked before anything heavy is imported: small, and no thread or loop is copied into it.
    from cordisd.shell.guardian import Guardian

    guardian = Guardian.fork()
    from cordisd.errors import CompositionError, ListenError
    from cordisd.kernel.load import load
    from cordisd.rpc.diagnostics import start_logging
    from cordisd.rpc.server import serve
    from cordisd.rpc.service import open_service
    from cordisd.shipped import composition_path

    if args.composition and args.profile:
        print("cordisd serve: give a composition or --profile, not both", file=sys.stderr)
        return 2
    start_logging(args.log_level)
    try:
        name = args.composition or args.profile or "minimal"
        if args.profile:
            home = os.environ.get("DSH_HOME") or os.path.expanduser("~/.dsh")
            os.environ["DSH_SESSION_ROOT"] = os.path.join(home, "sessions")
        if args.session_root:
            os.environ["DSH_SESSION_ROOT"] = args.session_root
        composition = load(composition_path(name), patches=args.patch)
        service = open_service(
            stdio=args.stdio,
            sockets=args.socket,
            addresses=args.listen,
            token_file=args.token_file,
            idle_exit_s=args.exit_when_idle,
            environ=os.environ,
        )
        return serve(composition, guardian, service, parent)
    except CompositionError as error:
        for problem in error.problems:
            print(f"cordisd: {problem}", file=sys.stderr)
        return 2
    except ListenError as error:
        print(f"cordisd serve: {error}", file=sys.stderr)
        return 2

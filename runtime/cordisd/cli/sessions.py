"""`cordisd sessions`: which sessions are stored, and the removal of old ones."""

from __future__ import annotations

import json
import os
import re
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cordisd.cli.log import add_session_root
from cordisd.cli.output import complain, print_lines, print_out, shown
from cordisd.cli.progress import printable
from cordisd.cli.rollout import session_root
from cordisd.cli.transcript import clock
from cordisd.errors import CordisError, LogError, SessionBusyError, SessionNotFoundError
from cordisd.events import JsonObject
from cordisd.session.disk import cause_of
from cordisd.session.listing import Listed, look_at
from cordisd.session.removal import remove
from cordisd.session.survey import survey

SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
UNITS: Final = ("B", "kB", "MB", "GB", "TB")


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the subcommands of `cordisd sessions`."""
    commands = parser.add_subparsers(metavar="COMMAND", dest="action", required=True)

    command = commands.add_parser(
        "list",
        help="the stored sessions, newest first",
        description="Lists the stored sessions, newest first. Status: open (a process has it), closed, "
        "interrupted (its writer was stopped in a turn). Exit code 1: something there cannot be read.",
    )
    command.add_argument("--json", action="store_true", help="print one JSON document")
    add_session_root(command)

    command = commands.add_parser(
        "prune",
        help="remove stored sessions that are old",
        description="Removes the folders of stored sessions and prints their paths. A session that a process "
        "has open is kept; a folder that holds anything but a session's log, or that is a link, is kept and "
        "named, with exit code 1.",
    )
    command.add_argument(
        "--older-than", metavar="AGE", type=_age_s, help="last written before that: 90s, 45m, 12h, 30d, 2w"
    )
    command.add_argument("--keep", metavar="N", type=_number, help="whatever their age, keep the N newest")
    command.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    add_session_root(command)


def run(args: Namespace) -> int:
    """Run the chosen subcommand; the result goes to stdout, problems to stderr."""
    root = session_root(args.session_root, os.environ)
    if args.action == "prune" and args.older_than is None and args.keep is None:
        complain("say which: --older-than AGE, --keep N, or both")
        return 2
    try:
        sessions, problems = _stored(root)
    except FileNotFoundError:
        complain(f"nothing is stored: there is no {shown(root)}", kind="note")
        sessions, problems = [], []
    except OSError as problem:
        complain(f"cannot read the session root {shown(root)}: {cause_of(problem)}")
        return 2
    complain(*problems)
    if args.action == "prune":
        return max(_prune(sessions, args), bool(problems))
    if args.json:
        print_out(json.dumps({"sessions": [_document(one) for one in sessions]}, indent=2))
    else:
        print_lines(_table(sessions))
    return int(bool(problems))


def _stored(root: Path) -> tuple[list[Listed], list[LogError]]:
    """The sessions under `root`, the one last made first, and what is wrong with others.

    Raises:
        OSError: the root cannot be read.
    """
    os.listdir(root)  # it is a folder, or the error says that it is none
    sessions: list[Listed] = []
    problems: list[LogError] = []
    for found in survey(root):
        if found.is_placed and (found.problem is not None or found.path.parents[2] == root):
            try:
                sessions.append(look_at(found))
            except SessionNotFoundError:
                continue  # it was removed while we looked
            except LogError as problem:
                problems.append(problem)
    sessions.sort(key=lambda one: (one.header.created_at, one.header.id), reverse=True)
    return sessions, problems


def _prune(sessions: Sequence[Listed], args: Namespace) -> int:
    """Remove what is old, oldest first."""
    by_age = sorted(sessions, key=lambda one: one.written_ns, reverse=True)[args.keep or 0 :]
    limit_ns = time.time_ns() - (args.older_than or 0) * 1_000_000_000
    failed = False
    for one in reversed(by_age):
        if one.status == "open" or (args.older_than is not None and one.written_ns > limit_ns):
            continue
        try:
            remove(one.path, one.written_ns, dry_run=args.dry_run)
        except (SessionBusyError, SessionNotFoundError) as other:
            complain(other, kind="note")
        except CordisError as problem:
            failed = True
            complain(problem)
        else:
            print_out(shown(one.path.parent))
    if args.dry_run:
        complain("nothing was removed", kind="note")
    return int(failed)


def _table(sessions: Sequence[Listed]) -> list[str]:
    rows = [("id", "created", "status", "turns", "size", "preset", "cwd"), *map(_row, sessions)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def _row(one: Listed) -> tuple[str, ...]:
    header = one.header
    cells = (
        header.id, clock(header.created_at), one.status, str(one.n_turns), _size(one.size_bytes),
        header.agent_preset or "-", header.cwd or "-",
    )  # fmt: skip
    return tuple(printable(cell).replace("\n", " ") for cell in cells)


def _document(one: Listed) -> JsonObject:
    header = one.header
    return {
        "sessionId": header.id,
        "status": one.status,
        "preset": header.agent_preset,
        "turns": one.n_turns,
        "createdAt": header.created_at,
        "writtenAt": one.written_ns // 1_000_000,
        "cwd": header.cwd,
        "sizeBytes": one.size_bytes,
        "path": str(one.path),
    }


def _size(n_bytes: int) -> str:
    size = float(n_bytes)
    for unit in UNITS:
        if size < 1000 or unit == UNITS[-1]:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError


def _age_s(argument: str) -> int:
    match = re.fullmatch(r"(\d+)([smhdw])", argument)
    if match is None:
        raise ArgumentTypeError(f"must be a number with s, m, h, d or w, such as 30d, not {argument!r}")
    return int(match[1]) * SECONDS[match[2]]


def _number(argument: str) -> int:
    if not argument.isdecimal():
        raise ArgumentTypeError(f"must be a whole number, not {argument!r}")
    return int(argument)

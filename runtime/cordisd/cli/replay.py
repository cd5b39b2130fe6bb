"""`cordisd replay`: plays recordings without a key, and says which run otherwise than they did."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cordisd.cli.output import print_out

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cordisd.cli.scenario import Scenario, Unreadable
    from cordisd.cli.stage import Conditions
    from cordisd.cli.verdict import Verdict

DEFAULT_JOBS: Final = 4
DESCRIPTION: Final = """\
Sends the recorded prompts again, each recording in a session of its own, answers for the model with what was
recorded, and compares every model request and every result of a tool. Opens no socket and needs no key.
Prints a line for each recording, with what differs. Exit codes: 0 all equal, 1 something differs, 2 a
recording or a composition cannot be used. A session log of format 0 is played by its cursor: its requests are
not compared."""


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments of `cordisd replay`."""
    parser.description = DESCRIPTION
    parser.add_argument(
        "recordings", metavar="FILE|DIR", nargs="+", help="a recording or log, or a folder of them"
    )
    parser.add_argument(
        "--composition", metavar="FILE", help="a file or a shipped name, in the place of the recorded one"
    )
    parser.add_argument(
        "--patch", metavar="FILE", action="append", default=[], help="a patch list for it; repeatable"
    )
    parser.add_argument(
        "--cwd", metavar="DIR", help="where the tools work (default: a new empty folder for each recording)"
    )
    parser.add_argument(
        "--tools",
        choices=("live", "recorded"),
        default="live",
        help="live: tools run, and their results are compared; recorded: nothing runs (default: %(default)s)",
    )
    parser.add_argument(
        "--on-divergence",
        choices=("fail", "event"),
        default="fail",
        help="of a tool's result that differs; event: say so, and go on with the recorded one in its place "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--refresh",
        action="store_true",
        help="write what is asked now, and what tools say, into the recordings, and show the changes; "
        "the model's answers stay",
    )
    parser.add_argument(
        "--jobs",
        metavar="N",
        type=_positive,
        help=f"sessions at once (default: {DEFAULT_JOBS}, or 1 with --cwd, which they would share)",
    )
    parser.add_argument("--fail-fast", action="store_true", help="end at the first that is not equal")
    parser.add_argument("--junit", metavar="FILE", help="write a JUnit report")
    parser.add_argument("--keep", metavar="DIR", help="keep the session logs in this new or empty folder")


def run(args: Namespace) -> int:
    """Play what the arguments name; verdicts go to stdout. Returns the exit code."""
    import asyncio

    from cordisd.cli.scenario import find
    from cordisd.cli.stage import Conditions

    if args.cwd is not None and not os.path.isdir(args.cwd):
        return _misused(f"--cwd: no such directory: {args.cwd}")
    if args.keep is not None and os.path.lexists(args.keep) and _is_used(args.keep):
        return _misused(f"--keep: {args.keep} must be a new or an empty folder")
    found = find(args.recordings)
    for path in found.skipped:
        print(f"cordisd replay: skipped {path}: neither a recording nor a session log", file=sys.stderr)
    if not found.scenarios:
        return _misused("there is no recording")
    conditions = Conditions(
        jobs=args.jobs or (DEFAULT_JOBS if args.cwd is None else 1),
        composition=args.composition,
        patches=args.patch,
        tools=args.tools,
        on_divergence=args.on_divergence,
        refreshes=args.refresh,
        cwd=None if args.cwd is None else os.path.realpath(args.cwd),
        keep=None if args.keep is None else Path(args.keep).absolute(),
    )
    verdicts = asyncio.run(_play(found.scenarios, conditions, fail_fast=args.fail_fast))
    if args.junit is not None:
        from cordisd.cli.junit import write

        try:
            write(Path(args.junit), verdicts)
        except OSError as error:
            return _misused(f"--junit: {args.junit}: {error.strerror}")
    outcomes = {verdict.outcome for verdict in verdicts}
    return 2 if "error" in outcomes else 1 if "failed" in outcomes else 0


async def _play(
    scenarios: Sequence[Scenario | Unreadable], conditions: Conditions, *, fail_fast: bool
) -> list[Verdict]:
    """The verdicts, each told when it is known."""
    from cordisd.cli.performance import play
    from cordisd.cli.scenario import Scenario, Unreadable
    from cordisd.cli.verdict import Verdict

    verdicts: list[Verdict] = []
    readable = [one for one in scenarios if isinstance(one, Scenario)]
    if conditions.refreshes:  # a log has no requests to write anew
        problem = "is a session log; only recordings are refreshed"
        scenarios = [
            Unreadable(one.name, problem) if isinstance(one, Scenario) and one.is_log else one
            for one in scenarios
        ]
        readable = [one for one in readable if not one.is_log]
    async with aclosing(play(readable, conditions)) as played:
        for one in scenarios:
            if isinstance(one, Unreadable):
                verdict = Verdict(one.name, "error", one.problem)
            else:
                verdict = await anext(played)
            verdicts.append(verdict)
            is_log = isinstance(one, Scenario) and one.is_log
            print_out("\n".join(_told(verdict, is_log=is_log, refreshes=conditions.refreshes)))
            if fail_fast and verdict.outcome != "ok":
                break
    return verdicts


def _told(verdict: Verdict, *, is_log: bool, refreshes: bool) -> list[str]:
    """What is said of a verdict."""
    if verdict.outcome != "ok":
        return [f"{verdict.outcome.upper()} {verdict.name}", *_indented(verdict.message)]
    facts = [
        f"{verdict.n_requests} request" + ("s" if verdict.n_requests != 1 else ""),
        f"{verdict.elapsed_s:.2f} s",
    ]
    if is_log:
        facts.append("a log: requests were not compared")
    if verdict.notes:
        facts.append(f"{len(verdict.notes)} result" + ("s differ" if len(verdict.notes) != 1 else " differs"))
    word = "ok" if not refreshes else "refreshed" if verdict.changes else "unchanged"
    lines = [f"{word} {verdict.name} ({', '.join(facts)})", *(verdict.changes or ())]
    return [*lines, *(line for note in verdict.notes for line in _indented(note))]


def _indented(text: str) -> list[str]:
    return [f"  {line}".rstrip() for line in text.rstrip("\n").split("\n")]


def _is_used(path: str) -> bool:
    return not os.path.isdir(path) or bool(os.listdir(path))


def _misused(problem: str) -> int:
    print(f"cordisd replay: {problem}", file=sys.stderr)
    return 2


def _positive(argument: str) -> int:
    if not argument.isdecimal() or int(argument) < 1:
        raise ArgumentTypeError("must be a whole number, 1 or more")
    return int(argument)

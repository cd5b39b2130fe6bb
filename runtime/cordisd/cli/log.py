"""`cordisd log`: whether stored session logs are sound, what mends them, and what they tell."""

from __future__ import annotations

import json
import os
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from cordisd.cli.output import complain, print_lines, print_out, shown
from cordisd.cli.rollout import UsageError, session_root
from cordisd.errors import CordisError
from cordisd.events import Event, JsonObject
from cordisd.session.condition import Condition, examine, mend
from cordisd.session.disk import cause_of
from cordisd.session.layout import locate
from cordisd.session.repair import NOT_STARTED
from cordisd.session.survey import Found, survey

PATH_HELP: Final = "a log file, the folder of a session or a project, a session root; or the id of a session"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the subcommands of `cordisd log`."""
    commands = parser.add_subparsers(metavar="COMMAND", dest="action", required=True)

    command = commands.add_parser(
        "verify",
        help="say of each log whether it is sound",
        description="Says of each log: ok; open (a process writes it); torn or interrupted (`repair` mends "
        "it, and so does a resume); damaged (inside what was committed); refused (of another format, or "
        "unreadable). Writes nothing. Exit code 1: one is neither ok nor open.",
    )
    _add_paths(command)
    command.add_argument("--json", action="store_true", help="print one JSON document")

    command = commands.add_parser(
        "repair",
        help="do to each log what a resume would do to it",
        description="Cuts a torn tail off, which is kept beside the log, and adds the events that close an "
        "open turn. A log that a process has open is left alone. Of one that is damaged or refused nothing "
        "is changed; --out copies what is sound of it. Exit code 1: a log cannot be mended.",
    )
    _add_paths(command)
    how = command.add_mutually_exclusive_group()
    how.add_argument("--dry-run", action="store_true", help="only say what would be done")
    how.add_argument(
        "--out",
        metavar="FILE",
        help="of one log: copy its events up to the first damage into this new file, without lines that only "
        "repeat earlier ones; the log stays as it is",
    )

    command = commands.add_parser(
        "show",
        help="print the transcript of a session",
        description="Prints who said what, what was called, what came back, and how each turn ended. Of a "
        "damaged log what is sound is shown, with exit code 1.",
    )
    command.add_argument("path", metavar="PATH", help=PATH_HELP)
    command.add_argument("--turn", type=int, metavar="N", help="only this turn")
    form = command.add_mutually_exclusive_group()
    form.add_argument("--events", action="store_true", help="print one short line for each event")
    form.add_argument("--json", action="store_true", help="print each event as JSON, packed rows expanded")
    add_session_root(command)


def add_session_root(parser: ArgumentParser) -> None:
    """Declare the option that says where sessions are stored."""
    parser.add_argument(
        "--session-root", metavar="DIR", help="where sessions are stored (else DSH_SESSION_ROOT, else XDG)"
    )


def run(args: Namespace) -> int:
    """Run the chosen subcommand; the result goes to stdout, problems to stderr."""
    root = session_root(args.session_root, os.environ)
    try:
        match args.action:
            case "verify":
                return _verify(_find(args.paths, root), as_json=args.json)
            case "repair" if args.out is not None:
                return _salvage(_only(_find(args.paths, root)), Path(args.out))
            case "repair":
                return _repair(_find(args.paths, root), dry_run=args.dry_run)
            case _:
                from cordisd.cli.show import show

                return show(_only(_find([args.path], root)), args)
    except UsageError as error:
        complain(error)
        return 2
    except CordisError as error:
        complain(error)
        return 1


def _verify(logs: list[Found], *, as_json: bool) -> int:
    conditions: list[Condition] = []

    def lines() -> Iterator[str]:
        for found in logs:
            conditions.append(examine(found))
            yield _line(conditions[-1])

    if as_json:
        conditions += map(examine, logs)
        print_out(json.dumps({"logs": [_document(one) for one in conditions]}, indent=2))
    else:
        print_lines(lines())
        if len(conditions) > 1:
            counts = Counter(one.status for one in conditions)
            told = ", ".join(f"{count} {status}" for status, count in counts.most_common())
            complain(f"{len(conditions)} logs: {told}", kind="note")
    return int(any(one.status not in ("ok", "open") for one in conditions))


def _repair(logs: list[Found], *, dry_run: bool) -> int:
    failed = False

    def lines() -> Iterator[str]:
        nonlocal failed
        for found in logs:
            condition = examine(found) if dry_run else mend(found)
            if condition.status in ("damaged", "refused"):
                failed = True
                complain(f"nothing was changed: {_line(condition)}")
            else:
                yield _line(condition, mended=condition.is_repairable and not dry_run)

    print_lines(lines())
    return int(failed)


def _salvage(found: Found, out: Path) -> int:
    from cordisd.session.salvage import salvage

    copied = salvage(found.path, out)
    print_out(f"{_count(copied.n_events, 'event')} in {shown(out)}")
    if copied.n_repeats:
        complain(
            f"left out because they repeat earlier ones: {_count(copied.n_repeats, 'line')}", kind="note"
        )
    if copied.end is not None:
        complain(f"the copy ends before the damage: {copied.end} of {shown(found.path)}", kind="note")
    return 0


def _find(names: Iterable[str], root: Path) -> list[Found]:
    """The logs that are meant, each once.

    Raises:
        UsageError: a name is neither a path that can be read nor the id of a session under `root`.
    """
    found: dict[Path, Found] = {}
    for name in names:
        path = Path(name)
        try:
            if not os.path.lexists(path):
                path = locate(root, name).parent
            logs = survey(path)
        except CordisError as problem:
            raise UsageError(f"{name}: no such path, and no such session: {problem}") from problem
        except OSError as problem:
            raise UsageError(f"cannot read {shown(path)}: {cause_of(problem)}") from problem
        if not logs:
            complain(f"no logs in {shown(path)}", kind="note")
        found |= {one.path: one for one in logs}
    return list(found.values())


def _only(logs: list[Found]) -> Found:
    """The one log that is meant.

    Raises:
        UsageError: they are several, or none.
    """
    match logs:
        case [one]:
            return one
        case _:
            raise UsageError(f"one log must be named, not {len(logs)}")


def _line(condition: Condition, *, mended: bool = False) -> str:
    """What is said of a log; of one that is `mended`, what was done to it."""
    facts: list[str] = []
    if condition.problem is not None:
        facts.append(condition.problem.removesuffix(f": {condition.path}"))
    if condition.header is not None and not condition.is_repairable:
        facts.append(_count(condition.n_events, "sound event" if facts else "event"))
    if condition.status in ("ok", "open"):
        facts.append(_count(condition.n_turns, "turn"))
    if condition.n_waiting:
        facts.append(f"{_count(condition.n_waiting, 'message')} waiting")
    if condition.cut_bytes:
        kept = f", kept in {shown(condition.kept)}" if condition.kept is not None else ""
        facts.append(f"{_count(condition.cut_bytes, 'byte')} {'were cut' + kept if mended else 'to cut'}")
    if condition.closers:
        added = ", ".join(_closing(event) for event in condition.closers)
        facts.append(f"{'added' if mended else 'to add'}: {added}")
    status = "mended" if mended else condition.status
    return f"{status:<11} {shown(condition.path)}: {'; '.join(facts)}"


def _closing(event: Event) -> str:
    match event.type:
        case "tool/result":
            outcome = "not started" if event.data["error"]["code"] == NOT_STARTED else "outcome unknown"
            return f"result of call {event.data['message']['source']['callId']} ({outcome})"
        case "user/message":
            return f"message {event.data['id']}"
        case "step/start":
            return f"step {event.data['step']}"
        case "step/end":
            return f"end of step {event.data['step']}"
        case _:
            return f"end of turn {event.data['turn']}"


def _document(condition: Condition) -> JsonObject:
    return {
        "path": str(condition.path),
        "status": condition.status,
        "problem": condition.problem,
        "sessionId": None if condition.header is None else condition.header.id,
        "events": condition.n_events,
        "turns": condition.n_turns,
        "waiting": condition.n_waiting,
        "cutBytes": condition.cut_bytes,
        "closers": [event.as_dict() for event in condition.closers],
    }


def _add_paths(parser: ArgumentParser) -> None:
    parser.add_argument("paths", metavar="PATH", nargs="+", help=PATH_HELP)
    add_session_root(parser)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")

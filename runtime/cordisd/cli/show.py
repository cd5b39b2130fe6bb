"""Prints one stored session: as a transcript, as a line for each event, or as JSON."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass

from cordisd.cli.output import complain, print_lines, shown
from cordisd.cli.transcript import Transcript, event_line
from cordisd.errors import LogError
from cordisd.events import Event
from cordisd.session.disk import cause_of, open_file
from cordisd.session.layout import is_locked
from cordisd.session.reading import LogReading
from cordisd.session.survey import Found


@dataclass(slots=True)
class _Chosen:
    """Which events are asked for: those of one turn, or with `turn` None all."""

    turn: int | None
    current: int | None = None
    last: int | None = None
    is_found: bool = False

    def takes(self, event: Event) -> bool:
        if event.type == "turn/start":
            self.current = self.last = event.data.get("turn")
        is_taken = self.turn is None or self.current == self.turn
        self.is_found |= is_taken
        if event.type == "turn/end":
            self.current = None
        return is_taken


def show(found: Found, args: Namespace) -> int:
    """Print what `args` asks for of a log, as far as it is sound; 1 when that is not the whole.

    Raises:
        LogError: nothing of it can be read.
    """
    if found.problem is not None and found.path.is_dir():
        raise found.problem
    chosen = _Chosen(args.turn)
    refusal: LogError | None = None
    is_open = is_locked(found.path)

    def events(reading: LogReading) -> Iterator[Event]:
        nonlocal refusal
        try:
            yield from filter(chosen.takes, reading.events())
        except LogError as error:
            refusal = error

    try:
        with open(found.path, "rb", opener=open_file) as stream:
            reading = LogReading(stream, found.path)
            print_lines(_lines(reading, events(reading), args))
    except OSError as error:
        raise LogError(f"cannot read {shown(found.path)}: {cause_of(error)}") from error
    if refusal is not None:
        complain(refusal)
    elif (damage := reading.damage) is not None and (damage.is_committed or not is_open):
        complain(f"the log is sound up to here only: {damage.what}: {shown(found.path)}")
    elif args.turn is not None and not chosen.is_found:
        complain(f"there is no turn {args.turn}; the last one is {chosen.last}")
    else:
        return 0
    return 1


def _lines(reading: LogReading, events: Iterator[Event], args: Namespace) -> Iterator[str]:
    if args.json:
        yield from (event.json.decode() for event in events)
    elif args.events:
        yield from map(event_line, events)
    else:
        told = Transcript(colour=sys.stdout.isatty() and not os.environ.get("NO_COLOR"))
        yield from told.begin(reading.header)
        for event in events:
            yield from told.tell(event)
        yield from told.end()

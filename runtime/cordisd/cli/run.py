"""`cordisd run`: one task from the command line, driven through a child daemon."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Final

from cordisd.cli.output import print_out
from cordisd.cli.rollout import (
    UsageError,
    add_rollout_arguments,
    daemon_options,
    limits,
    log_path,
    read_task,
    session_root,
)

if TYPE_CHECKING:
    from pathlib import Path

    from cordisd_sdk import RunResult

PREVIEW_LINES: Final = 3


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments of `cordisd run`."""
    add_rollout_arguments(parser)


def run(args: Namespace) -> int:
    """Run the task; the answer goes to stdout, everything else to stderr. Returns the exit code."""
    from cordisd.cli.drive import Task, drive, exit_code_of
    from cordisd.cli.progress import Progress

    try:
        task = Task(read_task(args.task), args.session, limits(args))
        root = session_root(args.session_root, os.environ)
        options = daemon_options(args, root, os.environ)
    except UsageError as error:
        print(f"cordisd run: {error}", file=sys.stderr)
        return 2
    progress = Progress.to(sys.stderr, max_preview_lines=PREVIEW_LINES)
    outcome = drive(options, task, progress)
    if outcome.result is not None:
        log = log_path(root, outcome.result.session_id)
        if args.json:
            print_json(outcome.result, log)
        else:
            print_answer(outcome.result)
            if log is not None:
                print(f"log: {log}", file=sys.stderr)
    return exit_code_of(outcome)


def print_answer(result: RunResult) -> None:
    """Print the final answer, if there is one."""
    if result.final_response or result.error is None:
        print_out(result.final_response)


def print_json(result: RunResult, log: Path | None) -> None:
    """Print the outcome as one JSON document, in ASCII."""
    import json

    n_steps = sum(event["type"] == "step/start" for event in result.events)
    document = {
        "sessionId": result.session_id,
        "finalResponse": result.final_response,
        "finishReason": result.finish_reason,
        "stopReason": result.stop_reason,
        "error": result.error,
        **({} if result.limit is None else {"limit": result.limit}),
        "usage": result.usage,
        "turns": result.turn,
        "steps": n_steps,
        "logPath": None if log is None else str(log),
    }
    print_out(json.dumps(document, indent=2))

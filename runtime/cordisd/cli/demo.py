"""`cordisd demo`: a keyless rollout. The model's side is a recording, the tools and the log are real."""

from __future__ import annotations

import contextlib
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cordisd_sdk import DaemonOptions

NAME: Final = "demo"
PREVIEW_LINES: Final = 12


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments of `cordisd demo`."""
    parser.add_argument("--keep", action="store_true", help="keep the workspace and the log, and say where")
    parser.add_argument(
        "--session-root", metavar="DIR", help="where the log goes (default: a temporary folder)"
    )


def run(args: Namespace) -> int:
    """Play the recording in a fresh workspace; the transcript goes to stderr, the answer to stdout."""
    from cordisd.cli.drive import Task, drive, exit_code_of
    from cordisd.cli.progress import BOLD, Progress
    from cordisd.cli.rollout import log_path
    from cordisd.cli.run import print_answer
    from cordisd.shipped import shipped, shipped_recording

    composition, recording = shipped(NAME), shipped_recording(NAME)
    if composition is None or recording is None:
        print("cordisd demo: its composition or recording is not installed", file=sys.stderr)
        return 2
    with _workspace(keep=args.keep) as folder:
        root = Path(args.session_root or folder / "sessions").absolute()
        options: DaemonOptions = {
            "composition": composition,
            "cwd": folder / "workspace",
            "session_root": root,
            "env": {"DSH_SNAPSHOT_FILE": str(recording), "DSH_SNAPSHOT_OVERRIDE": None}
            | {"DSH_SNAPSHOT_CHILD_FILES": None, "DSH_SYSTEM_PROMPT": None},
        }
        progress = Progress.to(sys.stderr, max_preview_lines=PREVIEW_LINES)
        task = _recorded_task(recording)
        progress.line(f"task: {task}", BOLD)
        outcome = drive(options, Task(task), progress)
        if outcome.result is not None:
            print_answer(outcome.result)
            log = log_path(root, outcome.result.session_id)
            if args.keep:
                print(f"workspace: {folder / 'workspace'}", file=sys.stderr)
            if log is not None and (args.keep or args.session_root):
                print(f"log: {log}", file=sys.stderr)
    return exit_code_of(outcome)


@contextlib.contextmanager
def _workspace(*, keep: bool) -> Iterator[Path]:
    import shutil
    import tempfile

    folder = Path(os.path.realpath(tempfile.mkdtemp(prefix="cordisd-demo-")))
    (folder / "workspace").mkdir()
    try:
        yield folder
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _recorded_task(recording: Path) -> str:
    """The text of the recording's first user message."""
    from cordisd.events import decode_json

    with recording.open("rb") as lines:
        for line in lines:
            event = decode_json(line)
            if event["type"] == "user/message":
                return "".join(block.get("text", "") for block in event["data"]["content"])
    raise ValueError(f"{recording} holds no user message")

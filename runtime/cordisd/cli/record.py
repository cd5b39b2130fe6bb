"""`cordisd record`: runs one task as `cordisd run` does, and writes a recording of its session."""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cordisd.cli.rollout import (
    UsageError,
    add_rollout_arguments,
    daemon_options,
    limits,
    log_path,
    read_task,
    session_root,
)
from cordisd.cli.run import PREVIEW_LINES, print_answer, print_json
from cordisd.events import JsonObject


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments of `cordisd record`."""
    parser.add_argument(
        "--out", metavar="DIR", required=True, help="folder of the recording, which is called SESSION.jsonl"
    )
    parser.add_argument(
        "--mask",
        metavar="NAME=REGEX",
        action="append",
        default=[],
        help="text that is another each time, such as a date: it is recorded and compared as {{NAME}}; "
        "repeatable",
    )
    parser.add_argument(
        "--force", action="store_true", help="write over a recording of that session that is there already"
    )
    add_rollout_arguments(parser)
    parser.epilog = (
        "The session is a new one; --session names it and its recording. Its log is kept where "
        "--session-root or DSH_SESSION_ROOT says, and not at all without them."
    )


def run(args: Namespace) -> int:
    """Run the task; the answer goes to stdout, everything else to stderr. Returns the exit code of `run`."""
    from cordisd.cli.drive import Task, drive, exit_code_of
    from cordisd.cli.progress import Progress

    try:
        text = read_task(args.task)
        target = _target(args)
        task = Task(text, args.session, limits(args), may_resume=False)
        before = _inode(target)
        with _log_root(args) as root, _patch(args, target) as patch:
            options = daemon_options(args, root, os.environ)
            options["patches"] = [*(args.patch or ()), patch]
            progress = Progress.to(sys.stderr, max_preview_lines=PREVIEW_LINES)
            outcome = drive(options, task, progress)
            log = log_path(root, args.session) if _keeps_log(args) else None
            if outcome.result is not None and args.json:
                print_json(outcome.result, log)
            elif outcome.result is not None:
                print_answer(outcome.result)
    except UsageError as error:
        print(f"cordisd record: {error}", file=sys.stderr)
        return 2
    if log is not None:
        print(f"log: {log}", file=sys.stderr)
    _tell(target, before)
    return exit_code_of(outcome)


def composition_note(composition: str, folder: Path) -> str:
    """How a recording in `folder` names its composition: a shipped name, else a path relative to `folder`."""
    from cordisd.shipped import shipped

    if shipped(composition) is not None:
        return composition
    return os.path.relpath(os.path.realpath(composition), os.path.realpath(folder))


def _target(args: Namespace) -> Path:
    """Where the recording is going to be; gives the session an id if the command line has none.

    Raises:
        UsageError: there is one already, the id cannot be a file's name, or no file can be there.
    """
    import uuid

    from cordisd.errors import InvalidParamsError
    from cordisd.replay.recorder import SUFFIX
    from cordisd.replay.writer import PART
    from cordisd.session.names import encode_segment

    if args.session is None:
        args.session = f"session-{uuid.uuid4().hex}"
    try:
        target = Path(args.out).absolute() / (encode_segment(args.session) + SUFFIX)
    except InvalidParamsError as error:
        raise UsageError(f"--session: {error}") from None
    if target.exists() and not args.force:
        raise UsageError(f"{target} exists already; --force writes over it")
    part = target.with_name(target.name + PART)
    try:
        part.unlink(
            missing_ok=True
        )  # of a recorder that was killed: it would pass for ours if ours never began
    except OSError as error:
        raise UsageError(f"--out: {part}: {error.strerror}") from None
    return target


@contextmanager
def _patch(args: Namespace, target: Path) -> Iterator[str]:
    """A patch file that adds the recorder."""
    from tempfile import NamedTemporaryFile

    from pydantic import ValidationError

    from cordisd.entries.recorder import RecorderConfig

    composition = args.composition or ("minimal" if args.preset is None else "host")
    config: JsonObject = {
        "folder": str(target.parent),
        "composition": composition_note(composition, target.parent),
        "masks": _masks(args.mask),
    }
    try:
        RecorderConfig.model_validate(config)
    except ValidationError as error:
        raise UsageError(f"--mask: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None
    row = {"id": "cordisd-record", "name": "recorder", "config": config}
    with NamedTemporaryFile("w", prefix="cordisd-record-", suffix=".yml", encoding="utf-8") as file:
        json.dump([{"insert": [row]}], file)  # JSON is YAML
        file.flush()
        yield file.name


def _masks(arguments: list[str]) -> dict[str, str]:
    masks: dict[str, str] = {}
    for argument in arguments:
        name, equals, pattern = argument.partition("=")
        if not equals:
            raise UsageError(f"--mask: {argument!r} is not NAME=REGEX")
        if name in masks:
            raise UsageError(f'--mask: there are two of the name "{name}"')
        masks[name] = pattern
    return masks


def _keeps_log(args: Namespace) -> bool:
    return bool(args.session_root or os.environ.get("DSH_SESSION_ROOT"))


@contextmanager
def _log_root(args: Namespace) -> Iterator[Path]:
    """A folder for the session's log: one that lasts only if it was asked for.

    The recording has what the log has, and a session that is recorded again must not be in the way of itself.
    """
    from tempfile import TemporaryDirectory

    if _keeps_log(args):
        yield session_root(args.session_root, os.environ)
        return
    with TemporaryDirectory(prefix="cordisd-record-") as folder:
        yield Path(folder)


def _inode(path: Path) -> int | None:
    return path.stat().st_ino if path.exists() else None


def _tell(target: Path, before: int | None) -> None:
    """Say where the recording is, and whether it is whole; `before`: the inode that had its name."""
    from cordisd.replay.writer import PART

    part = target.with_name(target.name + PART)
    if part.exists():
        print(f"recording, cut off, which does not replay: {part}", file=sys.stderr)
    elif _inode(target) not in (None, before):
        print(f"recording: {target}", file=sys.stderr)
    else:
        print("nothing was recorded", file=sys.stderr)

"""The `cordisd` command: picks the subcommand and imports only that.

The published clients start a daemon without a subcommand; those forms are `serve` too:

    cordisd                                     on a pipe: the composition of DSH_CORDIS_CONFIG, else minimal
    cordisd COMPOSITION.yml
    cordisd --profile NAME [--patch FILE]...    logs under DSH_HOME/sessions
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from cordisd import __version__

COMMANDS = {
    "run": "run one task and print the final answer",
    "record": "as run, and write a recording of it for strict replay",
    "replay": "play recordings without a key, and tell what differs",
    "demo": "a keyless rollout with recorded model traffic",
    "serve": "serve JSON-RPC on standard input and output, or on sockets",
    "check": "validate a composition and print every problem",
    "preset": "list, render, check and compare agent presets",
    "profile": "show, verify and lock frozen presets",
    "log": "verify, repair and show stored session logs",
    "sessions": "list stored sessions, and remove old ones",
    "schema": "print the JSON Schema of a composition, for editors",
    "mock-model": "serve a script as an OpenAI-compatible model, with faults",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code: 0, 1 failed, 2 usage or composition, 130 interrupted."""
    _fill_standard_streams()
    try:
        return _main(argv)
    except KeyboardInterrupt:
        return 130


def _main(argv: Sequence[str] | None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        os.getcwd()
    except OSError as error:  # almost every path starts there
        print(f"cordisd: the working directory cannot be used: {error.strerror}", file=sys.stderr)
        return 2
    if not arguments and sys.stdin is not None and not os.isatty(0):
        from cordisd.cli.serve import ServeOptions, run

        # The form in which most daemons start does without argparse: 8 ms.
        return run(ServeOptions(stdio=True, composition=os.environ.get("DSH_CORDIS_CONFIG") or None))
    if arguments and _is_launch_form(arguments[0]):
        arguments = ["serve", "--stdio", *arguments]
    import argparse

    parser = argparse.ArgumentParser(prog="cordisd", description="Runs coding-agent rollouts over JSON-RPC.")
    parser.add_argument("--version", action="version", version=f"cordisd {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", dest="command")
    chosen = next((word for word in arguments if word in COMMANDS), None)
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary)
        if name == chosen:
            _module(name).add_arguments(command)
    if not arguments:
        parser.print_help()
        return 0
    args = parser.parse_args(arguments)
    if args.command is None:
        parser.print_help(sys.stderr)
        return 2
    code: int = _module(args.command).run(args)
    return code


def _module(command: str) -> Any:
    return importlib.import_module(f"cordisd.cli.{command.replace('-', '_')}")


def _fill_standard_streams() -> None:
    """Put the null device where a standard stream was closed by whoever started us.

    Else the next thing that is opened would take its number: a pipe of ours would be read as the protocol.
    And a complaint would be printed on stdout, for want of a stderr.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number that is free
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)


def _is_launch_form(word: str) -> bool:
    """Whether the first argument is one of the published clients' launch forms."""
    if word.split("=")[0] in ("--profile", "--patch"):
        return True
    if word.startswith("-") or word in COMMANDS:
        return False
    return os.sep in word or word.endswith((".yml", ".yaml")) or os.path.isfile(word)

"""One task given on the command line: the options that say which daemon runs it, and how."""

from __future__ import annotations

import math
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

    from cordisd.shapes import Limits
    from cordisd_sdk import DaemonOptions

DEFAULT_MODEL: Final = "deepseek-v4-flash"
ENDPOINTS: Final = (
    ("OPENAI_BASE_URL", "https://api.openai.com/v1", "OPENAI_API_KEY"),
    ("DEEPSEEK_BASE_URL", "https://api.deepseek.com", "DEEPSEEK_API_KEY"),
)
"""Variable and default of an address, and the variable of the key that belongs to it."""


class UsageError(Exception):
    """The command line does not make sense."""


def add_rollout_arguments(parser: ArgumentParser) -> None:
    """Declare the task and the options that every command has that runs one."""
    parser.add_argument("task", metavar="TASK", help="what to do; - reads it from standard input")
    parser.add_argument(
        "--composition",
        metavar="FILE",
        help="a file or a shipped name (default: minimal; with --preset, host)",
    )
    parser.add_argument("--patch", metavar="FILE", action="append", help="a patch list for it; repeatable")
    parser.add_argument("--preset", metavar="NAME", help="an agent preset of the composition's roster")
    parser.add_argument(
        "--require-preset", metavar="DIGEST", help="run only if the agent's digest is this sha256:…"
    )
    parser.add_argument("--cwd", metavar="DIR", help="where the tools work (default: here)")
    parser.add_argument("--model", help=f"else DSH_MODEL, else {DEFAULT_MODEL}")
    parser.add_argument("--provider", default="deepseek-official", help="default: %(default)s")
    parser.add_argument("--base-url", metavar="URL", help="endpoint of the model")
    parser.add_argument(
        "--api-key-env",
        metavar="NAME",
        help="the variable that holds the key for --base-url; '' sends the word none "
        "(default: the variable that belongs to that address, if it is one that the environment knows)",
    )
    parser.add_argument("--max-tokens", type=int, metavar="N", help="limit of each model answer")
    parser.add_argument("--max-turns", type=int, metavar="N", help="most model requests of the run")
    parser.add_argument("--timeout-seconds", type=float, metavar="S", help="most time of the run")
    parser.add_argument(
        "--max-cost",
        type=float,
        metavar="C",
        help="most cost of a run of a new session, by the model row's prices",
    )
    parser.add_argument("--session", metavar="ID", help="continue this session, or begin it")
    parser.add_argument(
        "--session-root", metavar="DIR", help="where logs go (else DSH_SESSION_ROOT, else XDG)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of the answer")


def read_task(argument: str) -> str:
    """The task of the command line, from standard input for `-`.

    Raises:
        UsageError: it is empty, or not UTF-8.
    """
    try:
        task = sys.stdin.buffer.read().decode("utf-8") if argument == "-" else argument
    except UnicodeDecodeError as error:
        raise UsageError(f"the task is not UTF-8: {error}") from error
    if not task.strip():
        raise UsageError("the task is empty")
    return task


def daemon_options(args: Namespace, root: Path, env: Mapping[str, str]) -> DaemonOptions:
    """The child daemon's options for a command line.

    Raises:
        UsageError: arguments that contradict each other, or a key variable that is not set.
    """
    cwd = os.path.abspath(args.cwd or ".")
    if not os.path.isdir(cwd):
        raise UsageError(f"--cwd: no such directory: {cwd}")
    options: DaemonOptions = {
        "cwd": cwd,
        "provider": args.provider,
        "model": args.model or env.get("DSH_MODEL") or DEFAULT_MODEL,
        "session_root": root,
    }
    options["composition"] = args.composition or ("minimal" if args.preset is None else "host")
    if args.patch:
        options["patches"] = args.patch
    if args.preset is not None:
        options["preset"] = args.preset
    if args.require_preset is not None:
        options["require_preset"] = args.require_preset
    if args.max_tokens is not None:
        if args.max_tokens < 1:
            raise UsageError("--max-tokens must be 1 or more")
        options["max_tokens"] = args.max_tokens
    if args.base_url:
        options["base_url"] = args.base_url
        options["api_key"] = key_for(args.base_url, args.api_key_env, env)
    elif args.api_key_env is not None:
        raise UsageError("--api-key-env needs --base-url: a key belongs to one endpoint")
    return options


def limits(args: Namespace) -> Limits:
    """The limits that a command line sets.

    Raises:
        UsageError: one is not above 0.
    """
    given: Limits = {}
    if args.max_turns is not None:
        given["maxTurns"] = args.max_turns
    if args.timeout_seconds is not None:
        given["timeoutSeconds"] = args.timeout_seconds
    if args.max_cost is not None:
        given["maxCost"] = args.max_cost
    for option, value in (
        ("--max-turns", args.max_turns),
        ("--timeout-seconds", args.timeout_seconds),
        ("--max-cost", args.max_cost),
    ):
        if value is not None and not 0 < value < math.inf:
            raise UsageError(f"{option} must be a number above 0")
    return given


def key_for(base_url: str, key_variable: str | None, env: Mapping[str, str]) -> str:
    """The key to send to `base_url`; empty: the SDK sends the word `none`.

    A key is never sent to an address that it is not meant for.

    Raises:
        UsageError: the named variable is not set.
    """
    if key_variable:
        if not env.get(key_variable):
            raise UsageError(f"--api-key-env: {key_variable} is not set")
        return env[key_variable]
    if key_variable is None:
        for url_variable, default_url, its_key in ENDPOINTS:
            if base_url.rstrip("/") == (env.get(url_variable) or default_url).rstrip("/"):
                return env.get(its_key, "")
    return ""


def session_root(given: str | None, env: Mapping[str, str]) -> Path:
    """Where session logs go: `given`, else DSH_SESSION_ROOT, else the XDG state folder."""
    from pathlib import Path

    from cordisd.session.root import default_root

    return Path(given).absolute() if given else default_root(env)


def log_path(root: Path, session_id: str) -> Path | None:
    """The session's log, or None when the composition keeps none under `root`."""
    from cordisd.errors import CordisError
    from cordisd.session.layout import locate

    try:
        return locate(root, session_id)
    except CordisError:
        return None

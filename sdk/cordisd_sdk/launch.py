"""What a daemon is started with: options, its command line, its environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypedDict

from cordisd.errors import nearest

DEFAULT_PROVIDER: Final = "deepseek-official"
DEFAULT_MODEL: Final = "deepseek-v4-flash"
KEY_FOR_OPEN_ENDPOINTS: Final = "none"


class DaemonOptions(TypedDict, total=False):
    """Options of a client; each has a default."""

    command: Sequence[str]
    """The whole command line of the daemon. Default: `cordisd serve --stdio` of this Python."""
    composition: str | os.PathLike[str]
    """A composition file, or the name of a shipped one; the daemon's own default without it."""
    patches: Sequence[str | os.PathLike[str]]
    """Patch lists to apply to the composition, in order."""
    cwd: str | os.PathLike[str]
    """Where the tools of new sessions start. Default: the current directory."""
    provider: str
    """Default: `deepseek-official`."""
    model: str
    """Default: `deepseek-v4-flash`."""
    max_tokens: int
    """Limit of each model answer; the composition's without it."""
    reasoning_effort: str
    """One of those that the model offers; the composition's without it."""
    preset: str
    """Agent preset of new sessions; the daemon's default agent without it."""
    require_preset: str
    """Digest (`sha256:…`) that the agent of every new session must have; starting is refused otherwise."""
    base_url: str
    """Endpoint of the model; together with `api_key` it replaces any endpoint of the environment."""
    api_key: str
    """Key for `base_url`; no key of the environment is ever sent there."""
    session_root: str | os.PathLike[str]
    """Where the session logs go (`DSH_SESSION_ROOT`)."""
    env: Mapping[str, str | None]
    """Changes to the daemon's environment, which is this process's; None removes a variable."""
    on_stderr: Callable[[str], None]
    """Called with each line that the daemon writes to stderr. It must not raise."""
    start_timeout_s: float
    """For starting and `initialize`. Default: 30."""
    request_timeout_s: float
    """For every request that does not say otherwise. Default: 60."""
    shutdown_timeout_s: float
    """For each step of closing: the shutdown request, the exit, SIGTERM. Default: 2."""
    max_frame_bytes: int
    """Longest line accepted from the daemon. Default: 64 MiB, or more if the daemon announces more."""


def check_options(options: DaemonOptions) -> None:
    """Raise `TypeError` for an option that does not exist, or that needs another one."""
    for name in options.keys() - DaemonOptions.__annotations__.keys():
        raise TypeError(f"unknown option {name!r}{nearest(name, DaemonOptions.__annotations__)}")
    if "api_key" in options and "base_url" not in options:
        raise TypeError("api_key needs base_url: a key belongs to one endpoint")
    if "command" in options and "patches" in options:
        raise TypeError("patches go into the command line, and command is the whole of it")


def command_line(options: DaemonOptions) -> list[str]:
    """The daemon's argv."""
    if "command" in options:
        return list(options["command"])
    # -P: without it Python would import modules that lie in the current directory, a workspace for instance.
    argv = [sys.executable, "-P", "-m", "cordisd", "serve", "--stdio"]
    if "composition" in options:
        argv.append(_composition_argument(options["composition"]))
    for patch in options.get("patches", ()):
        argv += ["--patch", os.path.abspath(patch)]
    return argv


def environment(options: DaemonOptions) -> dict[str, str]:
    """The daemon's environment."""
    env = dict(os.environ)
    env["DSH_CWD"] = workspace(options)
    if "session_root" in options:
        env["DSH_SESSION_ROOT"] = os.path.abspath(options["session_root"])
    if "base_url" in options:
        for pair in ("OPENAI", "DEEPSEEK"):  # a provider may be bound to either
            env[f"{pair}_BASE_URL"] = options["base_url"]
            env[f"{pair}_API_KEY"] = options.get("api_key") or KEY_FOR_OPEN_ENDPOINTS
    for name, value in options.get("env", {}).items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value
    return env


def workspace(options: DaemonOptions) -> str:
    """The absolute directory in which the tools start."""
    return os.path.abspath(options.get("cwd", "."))


def _composition_argument(composition: str | os.PathLike[str]) -> str:
    is_name = isinstance(composition, str) and os.sep not in composition
    if is_name and not os.fspath(composition).endswith((".yml", ".yaml")):
        return os.fspath(composition)
    return os.path.abspath(composition)

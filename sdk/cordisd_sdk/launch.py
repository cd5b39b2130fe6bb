"""What a client is told: how its daemon is started, or where it is found."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypedDict

from cordisd.errors import nearest
from cordisd_sdk.address import UnixAddress, parse_url

KEY_FOR_OPEN_ENDPOINTS: Final = "none"
PROGRAM: Final = (sys.executable, "-P", "-m", "cordisd")
"""-P: without it Python would import modules that lie in the current directory, a workspace for instance."""


class DaemonOptions(TypedDict, total=False):
    """Options of a client; each has a default."""

    url: str
    """A daemon that others run: `unix:/run/cordisd.sock` or `tcp://127.0.0.1:7000`. Closing the client leaves
    it and its sessions alone. Without it the client has a daemon of its own."""
    token: str
    """What a daemon on TCP asks to be shown."""
    token_file: str | os.PathLike[str]
    """A file that holds the token, the same as the daemon's `--token-file`."""
    spawn: bool
    """Start a daemon at the `unix:` URL if none listens there. It outlives this client; everybody who gives
    the same URL shares it. Of many who start it at once, one does. Its stderr goes to a file beside the
    socket: its path and `.log`.

    `composition`, `patches`, `env`, `base_url`, `api_key`, `session_root` and this process's environment are
    those of whoever starts it. A client that finds it running gets it as it is, except that `require_preset`
    refuses another agent than the one that is meant."""
    exit_when_idle_s: float
    """A daemon that `spawn` starts ends when for so long nobody was connected and no session ran.
    Default: 300."""
    command: Sequence[str]
    """The whole command line of the daemon. Default: `cordisd serve --stdio` of this Python."""
    composition: str | os.PathLike[str]
    """A composition file, or the name of a shipped one; the daemon's own default without it."""
    patches: Sequence[str | os.PathLike[str]]
    """Patch lists to apply to the composition, in order."""
    cwd: str | os.PathLike[str]
    """Where the tools of new sessions start, on the daemon's machine. Default: the current directory."""
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
    """For starting or connecting, and `initialize`. Default: 30."""
    request_timeout_s: float
    """For every request that does not say otherwise. Default: 60."""
    shutdown_timeout_s: float
    """For each step of closing: the shutdown request, the exit, SIGTERM; or the last bytes. Default: 2."""
    max_frame_bytes: int
    """Longest line accepted from the daemon. Default: 64 MiB, or more if the daemon announces more."""


FOR_URLS: Final = ("token", "token_file", "spawn", "exit_when_idle_s")
FOR_OWN_DAEMONS: Final = (
    "command",
    "composition",
    "patches",
    "base_url",
    "api_key",
    "session_root",
    "env",
    "on_stderr",
    "exit_when_idle_s",
)
DEFAULT_IDLE_S: Final = 300.0
PATH_VARIABLES: Final = ("PYTHONPATH", "DSH_SESSION_ROOT")


def check_options(options: DaemonOptions) -> None:
    """Go on with options that make sense.

    Raises:
        TypeError: one does not exist, or needs another one.
        SdkError: `url` is none.
    """
    for name in options.keys() - DaemonOptions.__annotations__.keys():
        raise TypeError(f"unknown option {name!r}{nearest(name, DaemonOptions.__annotations__)}")
    if "api_key" in options and "base_url" not in options:
        raise TypeError("api_key needs base_url: a key belongs to one endpoint")
    if "command" in options and "patches" in options:
        raise TypeError("patches go into the command line, and command is the whole of it")
    if "token" in options and "token_file" in options:
        raise TypeError("give token or token_file, not both")
    address = parse_url(options["url"]) if "url" in options else None
    if address is None:
        _refuse(options, FOR_URLS, "needs a url")
    elif options.get("spawn"):
        if not isinstance(address, UnixAddress):
            raise TypeError("spawn needs a unix: url")
        _refuse(options, ("command", "on_stderr", "token", "token_file"), "does not go with spawn")
    else:
        _refuse(options, FOR_OWN_DAEMONS, "is for a daemon that this client starts, and url names another's")


def command_line(options: DaemonOptions) -> list[str]:
    """The daemon's argv."""
    if "command" in options:
        return list(options["command"])
    return [*PROGRAM, "serve", "--stdio", *_composition_arguments(options)]


def shared_command_line(options: DaemonOptions, path: str) -> list[str]:
    """The argv of a daemon that serves whoever connects to the socket at `path`."""
    idle_s = options.get("exit_when_idle_s", DEFAULT_IDLE_S)
    place = ["--socket", path, "--exit-when-idle", f"{idle_s:g}"]
    return [*PROGRAM, "serve", *place, *_composition_arguments(options)]


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


def shared_environment(options: DaemonOptions) -> dict[str, str]:
    """The environment of a daemon that does not run in this process's directory."""
    env = environment(options)
    for name in PATH_VARIABLES:
        if env.get(name):
            env[name] = os.pathsep.join(os.path.abspath(part) for part in env[name].split(os.pathsep))
    return env


def workspace(options: DaemonOptions) -> str:
    """The absolute directory in which the tools start."""
    return os.path.abspath(options.get("cwd", "."))


def _refuse(options: DaemonOptions, names: Sequence[str], why: str) -> None:
    for name in names:
        if name in options:
            raise TypeError(f"{name} {why}")


def _composition_arguments(options: DaemonOptions) -> list[str]:
    argv = [_composition_argument(options["composition"])] if "composition" in options else []
    for patch in options.get("patches", ()):
        argv += ["--patch", os.path.abspath(patch)]
    return argv


def _composition_argument(composition: str | os.PathLike[str]) -> str:
    is_name = isinstance(composition, str) and os.sep not in composition
    if is_name and not os.fspath(composition).endswith((".yml", ".yaml")):
        return os.fspath(composition)
    return os.path.abspath(composition)

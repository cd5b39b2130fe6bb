"""Where a daemon serves: opens the sockets that its command line and systemd name."""

from __future__ import annotations

import os
from collections.abc import MutableMapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from cordisd.errors import ListenError

if TYPE_CHECKING:  # most daemons serve stdio only, and `socket` costs 5 ms
    from cordisd.rpc.listen import Listener

_ACTIVATION: Final = ("LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES")


class Service(NamedTuple):
    """Where a daemon serves, and for how long. `token` is what TCP clients have to show."""

    stdio: bool
    listeners: Sequence[Listener] = ()
    token: str | None = None
    idle_exit_s: float | None = None
    """End when nobody was connected and no session ran for this long; None: never."""


def open_service(
    *,
    stdio: bool,
    sockets: Sequence[Path],
    addresses: Sequence[str],
    token_file: Path | None,
    idle_exit_s: float | None,
    environ: MutableMapping[str, str],
) -> Service:
    """The service with its sockets open. What `environ` says of systemd's sockets is taken out of it.

    Raises:
        ListenError: there is nothing to serve on, or one place cannot be had: then none is open.
    """
    is_activated = environ.get("LISTEN_PID") == str(os.getpid())
    given = {name: environ.pop(name) for name in _ACTIVATION if name in environ}  # not for the tools
    if not (sockets or addresses or is_activated):
        if not stdio:
            raise ListenError("nothing to serve on: give --stdio, --socket PATH or --listen HOST:PORT")
        return Service(stdio)
    from cordisd.rpc.listen import inherited_listeners, listen_on_address, listen_on_path, read_token

    token = read_token(token_file) if token_file is not None else None
    if addresses and token is None:
        raise ListenError("--listen needs --token-file: whoever connects can run commands as this user")
    listeners: list[Listener] = []
    try:
        if is_activated:
            listeners += inherited_listeners(given)
        for path in sockets:
            listeners.append(listen_on_path(path))
        for address in addresses:
            listeners.append(listen_on_address(address))
        if token is None and not all(listener.is_local for listener in listeners):
            raise ListenError("systemd has handed over a TCP socket: that needs --token-file")
    except BaseException:
        for listener in listeners:
            listener.close()
        raise
    return Service(stdio, listeners, token, idle_exit_s)

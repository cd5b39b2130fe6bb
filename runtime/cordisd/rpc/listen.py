"""Sockets that clients connect to: Unix sockets, TCP, and those that systemd hands over.

Whoever may connect may have commands run as the daemon's user. So a Unix socket is this user's alone, and a
TCP connection is good for nothing until it has shown the token.
"""

from __future__ import annotations

import asyncio
import fcntl
import ipaddress
import logging
import os
import socket
import stat
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cordisd.errors import ListenError

logger = logging.getLogger(__name__)

BACKLOG: Final = 512
FIRST_INHERITED_FD: Final = 3
"""Where systemd begins (`sd_listen_fds(3)`)."""
MAX_SOCKET_PATH_BYTES: Final = 107
MIN_TOKEN_LENGTH: Final = 16
_FAMILIES: Final = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6)
_PAUSE_S: Final = 0.5
"""How long no connection is accepted after there was no descriptor for one."""
_ALONE_S: Final = 5.0
"""How long to wait while another process holds the lock of a socket's folder."""


class Listener:
    """Accepts connections on one socket; `on_connect` gets each. `url` is where clients find it."""

    def __init__(self, listening: socket.socket, path: Path | None = None) -> None:
        self.is_local = listening.family == socket.AF_UNIX
        """Whether the kernel tells who connects; else a token has to."""
        self.url = _url(listening)
        self._socket = listening
        self._path = path  # ours to remove
        self._made = path.lstat() if path is not None else None
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, on_connect: Callable[[socket.socket], None]) -> None:
        """Accept from now on."""
        self._socket.setblocking(False)
        self._on_connect = on_connect
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket, self._accept)

    def close(self) -> None:
        """Accept no more, and take the socket's file away, unless somebody has put another one there.

        Closing twice is harmless.
        """
        if self._loop is not None:
            self._loop.remove_reader(self._socket)
            self._loop = None
        # First the file: nobody replaces it as a stale one while there is somebody listening.
        if self._path is not None and self._made is not None:
            try:
                if os.path.samestat(self._path.lstat(), self._made):
                    self._path.unlink()
            except OSError:
                pass  # it is gone already
            self._path = None
        self._socket.close()

    def _accept(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except (BlockingIOError, ConnectionAbortedError, InterruptedError):
            return
        except OSError as error:
            logger.error("%s: cannot accept a connection: %s", self.url, error.strerror)
            if self._loop is not None:
                self._loop.remove_reader(self._socket)
                self._loop.call_later(_PAUSE_S, self._go_on)
            return
        if self.is_local and (uid := peer_uid(connection)) not in (os.geteuid(), 0):
            logger.warning("%s: a connection of user %d was refused", self.url, uid)
            connection.close()
            return
        if not self.is_local:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._on_connect(connection)

    def _go_on(self) -> None:
        if self._loop is not None:
            self._loop.add_reader(self._socket, self._accept)


def peer_uid(connection: socket.socket) -> int:
    """The user at the other end of a Unix socket, as the kernel knows it."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    uid: int = struct.unpack("3i", credentials)[1]
    return uid


def listen_on_path(path: Path) -> Listener:
    """A Unix socket at `path`, mode 0600. What a daemon has left there that is gone is replaced.

    Raises:
        ListenError: a daemon listens there, or something there is no socket, or it cannot be made.
    """
    path = Path(os.path.abspath(path))
    if len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES:
        raise ListenError(f"{path}: the path of a socket has at most {MAX_SOCKET_PATH_BYTES} bytes")
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _alone_in(path.parent):
            _remove_stale(path)
            mask = os.umask(0o177)
            try:
                listening.bind(os.fspath(path))
            finally:
                os.umask(mask)
            listening.listen(BACKLOG)
            return Listener(listening, path)
    except OSError as error:
        listening.close()
        raise ListenError(f"{path}: cannot listen there: {error.strerror}") from error
    except BaseException:
        listening.close()
        raise


def listen_on_address(address: str) -> Listener:
    """A TCP socket at `HOST:PORT`; without HOST on the loopback, port 0 is one that is free.

    Raises:
        ListenError: the address is not of that form, or cannot be had.
    """
    host, colon, digits = address.rpartition(":")
    if not (colon and digits.isascii() and digits.isdigit() and len(digits) <= 5 and int(digits) <= 0xFFFF):
        raise ListenError(f"{address}: an address is HOST:PORT or :PORT, for example 127.0.0.1:7000")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host, int(digits), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:  # a name of more than 63 characters cannot be encoded
        raise ListenError(f"{address}: no such address: {error}") from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise ListenError(f"{address}: cannot listen there: {error.strerror}") from error
    if not ipaddress.ip_address(listening.getsockname()[0]).is_loopback:
        logger.warning("%s: reachable from other machines, and nothing on it is encrypted", address)
    return Listener(listening)


def inherited_listeners(environ: Mapping[str, str]) -> list[Listener]:
    """The sockets that systemd, or who works like it, has opened for this process.

    Raises:
        ListenError: there is none, or one is no listening stream socket.
    """
    count = environ.get("LISTEN_FDS", "")
    if not (count.isascii() and count.isdigit() and int(count) > 0):
        raise ListenError(f"LISTEN_FDS must be a number of sockets, not {count!r}")
    return [_inherited(fd) for fd in range(FIRST_INHERITED_FD, FIRST_INHERITED_FD + int(count))]


def _inherited(fd: int) -> Listener:
    try:
        found = socket.socket(fileno=fd)
        is_stream = found.type == socket.SOCK_STREAM and found.family in _FAMILIES
        if not is_stream or not found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            raise ListenError(f"LISTEN_FDS: fd {fd} is no listening stream socket")
    except OSError as error:
        raise ListenError(f"LISTEN_FDS: fd {fd}: {error.strerror}") from error
    found.set_inheritable(False)
    return Listener(found)


def read_token(path: Path) -> str:
    """The token in a file, without the white space around it.

    Raises:
        ListenError: the file cannot be read, or holds none.
    """
    try:
        token = path.read_text("utf-8").strip()
        is_open = path.stat().st_mode & 0o077
    except (OSError, UnicodeDecodeError) as error:
        raise ListenError(f"{path}: the token cannot be read: {error}") from error
    if len(token) < MIN_TOKEN_LENGTH:
        raise ListenError(f"{path}: a token has at least {MIN_TOKEN_LENGTH} characters")
    if is_open:
        logger.warning("%s: other users can read the token", path)
    return token


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """No other daemon looks for a stale socket in `folder` meanwhile.

    Raises:
        ListenError: something else has locked it for long.
        OSError: there is no such folder, or it may not be read.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        end_s = time.monotonic() + _ALONE_S
        while not _lock(fd):
            if time.monotonic() > end_s:
                raise ListenError(f"{folder}: another process holds the lock of this folder")
            time.sleep(0.01)
        yield
    finally:
        os.close(fd)


def _lock(fd: int) -> bool:
    """Whether the lock is ours, or there is none to be had, as on NFS."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def _remove_stale(path: Path) -> None:
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise ListenError(f"{path}: something that is no socket is there, and stays")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            path.unlink()
        except (TimeoutError, BlockingIOError):  # its backlog is full
            raise ListenError(f"{path}: a daemon listens there already, though it does not answer") from None
        else:
            raise ListenError(f"{path}: a daemon listens there already")


def _url(listening: socket.socket) -> str:
    name = listening.getsockname()
    if listening.family == socket.AF_UNIX:
        return f"unix:{os.fsdecode(name).replace(chr(0), '@')}"  # as others write abstract names
    host, port = name[:2]
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"

"""The daemon's end of a pseudo-terminal."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import struct
import termios
from collections.abc import Callable
from contextlib import suppress

BYTES_PER_TURN = 64 * 1024
"""The most that is read in one turn of the event loop, so that a flood leaves turns to the others."""

_READ_BYTES = 4095
"""The most that one read of a PTY master returns; less means that it is drained."""
_TIOCSIG = 0x40045436


class Pty:
    """The master of a PTY, read by the running loop until the last process has closed its other end.

    `take` gets what the programs print. `hang_up` is called at most once, when nothing more can come.
    """

    def __init__(
        self, fd: int, rows: int, columns: int, take: Callable[[bytes], None], hang_up: Callable[[], None]
    ) -> None:
        self._fd = fd
        self._size = struct.pack("HHHH", rows, columns, 0, 0)
        self._modes = termios.tcgetattr(fd)
        self._take = take
        self._hang_up = hang_up
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(fd, self._read)

    def type(self, keys: bytes) -> bool:
        """Have the programs read `keys`; False if not all of them find room."""
        try:
            return os.write(self._fd, keys) == len(keys)
        except OSError:
            return False

    def restore(self) -> None:
        """Undo what programs have done to modes and size. A terminal that hung up has none."""
        with suppress(OSError, termios.error):
            termios.tcsetattr(self._fd, termios.TCSANOW, self._modes)
            fcntl.ioctl(self._fd, termios.TIOCSWINSZ, self._size)

    def interrupt(self) -> None:
        """SIGINT to the foreground process group, sent by the terminal itself."""
        with suppress(OSError):
            fcntl.ioctl(self._fd, _TIOCSIG, signal.SIGINT)

    def foreground(self) -> int | None:
        """The process group that has the terminal; None if it has hung up."""
        try:
            return os.tcgetpgrp(self._fd)
        except OSError:
            return None

    def close(self) -> None:
        """Release it; what still uses the terminal gets SIGHUP."""
        self._loop.remove_reader(self._fd)
        os.close(self._fd)

    def _read(self) -> None:
        room = BYTES_PER_TURN
        while room > 0:
            try:
                data = os.read(self._fd, room)
            except BlockingIOError:
                return
            except OSError:  # EIO: the last process has closed the terminal
                data = b""
            if not data:
                self._loop.remove_reader(self._fd)
                self._hang_up()
                return
            self._take(data)
            if len(data) < _READ_BYTES:
                return
            room -= len(data)

"""Which descriptors a sleeping process waits to read, as /proc tells it."""

from __future__ import annotations

import errno
import os
import platform
import re
import struct
from collections.abc import Iterator

_MAX_DESCRIPTORS = 1024
_MAX_FDINFO_CHARS = 64 * 1024
_POLLIN = 1
_POLLED = struct.Struct("@ihh")
_EPOLL_TARGET = re.compile(r"^tfd:\s*(\d+) events:\s*([0-9a-f]+)", re.MULTILINE)

_NUMBERS = {
    "x86_64": {0: "read", 7: "poll", 271: "poll", 23: "select", 270: "select", 232: "epoll", 281: "epoll"},
    "aarch64": {63: "read", 73: "poll", 72: "select", 22: "epoll"},
    "riscv64": {63: "read", 73: "poll", 72: "select", 22: "epoll"},
}
"""Numbers of the system calls, with and without a signal mask."""


def waits_to_read(pid: int) -> list[int] | None:
    """The descriptors whose input the main thread of a process waits for; empty if it waits for none.

    None where the kernel, or a ptrace restriction, does not tell.
    """
    numbers = _NUMBERS.get(platform.machine())
    if numbers is None:
        return None
    try:
        with open(f"/proc/{pid}/syscall") as file:
            number, *arguments = file.read().split()
        kind = numbers.get(int(number)) if number.isdigit() else None
        return list(_descriptors(pid, kind, [int(argument, 16) for argument in arguments]))
    except (FileNotFoundError, ProcessLookupError):
        return None if os.path.exists(f"/proc/{pid}") else []
    except OSError:
        return None


def _descriptors(pid: int, kind: str | None, arguments: list[int]) -> Iterator[int]:
    match kind:
        case "read":
            yield arguments[0]
        case "poll":
            polled = _memory(pid, arguments[0], _POLLED.size * min(arguments[1], _MAX_DESCRIPTORS))
            for descriptor, events, _ in _POLLED.iter_unpack(polled):
                if events & _POLLIN and descriptor >= 0:
                    yield descriptor
        case "select" if arguments[1]:
            n_descriptors = min(arguments[0], _MAX_DESCRIPTORS)
            bits = int.from_bytes(_memory(pid, arguments[1], (n_descriptors + 7) // 8), "little")
            yield from (descriptor for descriptor in range(n_descriptors) if bits >> descriptor & 1)
        case "epoll":
            with open(f"/proc/{pid}/fdinfo/{arguments[0]}") as file:
                for descriptor_text, events_text in _EPOLL_TARGET.findall(file.read(_MAX_FDINFO_CHARS)):
                    if int(events_text, 16) & _POLLIN:
                        yield int(descriptor_text)


def _memory(pid: int, address: int, n_bytes: int) -> bytes:
    # A foreign user could have the page come from a file system of his own, and let us wait for ever.
    if os.stat(f"/proc/{pid}").st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "not ours")
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
        return os.pread(file.fileno(), n_bytes, address)

"""What Linux lets a process say of itself. Importing ctypes takes 7 ms: not for the daemon's start."""

from __future__ import annotations

import ctypes
import os
import struct

_PDEATHSIG, _DUMPABLE, _NAME, _CHILD_SUBREAPER = 1, 4, 15, 36
_CAPABILITY_VERSION = 0x20080522
_libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """Be the next parent of every orphan below."""
    _libc.prctl(_CHILD_SUBREAPER, 1, 0, 0, 0)


def ask_for_signal_at_parents_death(number: int) -> None:
    """A change of user takes this back."""
    _libc.prctl(_PDEATHSIG, number, 0, 0, 0)


def forbid_tracing() -> None:
    """Memory, environment and descriptors are nobody's to look at but root's."""
    _libc.prctl(_DUMPABLE, 0, 0, 0, 0)


def set_name(name: bytes) -> None:
    """What `ps` shows, at most 15 bytes."""
    _libc.prctl(_NAME, name, 0, 0, 0)


def keep_capabilities(kept: int) -> None:
    """Give up, for good, all capabilities but those of the bits in `kept` that the process has."""
    header = struct.pack("Ii", _CAPABILITY_VERSION, 0)
    sets = ctypes.create_string_buffer(24)
    if _libc.capget(header, sets) != 0:
        return
    low_effective, low_permitted, _, high_effective, high_permitted, _ = struct.unpack("6I", sets.raw)
    low, high = kept & 0xFFFFFFFF, kept >> 32
    fewer = (low_effective & low, low_permitted & low, 0, high_effective & high, high_permitted & high, 0)
    _libc.capset(header, struct.pack("6I", *fewer))


def enter_namespace(handle: int) -> None:
    """Go into the namespace of an open file of /proc/PID/ns.

    Raises:
        OSError: it is not allowed.
    """
    if _libc.setns(handle, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))

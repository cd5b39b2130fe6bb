"""Overwriting a file in place, in a process of its own: it goes on when the daemon is killed.

The daemon runs this file as a script with the descriptors of the target and of its old and new content.
These are whole before the script starts, so the target is old if it never starts, and soon new if it does.
Only the standard library, and little of it: the script has to be quick to start.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys

_BLOCK_BYTES = 1 << 20


def overwrite(descriptor: int, old: bytes, new: bytes) -> None:
    """Make `new` the content of the open file, which is `old`; its mode stays.

    Raises:
        OSError: the file has its old content again. ESTALE: it was not `old`, and was not touched. EUCLEAN:
            its old content could not be put back.
    """
    if read_all(descriptor) != old:
        raise OSError(errno.ESTALE, "not the content that was to be overwritten")
    mode = os.fstat(descriptor).st_mode
    try:
        # What lies behind the old end goes first: a full disk shows while the old bytes are whole.
        write_at(descriptor, new[len(old) :], len(old))
        write_at(descriptor, new[: len(old)], 0)
        os.ftruncate(descriptor, len(new))
        sync(descriptor)
    except OSError:
        try:
            put_back(descriptor, old)
        except OSError as failure:
            raise OSError(errno.EUCLEAN, "neither the new nor the old content could be written") from failure
        raise
    finally:
        _restore_mode(descriptor, mode)


def put_back(descriptor: int, old: bytes) -> None:
    """Make `old` the content of the open file, whatever it is now."""
    write_at(descriptor, old, 0)
    os.ftruncate(descriptor, len(old))


def read_all(descriptor: int) -> bytes:
    """The content of the open file, from its beginning."""
    blocks, offset = [], 0
    while block := os.pread(descriptor, _BLOCK_BYTES, offset):
        blocks.append(block)
        offset += len(block)
    return b"".join(blocks)


def write_at(descriptor: int, content: bytes, offset: int) -> None:
    """Write all of `content` at `offset`."""
    rest = memoryview(content)
    while rest:
        n_written = os.pwrite(descriptor, rest, offset)
        rest = rest[n_written:]
        offset += n_written


def sync(descriptor: int) -> None:
    """Wait until the file is on disk, where the file system can tell."""
    try:
        os.fsync(descriptor)
    except OSError as failure:
        if failure.errno != errno.EINVAL:  # some file systems have no fsync
            raise


def _restore_mode(descriptor: int, mode: int) -> None:
    if os.fstat(descriptor).st_mode != mode:  # writing cleared the setuid bit
        with contextlib.suppress(PermissionError):  # not our file
            os.fchmod(descriptor, mode & 0o7777)


def main(arguments: list[str]) -> None:
    """Overwrite, and write 0 or an error number. Arguments: target, contents, how many of these are old."""
    target, contents, n_old = map(int, arguments)
    both = read_all(contents)
    number = 0
    try:
        overwrite(target, both[:n_old], both[n_old:])
    except OSError as failure:
        number = failure.errno or errno.EIO
    sys.stdout.write(f"{number}\n")


if __name__ == "__main__":
    main(sys.argv[1:])

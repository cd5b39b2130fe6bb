"""Failures of the file system in words: short, stable, without errno strings or internal names."""

from __future__ import annotations

import errno
import itertools
import os
import stat

from cordisd.errors import ToolError, nearest

_REASONS = {
    errno.EACCES: "permission denied",
    errno.EPERM: "the operation is not permitted",
    errno.ELOOP: "its symbolic links form a loop",
    errno.ENAMETOOLONG: "the name is too long",
    errno.EISDIR: "it is a directory",
    errno.EEXIST: "it already exists",
    errno.ENOSPC: "no space is left on the disk",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EFBIG: "the file would be larger than allowed",
    errno.EIO: "the disk reported an input/output error",
    errno.EMFILE: "too many files are open",
    errno.ENFILE: "too many files are open",
    errno.ENOMEM: "there is not enough memory",
    errno.ETXTBSY: "it is a program that is running",
    errno.EBUSY: "it is in use",
    errno.EAGAIN: "it has nothing to read now",
    errno.ENXIO: "it is not a regular file",
    errno.ESTALE: "it changed while it was in use",
}

_MAX_PATH_CHARACTERS = 240
_MAX_NAMES_COMPARED = 500


def reason_of(failure: OSError) -> str:
    """Why the operation failed, as a clause: `permission denied`."""
    return _REASONS.get(failure.errno or 0, "the file system refused it")


def shown(path: str) -> str:
    """`path` for an error: control characters escaped, an endless one cut in the middle."""
    visible = escape_controls(path)
    if len(visible) <= _MAX_PATH_CHARACTERS:
        return visible
    half = _MAX_PATH_CHARACTERS // 2
    return f"{visible[:half]}…{visible[-half:]}"


def escape_controls(name: str) -> str:
    """`name` on one line: control characters and undecodable bytes as backslash escapes."""
    if name.isprintable():
        return name
    return "".join(char if char.isprintable() or char == "\u00a0" else _escaped(char) for char in name)


def _escaped(char: str) -> str:
    if "\udc80" <= char <= "\udcff":  # how Python spells a byte of a name that is not UTF-8
        return f"\\x{ord(char) - 0xDC00:02x}"
    return char.encode("unicode_escape").decode("ascii")


def failed(failure: OSError, action: str, path: str) -> ToolError:
    """The error for the model after `action` ("view", "edit", "create") failed on `path`."""
    match failure.errno:
        case errno.ENOENT:
            return _missing(path)
        case errno.ENOTDIR:
            return ToolError(f"Cannot {action} {shown(path)}: {_blocking_file(path)} is not a directory.")
        case _:
            return ToolError(f"Cannot {action} {shown(path)}: {reason_of(failure)}.")


def not_regular(path: str, mode: int) -> ToolError:
    """The error for reading or changing what has the file type of `mode`."""
    if stat.S_ISDIR(mode):
        return ToolError(f"{shown(path)} is a directory; only `view` works on directories.")
    return ToolError(
        f"{shown(path)} is a {special_kind(mode)}, neither a regular file nor a directory; it was not opened."
    )


def special_kind(mode: int) -> str:
    """What a file that is neither regular nor a directory is."""
    if stat.S_ISFIFO(mode):
        return "named pipe"
    if stat.S_ISSOCK(mode):
        return "socket"
    return "device"


def _missing(path: str) -> ToolError:
    if os.path.islink(path):
        return ToolError(f"{shown(path)} is a symbolic link whose target does not exist.")
    parent, name = os.path.split(path.rstrip("/"))
    if os.path.isdir(parent):
        return ToolError(
            f"The path {shown(path)} does not exist{_similar(parent, name)}. "
            f"Give the path of an existing file or directory."
        )
    while parent not in ("", "/") and not os.path.isdir(parent):
        parent = os.path.dirname(parent)
    return ToolError(
        f"The path {shown(path)} does not exist; the part of it that exists is {shown(parent or '/')}."
    )


def _similar(parent: str, name: str) -> str:
    try:
        with os.scandir(parent) as entries:
            names = [entry.name for entry in itertools.islice(entries, _MAX_NAMES_COMPARED)]
    except OSError:  # a suggestion is a courtesy; the folder may be unreadable
        return ""
    return shown(nearest(name, names))


def _blocking_file(path: str) -> str:
    """The first part of `path` that is used as a directory but is not one."""
    head = ""
    for part in path.split("/")[1:]:
        head = f"{head}/{part}"
        if not os.path.isdir(head):
            break
    return shown(head.rstrip("/"))

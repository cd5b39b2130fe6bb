"""Where a session's log lies: folder names made of working directories and session ids (`protocol.md` 4.1).

Names are counted in UTF-16 units, as the published writers do, so that both find each other's logs.
"""

from __future__ import annotations

import re
from typing import Final

from cordisd.errors import InvalidParamsError

LOG_NAME: Final = "session.jsonl"
TEMPORARY_SUFFIX: Final = ".tmp"
CUT_SUFFIX: Final = ".cut"
"""Of what a repair cut off a log."""
MAX_NAME_BYTES: Final = 255
NO_CWD: Final = "_no-cwd"

_separators = re.compile(r"[/\\:]+")
_unsafe = re.compile(r"[^A-Za-z0-9._-]")
_key_wrap = "--"


def project_key(cwd: str | None) -> str:
    """The folder of all sessions that started in `cwd`. Lossy: two directories may share one.

    Raises:
        InvalidParamsError: `cwd` is empty.
    """
    if cwd is None:
        return NO_CWD
    if not cwd:
        raise InvalidParamsError("cwd must not be empty")
    key = _escape(_separators.sub("-", cwd)).lstrip("-") or "root"
    return _key_wrap + key[: MAX_NAME_BYTES - 2 * len(_key_wrap)] + _key_wrap


def is_project_key(name: str) -> bool:
    """Whether a folder of this name is one of `project_key`."""
    return name == NO_CWD or (name.startswith(_key_wrap) and name.endswith(_key_wrap))


def encode_segment(session_id: str) -> str:
    """The folder of one session. Different ids have different folders.

    Raises:
        InvalidParamsError: the id is empty, or its encoding is longer than a file name may be.
    """
    if not session_id:
        raise InvalidParamsError("sessionId must not be empty")
    if session_id in (".", ".."):
        return session_id.replace(".", "~002E")
    name = _escape(session_id)
    if len(name) > MAX_NAME_BYTES:
        raise InvalidParamsError(
            f"sessionId is too long to be stored: {len(name)} bytes once encoded as a folder name, "
            f"at most {MAX_NAME_BYTES} are allowed"
        )
    return name


def _escape(text: str) -> str:
    return _unsafe.sub(lambda match: _units(match.group()), text)


def _units(character: str) -> str:
    encoded = character.encode("utf-16-be", "surrogatepass").hex().upper()
    return "".join("~" + encoded[at : at + 4] for at in range(0, len(encoded), 4))

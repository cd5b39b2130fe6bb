"""The working directory in recorded traffic: written as `{{cwd}}`, so that a replay can work elsewhere.

A literal `{{cwd}}` is written `{{cwd!}}`, that one `{{cwd!!}}`, and so on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from cordisd.replay.secrets import SECRET, spellings

TOKEN: Final = "{{cwd}}"
_PLAIN_PATH: Final = re.compile(r"/[A-Za-z0-9_./+@=,~:-]*")
_WRITTEN: Final = re.compile(r"\{\{cwd(!*)\}\}")
_WRITTEN_BYTES: Final = re.compile(rb"\{\{cwd(!*)\}\}")
# Not within a longer name: /tmp/w is no part of /tmp/w2. The arguments of a tool call are JSON in a string,
# where a path at the beginning of a line stands behind \n, and one behind a letter of Greece behind \u03b1.
_BEFORE: Final = r"(?:(?<![A-Za-z0-9_.-])|(?<=\\[bfnrt])|(?<=\\u[0-9A-Fa-f]{4}))"
_AFTER: Final = r"(?![A-Za-z0-9_-])"


class Workspace:
    """Replaces one directory by its token, and back; and secrets by theirs, for good."""

    def __init__(self, cwd: str, secrets: Sequence[str] = ()) -> None:
        self.cwd = cwd
        secret = "|".join(re.escape(one) for one in spellings(secrets)) or "(?!)"
        pattern = rf"(?P<secret>{secret})|(?P<path>{_BEFORE}{re.escape(cwd)}{_AFTER})|\{{\{{cwd!*\}}\}}"
        self.pattern = re.compile(pattern)
        """What is written otherwise."""
        self.pattern_bytes = re.compile(pattern.encode("utf-8", "surrogateescape"))
        self._secret_bytes = re.compile(secret.encode("utf-8", "surrogateescape"))

    @property
    def can_be_replaced(self) -> bool:
        """Whether the path looks the same in every JSON text; the root directory is everywhere."""
        return _PLAIN_PATH.fullmatch(self.cwd) is not None and self.cwd != "/"

    def hide(self, text: str) -> str:
        """`text` with tokens in it."""
        return self.pattern.sub(_token, text)

    def show(self, text: str) -> str:
        """`text` as it was before `hide`, in this directory."""
        return _WRITTEN.sub(lambda match: f"{{{{cwd{match[1][1:]}}}}}" if match[1] else self.cwd, text)

    def show_bytes(self, data: bytes) -> bytes:
        """The same for a piece of a stream."""
        if b"{{cwd" not in data:
            return data
        cwd = self.cwd.encode("utf-8", "surrogateescape")
        return _WRITTEN_BYTES.sub(lambda match: b"{{cwd%b}}" % match[1][1:] if match[1] else cwd, data)

    def redact(self, data: bytes) -> bytes:
        """`data` without secrets, and otherwise as it is."""
        return self._secret_bytes.sub(SECRET.encode(), data)


def token_of(match: re.Match[bytes]) -> bytes:
    """What is written for a match of `Workspace.pattern_bytes`."""
    if match["secret"] is not None:
        return SECRET.encode()
    return TOKEN.encode() if match["path"] is not None else match[0][:-2] + b"!}}"


def _token(match: re.Match[str]) -> str:
    if match["secret"] is not None:
        return SECRET
    return TOKEN if match["path"] is not None else match[0][:-2] + "!}}"

"""The working directory in recorded traffic: written as `{{cwd}}`, so that a replay can work elsewhere.

A literal `{{cwd}}` is written `{{cwd!}}`, that one `{{cwd!!}}`, and so on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from cordisd.replay.secrets import SECRET, spellings

TOKEN: Final = "{{cwd}}"
_PLAIN_PATH: Final = re.compile(r"/[A-Za-z0-9_./+@=,~:-]*")
_WRITTEN: Final = re.compile(r"\{\{cwd(!*)\}\}")
_WRITTEN_BYTES: Final = re.compile(rb"\{\{cwd(!*)\}\}")
# Not within a longer name: /tmp/w is no part of /tmp/w2. The arguments of a tool call are JSON in a string,
# where a path at the beginning of a line stands behind \n, and one behind a letter of Greece behind \u03b1.
# What stands before is looked at behind the first character, which `re` finds much faster by itself.
_START: Final = r"/(?:(?<![A-Za-z0-9_.-]/)|(?<=\\[bfnrt]/)|(?<=\\u[0-9A-Fa-f]{4}/))"
_AFTER: Final = r"(?![A-Za-z0-9_-])"
_LITERAL: Final = "{{cwd"


class Workspace:
    """Replaces one directory by its token, and back; and secrets by theirs, for good."""

    def __init__(self, cwd: str, secrets: Sequence[str] = (), redact: Sequence[str] = ()) -> None:
        self.cwd = cwd
        written = spellings(secrets)
        values = [re.escape(one) for one in written]
        patterns = [*values, *(f"(?:{one})" for one in redact)]
        pattern = "|".join([*patterns, _START + re.escape(cwd[1:]) + _AFTER, r"\{\{cwd!*\}\}"])
        self._pattern = re.compile(pattern)
        self._pattern_bytes = re.compile(_encoded(pattern))
        self._secret_bytes = re.compile(_encoded("|".join(values) or "(?!)"))
        self._signs = (cwd, _LITERAL, *written) if not redact else ("",)
        """One of these is in every text with something to be written otherwise."""
        self._signs_bytes = [_encoded(sign) for sign in self._signs]

    @property
    def can_be_replaced(self) -> bool:
        """Whether the path looks the same in every JSON text; the root directory is everywhere."""
        return _PLAIN_PATH.fullmatch(self.cwd) is not None and self.cwd != "/"

    def hide(self, text: str) -> str:
        """`text` with tokens in it."""
        if not any(sign in text for sign in self._signs):
            return text
        return self._pattern.sub(lambda match: self._token(match[0]), text)

    def hide_bytes(self, data: bytes) -> bytes:
        """The same for bytes of an answer."""
        return self._pattern_bytes.sub(lambda match: self.token_of(match[0]), data)

    def found_in(self, text: str) -> Iterable[re.Match[str]]:
        """What in a text is written otherwise."""
        return self._pattern.finditer(text) if any(sign in text for sign in self._signs) else ()

    def found_in_bytes(self, data: bytes, spaces: Iterable[tuple[int, int]]) -> Iterator[re.Match[bytes]]:
        """What in those parts of an answer is written otherwise."""
        if any(sign in data for sign in self._signs_bytes):
            for start, end in spaces:
                yield from self._pattern_bytes.finditer(data, start, end)

    def token_of(self, found: bytes) -> bytes:
        """What is written for something that was found in bytes."""
        return _encoded(self._token(found.decode("utf-8", "surrogateescape")))

    def _token(self, found: str) -> str:
        if found.startswith(_LITERAL):
            return found[:-2] + "!}}"
        return TOKEN if found == self.cwd else SECRET

    def show(self, text: str) -> str:
        """`text` as it was before `hide`, in this directory."""
        return _WRITTEN.sub(lambda match: f"{{{{cwd{match[1][1:]}}}}}" if match[1] else self.cwd, text)

    def show_bytes(self, data: bytes) -> bytes:
        """The same for a piece of a stream."""
        if b"{{cwd" not in data:
            return data
        cwd = _encoded(self.cwd)
        return _WRITTEN_BYTES.sub(lambda match: b"{{cwd%b}}" % match[1][1:] if match[1] else cwd, data)

    def redact(self, data: bytes) -> bytes:
        """`data`, whole lines of a recording, without the values of secrets, and otherwise as it is.

        Not without what patterns find: one could take a line's own words for it, such as a hash.
        """
        return self._secret_bytes.sub(SECRET.encode(), data)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")

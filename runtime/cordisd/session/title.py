"""The fallback title of a session: the first words of its first prompt (`protocol.md` 3.6)."""

from __future__ import annotations

import re
from typing import NamedTuple

from cordisd.events import JsonObject

_NOISE = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\|\Z)"  # OSC, up to BEL, ST or the end
    r"|\x1b\[[0-?]*[ -/]*[@-~]"  # CSI
    r"|\x1b."  # two-byte escapes
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"  # controls other than tab, LF, CR
    r"|[\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff]",  # invisible, directional
    re.DOTALL,
)


class TitleLimits(NamedTuple):
    """How long a fallback title may be."""

    max_words: int = 5
    max_bytes: int = 40


def fallback_title(content: list[JsonObject], limits: TitleLimits) -> str:
    """A short title for a user message's content blocks; empty when they hold no visible text."""
    text = " ".join(block["text"] for block in content if isinstance(block.get("text"), str))
    words = _NOISE.sub("", text).split()
    title = " ".join(words[: limits.max_words]).encode("utf-8", "replace")[: limits.max_bytes]
    return title.decode("utf-8", "ignore").rstrip()

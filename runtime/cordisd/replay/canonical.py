"""Requests in the form in which they are compared: sorted keys, the working directory and masks as tokens."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cordisd.events import JsonObject, decode_json
from cordisd.replay.paths import Workspace, map_strings


def canonical_json(value: object) -> bytes:
    """JSON that is the same for equal values, and for no others: 1, 1.0 and true differ."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "surrogatepass")


def request_hash(body: JsonObject) -> str:
    """Hexadecimal SHA-256 of a canonical request."""
    return hashlib.sha256(canonical_json(body)).hexdigest()


@dataclass(frozen=True, slots=True)
class Mask:
    """A declared rule: what the pattern finds is written `{{name}}` in requests and results."""

    name: str
    pattern: re.Pattern[str]


class Rules:
    """What is written as a token, for one session: its working directory, then the declared masks."""

    def __init__(self, workspace: Workspace, masks: Sequence[Mask]) -> None:
        self.workspace = workspace
        self._masks = masks

    def text(self, text: str) -> str:
        """`text` as it is compared and recorded."""
        text = self.workspace.hide(text)
        for mask in self._masks:
            text = mask.pattern.sub("{{" + mask.name + "}}", text)
        return text

    def body(self, pieces: Sequence[bytes]) -> JsonObject:
        """The canonical form of a request's JSON body."""
        body: JsonObject = self.value(decode_json(b"".join(pieces)))
        return body

    def value(self, value: Any) -> Any:
        """A JSON value with every string in it as it is compared."""
        return map_strings(value, self.text)

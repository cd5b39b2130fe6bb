"""Requests in the form in which they are compared: sorted keys, the working directory and masks as tokens."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cordisd.events import JsonObject, decode_json
from cordisd.replay.paths import TOKEN, Workspace
from cordisd.replay.secrets import SECRET


def canonical_json(value: object) -> bytes:
    """JSON that is the same for equal values, and for no others: 1, 1.0 and true differ."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "surrogatepass")


def request_hash(body: JsonObject) -> str:
    """Hexadecimal SHA-256 of a canonical request: of its members but the messages, and of their hashes."""
    return RequestHasher().hash(body)


class RequestHasher:
    """Hashes the requests of one conversation; a message that is the same object is hashed once."""

    def __init__(self) -> None:
        self._hashed: list[tuple[object, bytes]] = []

    def hash(self, body: JsonObject) -> str:
        """As `request_hash`."""
        digest = hashlib.sha256(canonical_json({name: body[name] for name in body if name != "messages"}))
        before, self._hashed = self._hashed, []
        for number, message in enumerate(body.get("messages", [])):
            if number < len(before) and before[number][0] is message:
                self._hashed.append(before[number])
            else:
                self._hashed.append((message, hashlib.sha256(canonical_json(message)).digest()))
            digest.update(self._hashed[-1][1])
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Mask:
    """A declared rule: what the pattern finds is written `{{name}}` in requests and results."""

    name: str
    pattern: re.Pattern[str]

    @property
    def token(self) -> str:
        """What stands for the text that was found."""
        return "{{" + self.name + "}}"


def read_masks(patterns: Mapping[str, str]) -> list[Mask]:
    """Masks from their regular expressions by name.

    Raises:
        ValueError: a name or an expression that cannot be used; says which, and why.
    """
    masks = []
    for name, pattern in patterns.items():
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name in ("cwd", "secret"):
            raise ValueError(
                f'the name of mask "{name}" must match [a-z][a-z0-9_]*; cwd and secret are taken'
            )
        try:
            masks.append(Mask(name, re.compile(pattern)))
        except re.error as error:
            raise ValueError(f'mask "{name}": {error}') from None
    for mask in masks:
        if mask.pattern.search(""):
            raise ValueError(f'mask "{mask.name}" matches an empty text')
        for token in (TOKEN, SECRET, *(one.token for one in masks)):
            if mask.pattern.search(token):  # what is recorded would change when it is compared
                raise ValueError(f'mask "{mask.name}" finds too much: it hits the token {token}')
    return masks


class Rules:
    """What is written as a token, for one session: its working directory, then the declared masks."""

    def __init__(self, workspace: Workspace, masks: Sequence[Mask]) -> None:
        self.workspace = workspace
        self._masks = masks
        self._messages: dict[bytes, Any] = {}
        """Messages of the last request in canonical form, by their JSON."""

    def text(self, text: str) -> str:
        """`text` as it is compared and recorded."""
        text = self.workspace.hide(text)
        for mask in self._masks:
            text = mask.pattern.sub(mask.token, text)
        return text

    def body(self, pieces: Sequence[bytes], messages: Sequence[bytes] = ()) -> JsonObject:
        """The canonical form of a request's JSON body.

        Of `messages`, JSON texts that the body ends its messages with, those that the last request had too
        are the same objects: a long conversation is not read again with each request.
        """
        whole, shared = b"".join(pieces), b",".join(messages)
        at = whole.find(shared + b"]") if shared else -1
        if at < 0:
            alone: JsonObject = self.value(decode_json(whole))
            return alone
        body: JsonObject = self.value(decode_json(b"%bnull%b" % (whole[:at], whole[at + len(shared) :])))
        before = self._messages
        self._messages = {
            text: before[text] if text in before else self.value(decode_json(text)) for text in messages
        }
        body["messages"][-1:] = [self._messages[text] for text in messages]
        return body

    def value(self, value: Any) -> Any:
        """A JSON value with every string in it as it is compared; keys are left alone."""
        match value:
            case str():
                return self.text(value)
            case dict():
                return {key: self.value(inner) for key, inner in value.items()}
            case list():
                return [self.value(inner) for inner in value]
        return value

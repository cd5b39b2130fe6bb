"""Tokens in recorded chunks that are filled in when they are replayed (`protocol.md` 7.2, 7.4).

`{{cwd}}` is the session's working directory. `{{fromRequest:REGEX}}` is what the expression finds last in the
strings of the request, or its first group. In a call's arguments, which are JSON text, both are escaped.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from cordisd.errors import CordisError
from cordisd.events import decode_json, encode_json

_opening: Final = "{{fromRequest:"
# The expression may hold balanced braces, as in \d{2}, so that it does not end at the wrong }}.
_token = re.compile(r"\{\{cwd\}\}|\{\{fromRequest:((?:\\.|\{[^{}]*\}|[^{}\\])+)\}\}", re.DOTALL)
_json_text_keys = ("arguments", "argumentsDelta")


class Request:
    """What a replayed call may refer to: the session's directory, and the strings of its request."""

    def __init__(self, cwd: str, messages: Sequence[bytes]) -> None:
        self.cwd = cwd
        self._messages = messages
        self._corpus: str | None = None

    def find(self, expression: str) -> str:
        """The last match of `expression` in the request's strings, or its first group.

        Raises:
            CordisError: there is no match.
        """
        if self._corpus is None:
            self._corpus = "\n".join(
                leaf for message in self._messages for leaf in _strings(decode_json(message))
            )
        matches = deque(re.finditer(expression, self._corpus), maxlen=1)
        found = matches[0].group(1 if matches[0].re.groups else 0) if matches else None
        if found is None:
            raise CordisError(f"llm-replay: {_opening}{expression}}}}} matches nothing in the request")
        return found


def fill(value: Any, request: Request, *, is_json_text: bool = False) -> Any:
    """A copy of the JSON value with every token in its strings filled in.

    Raises:
        CordisError: a `fromRequest` expression matches nothing.
    """
    match value:
        case str() if "{{" in value:
            return _token.sub(partial(_replacement, request, is_json_text), value)
        case dict():
            return {
                key: fill(item, request, is_json_text=key in _json_text_keys) for key, item in value.items()
            }
        case list():
            return [fill(item, request) for item in value]
    return value


def check_tokens(value: Any) -> None:
    """Raise `ValueError` when a string in the JSON value holds a `fromRequest` token that cannot work."""
    for text in _strings(value):
        if _opening not in text:
            continue
        expressions = [match[1] for match in _token.finditer(text) if match[1] is not None]
        if len(expressions) != text.count(_opening):
            raise ValueError(f"a {_opening}…}}}} token is not closed, or has unbalanced braces: {text!r}")
        for expression in expressions:
            try:
                re.compile(expression)
            except re.error as problem:
                raise ValueError(f"{_opening}{expression}}}}}: {problem}") from problem


def _replacement(request: Request, is_json_text: bool, match: re.Match[str]) -> str:
    expression: str | None = match[1]
    text = request.cwd if expression is None else request.find(expression)
    return encode_json(text)[1:-1].decode("ascii") if is_json_text else text


def _strings(value: Any) -> Iterator[str]:
    """Every string in a JSON value, keys left out, in order."""
    match value:
        case str():
            yield value
        case dict():
            yield from _strings_of(value.values())
        case list():
            yield from _strings_of(value)


def _strings_of(items: Iterable[Any]) -> Iterator[str]:
    for item in items:
        yield from _strings(item)

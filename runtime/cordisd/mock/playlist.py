"""A script whose replies are chosen by what a request says, or taken in order."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cordisd.mock.received import Received
from cordisd.mock.server import Reply
from cordisd.mock.sse import error

_SHOWN_CHARS = 200


@dataclass(frozen=True, slots=True)
class Match:
    """Regular expressions, found anywhere in a text; all that are given must be.

    `user` in the last user message, `tool` in the results of the last tool calls, which must be what the
    request ends with, `system` in the system prompt, `model` in the model's name, `headers` in headers.
    """

    user: re.Pattern[str] | None = None
    tool: re.Pattern[str] | None = None
    system: re.Pattern[str] | None = None
    model: re.Pattern[str] | None = None
    headers: Mapping[str, re.Pattern[str]] = field(default_factory=dict)

    def fits(self, request: Received) -> bool:
        """Whether it is a request of this kind."""
        asked = (
            (self.user, last_user_message(request)),
            (self.tool, _last_results(request)),
            (self.system, "\n".join(request.texts("system"))),
            (self.model, str(request.object.get("model", ""))),
            *((pattern, request.header(name)) for name, pattern in self.headers.items()),
        )
        return all(
            pattern is None or (text is not None and pattern.search(text) is not None)
            for pattern, text in asked
        )


@dataclass(frozen=True, slots=True)
class Rule:
    """A reply and when it is given. `repeat`: how many times, None for always."""

    reply: Reply
    match: Match | None = None
    repeat: int | None = 1
    is_default: bool = False


class Playlist:
    """A script for `MockModel`: rules that match come first, then those without a match, then the default.

    Each kind in the order given, and each rule as often as it says. A request that no rule is left for is
    answered 400.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        order = (
            [rule for rule in rules if rule.match and not rule.is_default],
            [rule for rule in rules if not rule.match and not rule.is_default],
            [rule for rule in rules if rule.is_default],
        )
        self._rules = [rule for kind in order for rule in kind]
        self._n_given = [0] * len(self._rules)

    def __call__(self, request: Received) -> Reply:
        """The reply to a request."""
        for place, rule in enumerate(self._rules):
            is_left = rule.repeat is None or self._n_given[place] < rule.repeat
            if is_left and (rule.match is None or rule.match.fits(request)):
                self._n_given[place] += 1
                return rule.reply
        asked = last_user_message(request) or ""
        return error(400, f"mock script exhausted: no reply is left for {asked[:_SHOWN_CHARS]!r}")


def last_user_message(request: Received) -> str | None:
    """The text of the last user message; None when there is none."""
    *_, last = (None, *request.texts("user"))
    return last


def _last_results(request: Received) -> str | None:
    """The texts of the tool results that a request ends with."""
    roles = [message.get("role") for message in request.messages]
    n_results = next((n for n, role in enumerate(reversed(roles)) if role != "tool"), len(roles))
    return "\n".join([*request.texts("tool")][-n_results:]) if n_results else None

"""Secrets in recorded traffic: values of variables, and what patterns find, written as `{{secret}}` for good.

Of a variable are found its value as it is, in JSON (in JSON within JSON, too) and in a URL, from 16 letters
up; not other encodings of it, such as base64, and not parts of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import quote, quote_plus

MIN_SECRET_CHARS: Final = 16
"""Shorter values are ordinary words often enough that cutting them out would garble what is said."""
SECRET: Final = "{{secret}}"


def secret_values(names: Iterable[str], environ: Mapping[str, str]) -> list[str]:
    """The values of those variables that are long enough."""
    values = {environ.get(name, "").strip() for name in names}
    return sorted(value for value in values if len(value) >= MIN_SECRET_CHARS)


def check_patterns(patterns: Iterable[str]) -> None:
    """Go on only if these are regular expressions for secrets.

    Raises:
        ValueError: one is none, has groups, or would find what stands for something already.
    """
    for pattern in patterns:
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
        if compiled.search("") or compiled.search(SECRET) or compiled.search("{{cwd}}"):
            raise ValueError(f"{pattern!r} finds too much: an empty text, {SECRET} or {{{{cwd}}}}")
        if compiled.groups:
            raise ValueError(f"{pattern!r} must have no groups but (?:…)")


def spellings(values: Iterable[str]) -> list[str]:
    """Every way in which the values can be written, the longest first."""
    found: set[str] = set()
    for value in values:
        written = {value}
        for _ in range(2):
            written |= {
                json.dumps(one, ensure_ascii=is_ascii)[1:-1] for one in written for is_ascii in (True, False)
            }
        data = value.encode("utf-8", "surrogateescape")
        found |= written | {quote(data, safe=""), quote(data), quote_plus(data)}
    return sorted(found, key=lambda one: (-len(one), one))

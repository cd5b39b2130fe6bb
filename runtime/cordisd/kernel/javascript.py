"""JavaScript's rules for the few operators and functions that `!!js` expressions may use."""

from __future__ import annotations

import re
from enum import Enum
from typing import Any, Final

from cordisd.events import decode_json


class Undefined(Enum):
    """JavaScript's undefined, which is not null: a key with this value is absent."""

    UNDEFINED = "undefined"


UNDEFINED: Final = Undefined.UNDEFINED
MAX_SAFE_INTEGER: Final = 2**53 - 1
Value = Any
"""A JSON value or `UNDEFINED`."""

# Compiled at first use: most compositions need none or one of them, and start-up time counts.
_DECIMAL: Final = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_RADIX: Final = r"0[xX][0-9a-fA-F]+|0[oO][0-7]+|0[bB][01]+"


class ExpressionError(ValueError):
    """An expression cannot be read, or has no value here."""


def is_nullish(value: Value) -> bool:
    """Whether `??` passes over the value: undefined and null only; an empty string stays."""
    return value is None or value is UNDEFINED


def is_truthy(value: Value) -> bool:
    """False for undefined, null, false, 0, NaN and the empty string; an empty list is true."""
    if isinstance(value, (list, dict)):
        return True
    return value is not UNDEFINED and bool(value) and value == value


def is_identical(left: Value, right: Value) -> bool:
    """`===`: no conversion, and lists and objects are equal only to themselves."""
    if isinstance(left, (bool, list, dict)) or isinstance(right, bool):  # to Python 1 == True
        return left is right
    return bool(left == right)


def add(left: Value, right: Value) -> Value:
    """`+` of two strings or two numbers.

    Raises:
        ExpressionError: anything else. JavaScript would make "undefined/sub" of an unset variable.
    """
    both = (left, right)
    if all(isinstance(value, str) for value in both):
        return left + right
    if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in both):
        return left + right
    raise ExpressionError(f"+ joins two strings or adds two numbers, not {show(left)} and {show(right)}")


def to_number(value: Value) -> int | float:
    """`Number(value)`; int where the number is integral, NaN for a text that is no number, 0 for ''."""
    if value is None or isinstance(value, (bool, int)):
        return int(value or 0)
    if isinstance(value, float):
        return value
    if not isinstance(value, str):
        return float("nan")
    text = value.strip()
    if not text or re.fullmatch(_DECIMAL, text):
        number = float(text or 0)
        return int(number) if number.is_integer() and abs(number) <= MAX_SAFE_INTEGER else number
    if re.fullmatch(_RADIX, text):
        return int(text, 0)
    return float(text if text in ("Infinity", "+Infinity", "-Infinity") else "nan")


def parse_json(text: Value) -> Value:
    """`JSON.parse(text)`.

    Raises:
        ExpressionError: not a text, or not JSON.
    """
    if not isinstance(text, str):
        raise ExpressionError(f"JSON.parse needs a text, not {show(text)}")
    try:
        return decode_json(text)
    except (ValueError, RecursionError) as error:
        raise ExpressionError(f"JSON.parse: {text[:80]!r} is not JSON: {error}") from error


def show(value: Value) -> str:
    """The value as a message shows it."""
    return "undefined" if value is UNDEFINED else repr(value)[:80]

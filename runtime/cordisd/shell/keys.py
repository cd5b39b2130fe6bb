"""The bytes that named keys send: those of the Linux console, which is what TERM says."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from cordisd.errors import ToolError, nearest

ARROWS: Final = {"up": "A", "down": "B", "right": "C", "left": "D"}
_KEYS: Final = {
    "enter": "\r",
    "tab": "\t",
    "shift-tab": "\x1b[Z",
    "escape": "\x1b",
    "space": " ",
    "backspace": "\x7f",
    "insert": "\x1b[2~",
    "delete": "\x1b[3~",
    "home": "\x1b[1~",
    "end": "\x1b[4~",
    "page_up": "\x1b[5~",
    "page_down": "\x1b[6~",
    **{f"f{n + 1}": f"\x1b[[{letter}" for n, letter in enumerate("ABCDE")},
    **{f"f{n + 6}": f"\x1b[{code}~" for n, code in enumerate((17, 18, 19, 20, 21, 23, 24))},
}
_OTHER_NAMES: Final = {
    "return": "enter",
    "esc": "escape",
    "del": "delete",
    "pageup": "page_up",
    "page-up": "page_up",
    "pgup": "page_up",
    "pagedown": "page_down",
    "page-down": "page_down",
    "pgdn": "page_down",
    "ctrl-space": "ctrl-@",
}
_CONTROL: Final = re.compile(r"ctrl-([a-z@\[\\\]^_])")
_ALT: Final = re.compile(r"alt-(.)", re.DOTALL)
NAMES: Final = (
    "enter, tab, shift-tab, escape, space, backspace, delete, insert, up, down, left, right, home, end, "
    r"page_up, page_down, f1 to f12, ctrl-a to ctrl-z, ctrl-[, ctrl-\, ctrl-], ctrl-^, ctrl-_, ctrl-@, "
    "and alt- before any character"
)
"""What the model is told."""


def key_bytes(names: Iterable[str], *, application: bool = False) -> bytes:
    """What pressing these keys sends. `application`: the program has asked for the other form of arrows.

    Raises:
        ToolError: a name is unknown; nothing is returned for the others.
    """
    return b"".join(_one(name, application) for name in names)


def _one(given: str, application: bool) -> bytes:
    alt = _ALT.fullmatch(given.replace("+", "-", 1))
    if alt:  # the case of its character counts
        return b"\x1b" + alt[1].encode("utf-8", "replace")
    name = re.sub(r"^(ctrl|shift|alt)\+", r"\1-", given.strip().lower())
    name = _OTHER_NAMES.get(name, name)
    control = _CONTROL.fullmatch(name)
    if control:
        return bytes([ord(control[1].upper()) & 0x1F])
    if name in ARROWS:
        return f"\x1b{'O' if application else '['}{ARROWS[name]}".encode()
    if name in _KEYS:
        return _KEYS[name].encode()
    hint = nearest(name, [*_KEYS, *ARROWS, *_OTHER_NAMES, "ctrl-c", "ctrl-d"])
    raise ToolError(f'unknown key "{given}"{hint}; keys are {NAMES}')

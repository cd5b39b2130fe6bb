from __future__ import annotations

import pytest

from cordisd.errors import ToolError
from cordisd.shell.keys import key_bytes


@pytest.mark.parametrize(
    ("names", "sent"),
    [
        (["enter", "tab", "escape", "backspace", "space"], b"\r\t\x1b\x7f "),
        (["Return", "ESC", "pgup", "page-down", "PageDown"], b"\r\x1b\x1b[5~\x1b[6~\x1b[6~"),
        (
            ["up", "down", "right", "left", "home", "end", "delete"],
            b"\x1b[A\x1b[B\x1b[C\x1b[D\x1b[1~\x1b[4~\x1b[3~",
        ),
        (["f1", "f5", "f6", "f12"], b"\x1b[[A\x1b[[E\x1b[17~\x1b[24~"),
        (
            ["ctrl-a", "ctrl-z", "Ctrl+C", "ctrl-[", "ctrl-\\", "ctrl-]", "ctrl-^", "ctrl-_"],
            b"\x01\x1a\x03\x1b\x1c\x1d\x1e\x1f",
        ),
        (["alt-x", "alt-X", "alt+.", "alt-é"], b"\x1bx\x1bX\x1b.\x1b\xc3\xa9"),
        ([], b""),
    ],
)
def test_a_key_sends_what_the_linux_console_sends(names: list[str], sent: bytes) -> None:
    assert key_bytes(names) == sent


def test_a_program_that_asked_for_it_gets_the_other_arrows() -> None:
    assert key_bytes(["up", "left", "home"], application=True) == b"\x1bOA\x1bOD\x1b[1~"


@pytest.mark.parametrize("name", ["entr", "", "ctrl-", "ctrl-1", "ctrl-ab", "f13", "alt-", "x"])
def test_an_unknown_key_is_an_error_that_names_the_keys(name: str) -> None:
    with pytest.raises(ToolError, match=r"unknown key .*keys are enter, tab"):
        key_bytes(["enter", name])

"""The fallback title follows `protocol.md` 3.6."""

from __future__ import annotations

import pytest

from cordisd.session.title import TitleLimits, fallback_title


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Reply with exactly: SDK snapshot OK", "Reply with exactly: SDK snapshot"),
        ("  two\n\twords ", "two words"),
        ("\x1b[31mred\x1b[0m \x1b]0;window\x07text", "red text"),
        ("\x1b]0;never closed", ""),
        ("a\u202eb\u200bc\ufeff", "abc"),
        ("bell\x07 nul\x00 c1\x9b", "bell nul c1"),
        ("é" * 21, "é" * 20),
        ("x" * 39 + "é", "x" * 39),
        (" \n ", ""),
    ],
)
def test_a_title_is_the_first_words_without_noise(text: str, title: str) -> None:
    assert fallback_title([{"type": "text", "text": text}], TitleLimits()) == title


def test_a_prompt_without_text_has_no_title() -> None:
    assert fallback_title([{"type": "image", "data": "…"}], TitleLimits()) == ""

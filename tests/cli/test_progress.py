"""The story that `run` and `demo` tell on stderr."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordisd.cli.progress import Progress, call_title, fit, printable


def told(*events: tuple[str, dict[str, Any]], **options: Any) -> str:
    stream = io.StringIO()
    progress = Progress(stream, **({"max_preview_lines": 2, "live": False, "colour": False} | options))
    for kind, data in events:
        progress.show({"type": kind, "seq": 0, "time": 0, "data": data})
    progress.close()
    return stream.getvalue()


def result(text: str, *, is_error: bool = False) -> tuple[str, dict[str, Any]]:
    block = {"type": "tool-result", "isError": is_error, "content": [{"type": "text", "text": text}]}
    return "tool/result", {"message": {"content": [block]}}


def message(*blocks: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return "assistant/message", {"message": {"content": list(blocks)}}


def test_a_tool_call_is_one_line_and_its_result_a_short_preview() -> None:
    call = ("tool/call", {"name": "bash", "arguments": '{"command":"ls\\nls -l"}'})
    assert told(call, result("a\nb\nc\nd\n")) == "$ ls  (and 1 more lines)\n  a\n  b\n  … 2 more lines\n"


def test_text_beside_tool_calls_is_told_and_the_final_answer_is_not() -> None:
    say, think = {"type": "text", "text": "I look."}, {"type": "reasoning", "text": "Hm."}
    assert told(message(think, say, {"type": "tool-call"})) == "Hm.\nI look.\n"
    assert told(message(think, say)) == "Hm.\n"


def test_a_retry_is_told_with_its_cause() -> None:
    retry = ("llm/retry", {"retry": 2, "failure": {"message": "overloaded", "code": "SERVER"}})
    assert told(retry) == "model request failed, retry 2 follows: overloaded\n"


def test_titles_name_what_a_person_wants_to_know() -> None:
    assert call_title("bash", '{"command": "make"}') == "$ make"
    assert call_title("str_replace_editor", '{"command": "view", "path": "/a.py"}') == "edit: view /a.py"
    assert call_title("bash", '{"command": "ls') == 'bash {"command": "ls'
    assert call_title("other", "[1]") == "other [1]"


def test_without_colours_and_status_line_nothing_steers_the_terminal() -> None:
    assert "\x1b" not in told(result("\x1b[31mred\x1b[0m \x07\r\x9b2J"))
    coloured = told(result("no", is_error=True), live=True, colour=True)
    assert "\x1b[31m  no\x1b[0m" in coloured
    assert coloured.endswith("\r\x1b[2K")  # the status line is gone at the end


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "env", "live", "coloured"),
    [
        (Terminal(), {"TERM": "xterm"}, True, True),
        (Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}, True, False),
        (Terminal(), {"TERM": "dumb"}, False, False),
        (Terminal(), {}, False, False),
        (io.StringIO(), {"TERM": "xterm"}, False, False),
    ],
)
def test_status_line_and_colours_come_with_a_terminal_that_wants_them(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, env: dict[str, str], live: bool, coloured: bool
) -> None:
    for name in ("TERM", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    Progress.to(stream, max_preview_lines=1).line("hello", 31)
    assert ("\r\x1b[2K" in stream.getvalue()) is live
    assert ("\x1b[31mhello" in stream.getvalue()) is coloured


@given(st.text(st.characters(exclude_categories=())), st.integers(0, 40))
def test_a_fitted_text_is_a_printable_prefix_of_at_most_that_width(text: str, columns: int) -> None:
    shown = printable(text)
    assert shown.encode().decode() == shown
    assert shown.startswith(fit(shown, columns))
    assert len(fit(shown, columns)) <= columns


def test_wide_characters_count_twice() -> None:
    assert fit("ab漢字", 5) == "ab漢"

"""What a person sees while a prompt runs: a line per tool call and, on a terminal, one living status line."""

from __future__ import annotations

import os
import shutil
import time
import unicodedata
from typing import Final, TextIO

from cordisd.events import JsonObject, decode_json

MAX_LINE_CHARS: Final = 200
REDRAW_S: Final = 0.2
ERASE_LINE: Final = "\r\x1b[2K"
DIM, BOLD, RED, CYAN = 2, 1, 31, 36

_UNPRINTABLE: Final = dict.fromkeys((*range(9), *range(11, 32), *range(127, 160), *range(0xD800, 0xE000)))


class Progress:
    """Writes the story of a prompt to `stream`, event by event.

    `live` draws a status line that moves; without it there are plain lines only. Of reasoning and tool
    results the first `max_preview_lines` lines are shown; the final answer is left to the caller.
    """

    def __init__(self, stream: TextIO, *, max_preview_lines: int, live: bool, colour: bool) -> None:
        self._stream = stream
        self._max_preview_lines = max_preview_lines
        self._live = live
        self._colour = colour
        self._started = time.monotonic()
        self._n_steps = 0
        self._tool = ""
        self._n_tokens = {"inputTokens": 0, "outputTokens": 0}

    @classmethod
    def to(cls, stream: TextIO, *, max_preview_lines: int) -> Progress:
        """As fits the stream: living and coloured on a terminal, but for `TERM=dumb` and `NO_COLOR`."""
        live = stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        colour = live and not os.environ.get("NO_COLOR")
        return cls(stream, max_preview_lines=max_preview_lines, live=live, colour=colour)

    def show(self, event: JsonObject) -> None:
        """Tell of one event of the session."""
        data = event["data"]
        match event["type"]:
            case "assistant/chunk" if data["chunk"]["type"] == "usage":
                for name in self._n_tokens:
                    self._n_tokens[name] += data["chunk"]["usage"].get(name, 0)
            case "step/start":
                self._n_steps += 1
                self._tool = ""
            case "assistant/message":
                self._show_message(data["message"]["content"])
            case "tool/call":
                self._tool = data["name"]
                self.line(call_title(data["name"], data["arguments"]), CYAN)
            case "tool/result":
                self._tool = ""
                self._show_result(data["message"]["content"])
            case "llm/retry":
                failure = data["failure"]["message"]
                self.line(f"model request failed, retry {data['retry']} follows: {failure}", RED)

    def line(self, text: str, style: int | None = None) -> None:
        """Write one line, cut to what can be read at a glance."""
        text = printable(text.split("\n", 1)[0])
        if len(text) > MAX_LINE_CHARS:
            text = text[: MAX_LINE_CHARS - 1] + "…"
        self._write((ERASE_LINE if self._live else "") + self._styled(text, style) + "\n")
        self.redraw()

    def redraw(self) -> None:
        """Bring the status line up to date; nothing without one."""
        if self._live:
            columns = shutil.get_terminal_size().columns
            self._write(ERASE_LINE + self._styled(fit(self._status(), columns - 1), DIM))

    def close(self) -> None:
        """Remove the status line."""
        if self._live:
            self._write(ERASE_LINE)

    def summary(self) -> str:
        """Steps, tokens and time so far."""
        n_in, n_out = self._n_tokens.values()
        elapsed_s = time.monotonic() - self._started
        steps = f"{self._n_steps} step" + ("s" if self._n_steps != 1 else "")
        return f"{steps} · {n_in:,} tokens in, {n_out:,} out · {elapsed_s:.0f} s"

    def _status(self) -> str:
        return f"{self.summary()} · {self._tool or 'model'}"

    def _show_message(self, blocks: list[JsonObject]) -> None:
        is_final = not any(block["type"] == "tool-call" for block in blocks)
        for block in blocks:
            if block["type"] == "reasoning":
                self._preview(block["text"], DIM)
            elif block["type"] == "text" and not is_final:
                self._preview(block["text"], None)

    def _show_result(self, blocks: list[JsonObject]) -> None:
        for block in blocks:
            texts = [part["text"] for part in block.get("content", []) if part.get("type") == "text"]
            self._preview("\n".join(texts), RED if block.get("isError") else DIM, indent="  ")

    def _preview(self, text: str, style: int | None, indent: str = "") -> None:
        lines = text.strip("\n").split("\n")
        for text_line in lines[: self._max_preview_lines]:
            self.line(indent + text_line, style)
        if len(lines) > self._max_preview_lines:
            self.line(f"{indent}… {len(lines) - self._max_preview_lines} more lines", style)

    def _styled(self, text: str, style: int | None) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self._colour and style is not None else text

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def call_title(name: str, arguments: str) -> str:
    """A tool call in one line: `$ ls`, `edit: view a.py`, for other tools name and arguments."""
    try:
        given = decode_json(arguments)
    except ValueError:
        given = None
    match name, given:
        case "bash", {"command": str(command)}:
            first, *rest = command.strip("\n").split("\n")
            return f"$ {first}" + (f"  (and {len(rest)} more lines)" if rest else "")
        case "str_replace_editor", {"command": str(command), "path": str(path)}:
            return f"edit: {command} {path}"
        case _:
            return f"{name} {arguments}"


def printable(text: str) -> str:
    """`text` without what could steer a terminal, or not be encoded."""
    return text.translate(_UNPRINTABLE)


def fit(text: str, columns: int) -> str:
    """As much of `text` as fits into `columns` of a terminal."""
    width = 0
    for at, character in enumerate(text):
        width += 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if width > columns:
            return text[:at]
    return text

"""A stored session as a person reads it: who said what, what was called and came back, how turns ended."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from cordisd.cli.progress import BOLD, CYAN, DIM, MAX_LINE_CHARS, RED, call_title, printable
from cordisd.events import Event, JsonObject, decode_json
from cordisd.session.header import SessionHeader

INDENT: Final = "  "
EDITED: Final = {"file_text": "+", "old_str": "-", "new_str": "+"}
"""Arguments of the editor that are text, and what marks their lines."""


@dataclass(slots=True)
class Transcript:
    """Tells a log event by event, in lines. `colour` styles them for a terminal."""

    colour: bool
    _streamed: dict[int, str] = field(default_factory=dict)
    """Text of the model that no message has taken up yet, by block."""
    _calls: dict[str, JsonObject] = field(default_factory=dict)
    """Tool calls of the last message, by id."""
    _told: str | None = None
    """Id of the call that was told last."""
    _turn: int | None = None
    """The turn that is open."""
    _turn_ms: int = 0
    _n_steps: int = 0
    _tokens: dict[str, int] = field(default_factory=dict)

    def begin(self, header: SessionHeader) -> Iterator[str]:
        """Whose log it is."""
        preset = "no preset" if header.agent_preset is None else f"preset {header.agent_preset}"
        facts = [f"session {header.id}", header.cwd or "no directory", preset, clock(header.created_at)]
        yield self._styled(printable(" · ".join(facts)), BOLD)

    def tell(self, event: Event) -> Iterator[str]:
        """The lines for one event; for many there are none."""
        try:
            yield from self._tell(event)
        except (AttributeError, KeyError, TypeError):
            yield self._styled(printable(f"event {event.seq} ({event.type}) is not as its type says"), RED)

    def end(self) -> Iterator[str]:
        """Where the log ends, if that is inside a turn."""
        yield from self._break_off()
        if self._turn is not None:
            yield self._styled(f"turn {self._turn} has no end here", RED)

    def _break_off(self) -> Iterator[str]:
        """What the model has said since its last message, when nothing more of that comes."""
        if text := "".join(self._streamed.values()):
            yield from self._said("assistant, cut off", text, DIM)
        self._streamed.clear()

    def _tell(self, event: Event) -> Iterator[str]:
        data = event.data
        match event.type:
            case "turn/start":
                self._turn, self._turn_ms, self._n_steps, self._tokens = data["turn"], event.time, 0, {}
                yield ""
                yield self._styled(f"turn {data['turn']} · {clock(event.time)}", BOLD)
            case "step/start":
                self._n_steps += 1
            case "user/message":
                kind = data["source"].get("kind")
                who = "user" if kind == "user" else f"user ({kind})"
                yield from self._said(who, "\n".join(_texts(data["content"])))
            case "assistant/chunk":
                self._take(data["chunk"])
            case "assistant/message":
                self._streamed.clear()
                yield from self._answer(data)
            case "tool/call":
                yield from self._call(data["callId"], data)
            case "tool/result":
                yield from self._result(data)
            case "llm/retry":
                yield from self._break_off()
                why = " ".join(_lines_of(data["failure"]["message"]))
                yield self._styled(printable(f"request failed, retried: {why}"), RED)
            case "step/end":
                yield from self._break_off()
            case "turn/end":
                self._turn = None
                yield from self._break_off()
                yield self._outcome(event)
            case "working-directory/change":
                yield self._styled(printable(f"working directory: {data['cwd']}"), BOLD)
            case "session/outcome":
                reward = f", reward {data['reward']}" if "reward" in data else ""
                yield self._styled(printable(f"outcome: {data['class']}{reward}"), BOLD)
            case "session/end-seed":
                yield self._styled(f"resumed or forked · {clock(event.time)}", BOLD)

    def _take(self, chunk: JsonObject) -> None:
        if chunk["type"] in ("text-delta", "reasoning-delta"):
            self._streamed[chunk["index"]] = self._streamed.get(chunk["index"], "") + chunk["text"]

    def _answer(self, data: JsonObject) -> Iterator[str]:
        mark = ", cut off" if data.get("interrupted") or data.get("truncated") else ""
        self._calls = {}
        for block in data["message"]["content"]:
            match block["type"]:
                case "reasoning":
                    yield from self._said("reasoning" + mark, block["text"], DIM)
                case "text":
                    yield from self._said("assistant" + mark, block["text"])
                case "tool-call":
                    self._calls[block["id"]] = block
        for name, count in data.get("usage", {}).items():
            self._tokens[name] = self._tokens.get(name, 0) + count

    def _call(self, call_id: str, call: JsonObject) -> Iterator[str]:
        self._told = call_id
        title, *rest = _call_lines(call["name"], call["arguments"])
        yield self._styled(printable(title), CYAN)
        for line in rest:
            yield self._styled(printable(INDENT + line), CYAN)

    def _result(self, data: JsonObject) -> Iterator[str]:
        for block in data["message"]["content"]:
            call_id = block["toolCallId"]
            if call_id != self._told and call_id in self._calls:  # several ran at once, or it never ran
                yield from self._call(call_id, self._calls[call_id])
            style = RED if block["isError"] else DIM
            yield from self._indented("\n".join(_texts(block["content"])), style)

    def _outcome(self, event: Event) -> str:
        data = event.data
        reason = data["reason"]
        why = reason.get("error", {}).get("message") or reason.get("reason", {}).get("kind")
        ended = f"turn {data['turn']} {data.get('stopReason', reason['kind'])}" + (f" ({why})" if why else "")
        n_in, n_out = (self._tokens.get(name, 0) for name in ("inputTokens", "outputTokens"))
        steps = "1 step" if self._n_steps == 1 else f"{self._n_steps} steps"
        took_s = (event.time - self._turn_ms) / 1000
        is_fine = reason["kind"] == "completed"
        figures = f"{steps} · {n_in:,} tokens in, {n_out:,} out · {took_s:.1f} s"
        line = printable(" ".join(_lines_of(f"{ended}: {figures}")))
        return self._styled(line, BOLD if is_fine else RED)

    def _said(self, who: str, text: str, style: int | None = None) -> Iterator[str]:
        if text.strip():
            yield self._styled(f"{who}:", BOLD)
            yield from self._indented(text, style)

    def _indented(self, text: str, style: int | None) -> Iterator[str]:
        for line in _lines_of(text):
            yield self._styled((INDENT + printable(line)).rstrip(), style)

    def _styled(self, text: str, style: int | None) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self.colour and style is not None and text else text


def event_line(event: Event) -> str:
    """One event on one line, its data cut to what can be read at a glance."""
    line = f"{event.seq:>6} {clock(event.time)} {event.type:<20} {json.dumps(event.data)}"
    return printable(line if len(line) <= MAX_LINE_CHARS else line[: MAX_LINE_CHARS - 1] + "…")


def clock(time_ms: int) -> str:
    """A moment in local time: `2026-11-30 21:31:19`."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_ms / 1000))
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"


def _call_lines(name: str, arguments: str) -> list[str]:
    """A tool call in full: the command, or what an edit takes away and puts in its place."""
    title = call_title(name, arguments)
    try:
        given = decode_json(arguments)
    except ValueError:
        return title.split("\n")
    match name, given:
        case "bash", {"command": str(command)}:
            return f"$ {command}".strip("\n").split("\n")
        case "str_replace_editor", {"command": _, "path": _}:
            texts = [(EDITED[key], text) for key, text in given.items() if key in EDITED and text]
            return [title, *(f"{mark} {line}" for mark, text in texts for line in _lines_of(str(text)))]
        case _:
            return title.split("\n")


def _lines_of(text: str) -> list[str]:
    return text.strip("\n").split("\n")


def _texts(blocks: Iterable[JsonObject]) -> list[str]:
    return [block["text"] if block["type"] == "text" else f"[{block['type']}]" for block in blocks]

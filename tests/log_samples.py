"""Sample sessions as events, for tests of everything that writes or reads logs."""

from __future__ import annotations

from typing import Any

from cordisd.events import Event
from cordisd.session.header import SessionHeader

START_MS = 1_700_000_000_000


def header(session_id: str = "s1", cwd: str | None = "/srv/w", **fields: Any) -> SessionHeader:
    """A header with the given id and working directory."""
    return SessionHeader(session_id, START_MS, cwd, **fields)


class Writer:
    """Makes numbered events, one millisecond apart."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def add(self, kind: str, data: dict[str, Any], **fields: Any) -> Event:
        """Append one event."""
        seq = len(self.events)
        self.events.append(Event(kind, seq, START_MS + seq, data, **fields))
        return self.events[-1]

    def chunks(self, turn: int, step: int, *chunks: dict[str, Any]) -> list[int]:
        """Append `assistant/chunk` events; returns their seqs."""
        return [self.add("assistant/chunk", {"turn": turn, "step": step, "chunk": c}).seq for c in chunks]

    def answer(self, turn: int, step: int, *blocks: dict[str, Any], sources: list[int]) -> None:
        """Append the `assistant/message` that the chunks `sources` add up to."""
        message = {
            "role": "assistant",
            "content": list(blocks),
            "source": {"kind": "model", "provider": "deepseek-official", "model": "deepseek-v4-flash"},
            "id": f"answer-{turn}-{step}",
        }
        data = {
            "turn": turn,
            "step": step,
            "message": message,
            "usage": {"inputTokens": 5, "outputTokens": 3},
        }
        self.add("assistant/message", data, sources=sources, surface_op="append")


def text_chunks(*texts: str) -> list[dict[str, Any]]:
    """The chunks of one streamed text answer."""
    whole = "".join(texts)
    return [
        {"type": "block-start", "index": 0, "blockType": "text"},
        *({"type": "text-delta", "index": 0, "text": text} for text in texts),
        {"type": "block-end", "index": 0, "block": {"type": "text", "text": whole}},
        {"type": "finish", "reason": {"kind": "stop"}},
    ]


def call_chunks(call_id: str, arguments: str, index: int = 0) -> list[dict[str, Any]]:
    """The chunks of one streamed bash call, the arguments a character at a time; no finish."""
    block = call_block(call_id, arguments)
    delta = {"type": "tool-call-delta", "index": index, "id": call_id, "name": "bash"}
    return [
        {"type": "block-start", "index": index, "blockType": "tool-call"},
        *({**delta, "argumentsDelta": piece} for piece in arguments),
        {"type": "block-end", "index": index, "block": block},
    ]


def call_block(call_id: str, arguments: str) -> dict[str, Any]:
    """The content block of one bash call."""
    return {"type": "tool-call", "id": call_id, "name": "bash", "arguments": arguments}


def result_data(call_id: str, text: str, turn: int = 1, step: int = 1) -> dict[str, Any]:
    """The data of a `tool/result`."""
    block = {
        "type": "tool-result",
        "toolCallId": call_id,
        "content": [{"type": "text", "text": text}],
        "isError": False,
    }
    source = {"kind": "tool", "callId": call_id}
    message = {"source": source, "content": [block], "role": "user", "id": f"result-{call_id}"}
    return {"turn": turn, "step": step, "message": message}


def open_turn(writer: Writer, turn: int, prompt: str) -> None:
    """Append what starts a turn, up to its first request."""
    message = {
        "content": [{"type": "text", "text": prompt}],
        "source": {"kind": "user"},
        "role": "user",
        "id": f"prompt-{turn}",
    }
    splice = {"target": "next-turn", "start": 0}
    writer.add("agent/inbox/spliced", {**splice, "inserted": [message]})
    writer.add("turn/start", {"turn": turn})
    writer.add("agent/inbox/spliced", {**splice, "removedCount": 1, "inserted": []})
    writer.add("step/start", {"turn": turn, "step": 1})
    writer.add("user/message", message, surface_op="append")


def tool_turn(writer: Writer, turn: int = 1) -> None:
    """Append a whole turn: a bash call, its result, and a text answer."""
    open_turn(writer, turn, "Say hé\ud83d \u2028 twice")
    arguments = '{"command":"echo hé"}'
    finish = {"type": "finish", "reason": {"kind": "tool-calls"}}
    sources = writer.chunks(turn, 1, *call_chunks(f"c{turn}", arguments), finish)
    writer.answer(turn, 1, call_block(f"c{turn}", arguments), sources=sources)
    call = {"turn": turn, "step": 1, "callId": f"c{turn}", "name": "bash", "arguments": arguments}
    seq = writer.add("tool/call", call).seq
    writer.add("tool/result", result_data(f"c{turn}", "hé", turn), sources=[seq], surface_op="append")
    writer.add("step/end", {"turn": turn, "step": 1})
    writer.add("step/start", {"turn": turn, "step": 2})
    sources = writer.chunks(turn, 2, *text_chunks("hé", ", ", "hé", "!"))
    writer.answer(turn, 2, {"type": "text", "text": "hé, hé!"}, sources=sources)
    writer.add("step/end", {"turn": turn, "step": 2})
    writer.add("turn/end", {"turn": turn, "reason": {"kind": "completed"}})


def finished_session() -> list[Event]:
    """The events of a session with one finished tool turn."""
    writer = Writer()
    tool_turn(writer)
    return writer.events


def plain(events: list[Event]) -> list[dict[str, Any]]:
    """The events as JSON objects, to compare."""
    return [event.as_dict() for event in events]

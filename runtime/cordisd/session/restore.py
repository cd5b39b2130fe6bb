"""What a stored log says about its session: the memory that a resumed session goes on with."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from cordisd.errors import LogCorruptError, LogError, UnsupportedContentError
from cordisd.events import SURFACE_TYPES, Event, JsonObject
from cordisd.session import skim
from cordisd.session.disk import cause_of, open_file
from cordisd.session.history import Encoder, History
from cordisd.session.reading import LogReading
from cordisd.session.session import Memory


def restore(events: Iterable[Event], history: History, seed_length: int = 0) -> Memory:
    """The memory that the events leave behind; their surface is folded into `history`.

    The first `seed_length` of them are another session's, which this one was forked from: the keys of its
    prompts and its outcomes are not this session's.
    """
    memory = Memory()
    spent = memory.spent
    usage: JsonObject = {}  # of an attempt whose answer has not come to the history, or never does
    for event in events:
        data = event.data
        is_own = event.seq >= seed_length
        spent.take(event)
        match event.type:
            case "assistant/chunk":
                if data["chunk"].get("type") == "usage":
                    usage = data["chunk"]["usage"]
            case "agent/inbox/spliced":
                removed = apply_splice(memory.inbox[data["target"]], data)
                if is_own:
                    _remember_prompts(memory, data["inserted"])
                if "outcome" in data:
                    memory.forget(removed)
                elif removed and data["target"] == "next-turn":
                    memory.take(removed)
            case "turn/end" if is_own:
                memory.note_outcome(data)
            case "session/outcome" if is_own:
                memory.outcome = data
            case "session/title":
                memory.titled = True
            case "request/header":
                memory.header = data["header"]
                memory.parameters = data.get("parameters", {})
            case "request/context":
                memory.context = data
            case "assistant/message":
                usage = {}
            case "llm/retry" | "step/end" if usage:
                config = (memory.header or {}).get("config", {})
                spent.count(usage, (config.get("provider", ""), config.get("model", "")))
                usage = {}
            case "user/message" if data["source"].get("kind") == "runtime-context":
                memory.runtime_context = data["source"].get("text", "")
        if event.type in SURFACE_TYPES:
            with suppress(UnsupportedContentError):  # it ended its turn then, and is not sent now
                history.add(event)
    return memory


def read_past(path: Path, session_id: str, n_events: int, encode: Encoder) -> tuple[Memory, History]:
    """Memory and history of a session whose log at `path` is open and holds `n_events`. Changes nothing.

    Raises:
        LogError: the log cannot be read.
        LogCorruptError: it does not hold these events any more.
        LogRefusedError: it holds an event that this version does not know.
    """
    history = History(encode)
    try:
        with os.fdopen(open_file(path), "rb") as stream:
            reading = LogReading(stream, path, skip=skim.rows)
            memory = restore(reading.events(), history, reading.header.seed_length or 0)
    except OSError as problem:
        raise LogError(f"cannot read the session log {path}: {cause_of(problem)}") from problem
    except (AttributeError, KeyError, TypeError) as problem:
        raise LogCorruptError(f"corrupt session log: the data of an event is malformed: {path}") from problem
    if reading.header.id != session_id or reading.n_events < n_events:
        damage = f" ({reading.damage.what})" if reading.damage is not None else ""
        found = f'{reading.n_events} of session "{reading.header.id}"{damage}'
        raise LogCorruptError(
            f'corrupt session log: of {n_events} events of session "{session_id}" it holds {found}: {path}'
        )
    return memory, history


def last_directory(events: Iterable[Event]) -> str | None:
    """The directory that the session last moved to, or None when it never moved."""
    moves = [event.data.get("cwd") for event in events if event.type == "working-directory/change"]
    places = [cwd for cwd in moves if isinstance(cwd, str)]  # another harness may use the word otherwise
    return places[-1] if places else None


def apply_splice(items: list[JsonObject], data: JsonObject) -> list[JsonObject]:
    """Edit an inbox list as an `agent/inbox/spliced` event says; returns what was removed."""
    start, count = data["start"], data.get("removedCount", 0)
    removed = items[start : start + count]
    items[start : start + count] = data["inserted"]
    return removed


def _remember_prompts(memory: Memory, messages: list[JsonObject]) -> None:
    for message in messages:
        key = message["source"].get("idempotencyKey")
        if key:
            memory.prompt_ids[key] = message["id"]

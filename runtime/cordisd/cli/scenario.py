"""What `cordisd replay` plays: recordings, and session logs of format 0, with the prompts found in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from cordisd.errors import CompositionError, Problem
from cordisd.events import JsonObject, decode_json
from cordisd.replay.canonical import request_hash
from cordisd.replay.recorder import SUFFIX
from cordisd.replay.recording import read_recording
from cordisd.replay.scripts import playable, read_script
from cordisd.replay.turns import Turn as RecordedTurn
from cordisd.replay.writer import PART

CURSOR_PROVIDER: Final = "recorded"
"""Answers for a session log beside the composition's own providers, so none of them has to go."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A prompt, and how its turn ended: our stop reason, or in a log the published kind."""

    content: list[JsonObject]
    end: str
    n_requests: int
    limits: JsonObject = field(default_factory=dict)
    """Those that came with the prompt."""
    is_cut: bool = False
    """Whether it was ended at a moment that does not come again: by a cancel, or by the clock."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One session to play. `name` is what the command line calls it."""

    name: str
    path: Path
    session_id: str
    turns: Sequence[Turn]
    agent: JsonObject
    beginning: str = ""
    """The hash of a recording's first request."""
    composition: str | None = None
    masks: Mapping[str, str] = field(default_factory=dict)
    secrets: Sequence[str] = ()
    is_log: bool = False
    parent: str | None = None
    children: Sequence[Path] = ()
    """Logs of the sessions that this one delegated to."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A file that cannot be played, and why."""

    name: str
    problem: str


@dataclass(slots=True)
class Found:
    """What the arguments of a command line mean. `skipped`: files of folders that are something else."""

    scenarios: list[Scenario | Unreadable] = field(default_factory=list)
    skipped: list[Path] = field(default_factory=list)


def find(arguments: Sequence[str]) -> Found:
    """The scenarios in files and folders, in order, each once; of a folder those directly in it, by name."""
    found = Found()
    seen: set[Path] = set()
    for argument in arguments:
        path = Path(argument)
        inside = sorted(path.glob(f"*{SUFFIX}*")) if path.is_dir() else None
        files = [path] if inside is None else [one for one in inside if one.name.endswith((SUFFIX, PART))]
        if not files:
            found.scenarios.append(Unreadable(argument, f"holds no *{SUFFIX}"))
        for file in files:
            if file.resolve() in seen:
                continue
            seen.add(file.resolve())
            if inside is not None and _is_foreign(file):
                found.skipped.append(file)
            else:
                found.scenarios.append(read(file))
    found.scenarios = list(_with_children(found.scenarios))
    return found


def read(path: Path) -> Scenario | Unreadable:
    """The scenario that a file holds."""
    name = str(path)
    if path.name.endswith(PART):
        return Unreadable(name, "is a recording that was cut off; record it again")
    try:
        str(path.absolute()).encode()
    except UnicodeEncodeError:
        return Unreadable(name, "has a path that is not UTF-8, which no composition can name")
    try:
        scenario = _of_log(name, path) if _first_line(path).get("type") == "session" else _of(name, path)
    except CompositionError as error:
        return Unreadable(name, str(error))
    if not scenario.turns:
        return Unreadable(name, "holds no prompt")
    for number, turn in enumerate(scenario.turns, 1):
        if not turn.content:
            return Unreadable(name, f"turn {number} has no prompt of a user, so it cannot be asked for again")
        if turn.is_cut:
            return Unreadable(
                name,
                f"turn {number} was cancelled, by its client or by a time limit, at a moment that does not "
                "come again",
            )
        if not turn.end:
            return Unreadable(name, f"turn {number} has no end; record it again")
    if not scenario.is_log and not any(turn.n_requests for turn in scenario.turns):
        return Unreadable(name, "holds no model request, so there is nothing to compare; record it again")
    return scenario


def _of(name: str, path: Path) -> Scenario:
    recording = read_recording(path.absolute())
    return Scenario(
        name,
        recording.path,
        recording.session_id,
        [_turn_of(turn) for turn in recording.turns],
        recording.header["agent"],
        request_hash(recording.exchanges[0].body) if recording.exchanges else "",
        recording.header.get("composition"),
        recording.header.get("masks", {}),
        recording.header.get("secrets", []),
    )


def _turn_of(turn: RecordedTurn) -> Turn:
    is_cut = turn.stop_reason in ("cancelled", "timeout")
    return Turn(turn.content, turn.stop_reason, len(turn.exchanges), turn.limits, is_cut)


def _of_log(name: str, path: Path) -> Scenario:
    script = read_script(path)
    playable(script.calls)
    turns: list[Turn] = []
    limits = _countable(script.header.cordisd.get("limits"))
    agent: JsonObject = {
        "provider": CURSOR_PROVIDER,
        "preset": script.header.agent_preset,
        "limits": limits,
    }
    for event in _events(path):
        data = event.get("data", {})
        match event.get("type"):
            case "turn/start":
                turns.append(Turn([], "", 0))
            case "user/message" if turns and data.get("source", {}).get("kind") == "user":
                turns[-1].content.extend(data["content"])
                turns[-1].limits.update(_countable(data["source"].get("limits")))
            case "assistant/chunk" if turns and data["chunk"].get("type") == "finish":
                turns[-1] = replace(turns[-1], n_requests=turns[-1].n_requests + 1)
            case "turn/end" if turns:
                kind = str(data.get("reason", {}).get("kind", ""))
                is_cut = (
                    kind == "aborted" and data.get("limit", {}).get("name") not in limits | turns[-1].limits
                )
                turns[-1] = replace(turns[-1], end=kind, is_cut=is_cut)
            case "request/header":
                agent.setdefault("model", data.get("header", {}).get("config", {}).get("model"))
    header = script.header
    parent = header.parent_session
    return Scenario(name, path.absolute(), header.id, turns, agent, is_log=True, parent=parent)


def _countable(limits: object) -> JsonObject:
    """Of the limits in a log those that are reached at the same request each time, whatever it costs here."""
    found = limits if isinstance(limits, dict) else {}
    return {name: value for name, value in found.items() if not name.lower().endswith(("seconds", "cost"))}


def _events(path: Path) -> Iterator[JsonObject]:
    """The lines after the first that are single events; a log that loads has no others but packed deltas."""
    with path.open("rb") as file:
        next(file)
        for line in file:
            event = decode_json(line)
            if isinstance(event, dict) and isinstance(event.get("data"), dict):
                yield event


def _first_line(path: Path) -> JsonObject:
    """The object on the first line; empty where there is none."""
    try:
        if path.exists() and not path.is_file():  # a pipe would wait for its writer, a device may have no end
            raise CompositionError([Problem(str(path), "is no regular file")])
        with path.open("rb") as file:
            row = decode_json(file.readline())
    except OSError as error:
        raise CompositionError([Problem(str(path), f"cannot be read: {error.strerror}")]) from error
    except ValueError:
        return {}
    return row if isinstance(row, dict) else {}


def _is_foreign(path: Path) -> bool:
    """Whether the file has JSON lines of another kind, not a damaged recording."""
    try:
        first = _first_line(path)
    except CompositionError:
        return False
    return bool(first) and "type" not in first


def _with_children(all_of_them: Sequence[Scenario | Unreadable]) -> Iterator[Scenario | Unreadable]:
    """Logs with those of the sessions that they delegated to, where both are there."""
    ids = {one.session_id for one in all_of_them if isinstance(one, Scenario) and one.is_log}
    children = [one for one in all_of_them if isinstance(one, Scenario) and one.parent in ids]
    for one in all_of_them:
        if isinstance(one, Unreadable) or not one.is_log:
            yield one
        elif one not in children:
            yield replace(one, children=[child.path for child in _descendants(one.session_id, children)])


def _descendants(session_id: str, children: Sequence[Scenario]) -> Iterator[Scenario]:
    for child in children:
        if child.parent == session_id:
            yield child
            yield from _descendants(child.session_id, children)

"""One session that is recorded, or played from its recording: what the pytest plugin does for a test."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from cordisd.events import JsonObject, decode_json
from cordisd_sdk.launch import DaemonOptions
from cordisd_sdk.sync import Client

MISMATCH: Final = "REPLAY_MISMATCH"
MAX_NAME_CHARS: Final = 100

Mode = Literal["replay", "record", "refresh"]


class Choices(NamedTuple):
    """Where a recording is, and how it is made and played; see the entries `recorder` and `replay`."""

    path: Path
    masks: dict[str, str]
    tools: str
    on_divergence: str


def default_path(module: str, test: str) -> Path:
    """Where the recording of a test lies, from the folder of its module; `test` is its pytest node id."""
    return Path("recordings", module, f"{_file_name('-'.join(test.split('::')[1:]))}.jsonl")


def replay(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """What `cordisd replay` said of a recording, or of a folder of them."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "cordisd", "replay", str(path), *options],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
    )


class RecordedRun:
    """A daemon's only session, and the recording of it. Set `client` once the daemon runs."""

    client: Client

    def __init__(self, mode: Mode, choices: Choices, test: str, folder: Path) -> None:
        recorded_id = _recorded_session(choices.path) if mode != "record" else None
        self.session_id = recorded_id or _file_name(choices.path.stem)
        self.written = ""
        """What became of the recording's file, in words; empty while it is as it was."""
        self._mode = mode
        self._choices = choices
        self._test = test
        self._folder = folder

    def daemon_options(self, options: DaemonOptions) -> DaemonOptions:
        """`options` with what it takes to play or record."""
        patch = self._folder / "patch.yml"
        rows = self._rows(options.get("composition", "minimal"))
        self._folder.mkdir()
        patch.write_text(json.dumps([{"insert": rows}]), encoding="utf-8")  # JSON is YAML
        added: DaemonOptions = {
            "patches": [*options.get("patches", ()), patch],
            "session_root": self._folder / "logs",
        }
        return options | added

    def end(self, *, passed: bool) -> str:
        """End the daemon and, for a test that has passed, put a new recording in its place.

        Returns what the recording holds against the test; empty for nothing.
        """
        self.client.close()
        events = list(self._events())
        for event in events:
            error = (event["data"].get("reason") or {}).get("error") if event["type"] == "turn/end" else None
            if error is not None and error["code"] == MISMATCH:
                return self._advised(error["message"])
        if not passed:
            return ""
        n_requests = sum(event["type"] == "assistant/chunk" for event in events)
        if self._mode != "record" and n_requests < (n_recorded := _n_requests(self._choices.path)):
            what = f"made {n_requests} of {n_recorded} recorded model requests"
            return self._advised(f"the test has {what}")
        return "" if self._mode == "replay" else self._keep()

    def _rows(self, composition: str | os.PathLike[str]) -> list[JsonObject]:
        choices = self._choices
        rows: list[JsonObject] = []
        if self._mode != "record":
            config: JsonObject = {"mode": "strict" if self._mode == "replay" else "refresh"}
            config |= {"file": str(choices.path), "tools": choices.tools}
            rows.append(_row("replay", config | {"onDivergence": choices.on_divergence}))
        if self._mode != "replay":
            config = {"folder": str(self._folder / "recordings"), "masks": choices.masks}
            rows.append(_row("recorder", config | {"composition": _note(composition, choices.path.parent)}))
        return rows

    def _keep(self) -> str:
        """Put the new recording in its place, at once; returns what keeps it from that."""
        target = self._choices.path
        match sorted((self._folder / "recordings").glob("*")):
            case [fresh] if fresh.suffix == ".jsonl":
                pass
            case []:
                return "nothing was recorded: the test has not prompted the session"
            case others:
                names = ", ".join(path.name for path in others)
                return f"one session of the test can be recorded, but there are: {names}"
        if target.is_file() and target.read_bytes() == fresh.read_bytes():
            self.written = f"unchanged {target}"
            return ""
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.with_name(f".{target.name}.new")
        shutil.copyfile(fresh, beside)
        os.replace(beside, target)
        self.written = f"{'recorded' if self._mode == 'record' else 'refreshed'} {target}"
        return ""

    def _events(self) -> Iterator[dict[str, Any]]:
        """The ends of turns, and those of model answers, one for each request, in the session logs."""
        for log in sorted((self._folder / "logs").glob("*/*/session.jsonl")):
            with log.open("rb") as lines:
                for line in lines:
                    match event := decode_json(line):
                        case {"type": "turn/end"}:
                            yield event
                        case {"type": "assistant/chunk", "data": {"chunk": {"type": "finish"}}}:
                            yield event

    def _advised(self, problem: str) -> str:
        # What differs comes first: it is all that a summary shows.
        problem = problem.removeprefix(f"{self._choices.path}: ")
        command = f"pytest --cordisd-refresh {self._test!r} (or --cordisd-record)"
        return f"{problem}\nrecording: {self._choices.path}\nin this test: {command}"


def _row(name: str, config: JsonObject) -> JsonObject:
    return {"id": f"cordisd-pytest:{name}", "name": name, "config": config}


def _note(composition: str | os.PathLike[str], folder: Path) -> str:
    """How a recording in `folder` names its composition: a shipped name, else a path relative to `folder`."""
    named = os.fspath(composition)
    if os.sep not in named and not named.endswith((".yml", ".yaml")):
        return named
    return os.path.relpath(os.path.realpath(named), os.path.realpath(folder))


def _recorded_session(recording: Path) -> str | None:
    """The id of the recorded session; None where the file is no recording, which the daemon will say."""
    try:
        with recording.open("rb") as lines:
            return str(decode_json(lines.readline())["session"])
    except (ValueError, LookupError, TypeError):
        return None


def _n_requests(recording: Path) -> int:
    """How many requests a recording holds, as its last line says."""
    with recording.open("rb") as lines:
        *_, last = lines
    return int(decode_json(last)["requests"])


def _file_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:MAX_NAME_CHARS].strip("-.") or "session"

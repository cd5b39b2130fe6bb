"""Plays scenarios through daemons: one for all that share a composition, their sessions side by side."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any, Final, Literal, NamedTuple

from cordisd import wire
from cordisd.cli.record import composition_note
from cordisd.cli.refresh import refresh
from cordisd.cli.rollout import DEFAULT_MODEL
from cordisd.cli.scenario import Scenario, Turn
from cordisd.errors import CordisError
from cordisd.events import JsonObject
from cordisd.replay.paths import Workspace
from cordisd.replay.player import OnDivergence, Tools
from cordisd.replay.recorder import SUFFIX
from cordisd.session.names import encode_segment
from cordisd.shipped import shipped
from cordisd_sdk import AsyncClient, DaemonOptions, RpcError, RunResult, SdkError, SessionOptions

MISMATCH: Final = "REPLAY_MISMATCH"


@dataclass(frozen=True, slots=True)
class Conditions:
    """How scenarios are played."""

    jobs: int
    composition: str | None = None
    """In the place of the recorded one."""
    patches: Sequence[str] = ()
    tools: Tools = "live"
    on_divergence: OnDivergence = "fail"
    refreshes: bool = False
    cwd: str | None = None
    """Where tools work; None: a new folder for each scenario."""
    keep: Path | None = None
    """Where session logs stay."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a scenario. `error`: it could not be played, whether or not it would be equal."""

    name: str
    outcome: Literal["ok", "failed", "error"]
    message: str = ""
    n_requests: int = 0
    elapsed_s: float = 0.0
    notes: Sequence[str] = ()
    """Texts of differences that were let pass."""
    changes: Sequence[str] | None = None
    """After a refresh, what it changed, as lines of a diff."""


class _Cast(NamedTuple):
    """Scenarios that one daemon can play, and what it takes."""

    composition: str
    note: str | None
    """What a refreshed recording is to say of its composition."""
    effort: str | None
    rules: str
    """What is written as a token, as the JSON of a part of a recorder's config."""
    is_log: bool
    number: int
    """Tells apart what is alike, but may not be in one daemon."""


@dataclass(slots=True)
class _Stage:
    """Where a group of scenarios is played."""

    cast: _Cast
    folder: Path
    conditions: Conditions
    places: asyncio.Semaphore
    scenarios: list[Scenario] = field(default_factory=list)
    verdicts: dict[Path, asyncio.Future[Verdict]] = field(default_factory=dict)


async def play(scenarios: Sequence[Scenario], conditions: Conditions) -> AsyncGenerator[Verdict]:
    """The verdicts, in the order of the scenarios. Leaving it early ends what is still under way."""
    with TemporaryDirectory(prefix="cordisd-replay-", ignore_cleanup_errors=True) as folder:
        root = Path(os.path.realpath(folder))
        places, daemons = asyncio.Semaphore(conditions.jobs), asyncio.Semaphore(conditions.jobs)
        stages = _stages(scenarios, conditions, root, places)
        verdicts = {path: verdict for stage in stages for path, verdict in stage.verdicts.items()}
        tasks = [asyncio.create_task(_perform(stage, daemons)) for stage in stages]
        try:
            for scenario in scenarios:
                yield await verdicts[scenario.path]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for verdict in verdicts.values():
                verdict.cancel()


def _stages(
    scenarios: Sequence[Scenario], conditions: Conditions, root: Path, places: asyncio.Semaphore
) -> list[_Stage]:
    """The scenarios by what they need. Two of the same session id, and two logs, get daemons of their own."""
    loop = asyncio.get_running_loop()
    stages: dict[_Cast, _Stage] = {}
    for scenario in scenarios:
        number = 0
        while True:
            cast = _cast(scenario, conditions, number)
            stage = stages.get(cast)
            if stage is None:
                folder = Path(mkdtemp(prefix="daemon-", dir=root))
                stage = stages[cast] = _Stage(cast, folder, conditions, places)
            if not stage.scenarios or not (
                scenario.is_log or scenario.session_id in {one.session_id for one in stage.scenarios}
            ):
                break
            number += 1
        stage.scenarios.append(scenario)
        stage.verdicts[scenario.path] = loop.create_future()
    return list(stages.values())


def _cast(scenario: Scenario, conditions: Conditions, number: int) -> _Cast:
    note = scenario.composition
    if conditions.composition is not None:
        composition = conditions.composition
        note = composition_note(composition, scenario.path.parent)
    elif note is None:
        composition = "minimal" if scenario.agent.get("preset") is None else "host"
    else:
        composition = note if shipped(note) is not None else str(scenario.path.parent / note)
    effort = scenario.agent.get("reasoningEffort")
    rules = json.dumps({"masks": scenario.masks, "secrets": scenario.secrets})
    return _Cast(composition, note, effort, rules, scenario.is_log, number)


async def _perform(stage: _Stage, daemons: asyncio.Semaphore) -> None:
    """Play the scenarios of one daemon; each verdict is set, whatever happens."""
    try:
        async with daemons:
            ends = await _play_all(stage)
        for scenario, end in ends:
            if not stage.verdicts[scenario.path].done():
                stage.verdicts[scenario.path].set_result(end)
    except BaseException as error:
        for verdict in stage.verdicts.values():
            if not verdict.done():
                verdict.set_exception(error)
        raise


async def _play_all(stage: _Stage) -> list[tuple[Scenario, Verdict]]:
    """What is left to say when the daemon has ended."""
    client = AsyncClient(**_options(stage))
    try:
        async with client, asyncio.TaskGroup() as group:
            playing = [group.create_task(_play_in_place(client, stage, one)) for one in stage.scenarios]
    except SdkError as error:
        message = client.stderr_tail if client.exit_code == 2 else str(error)
        return [(one, Verdict(one.name, "error", message)) for one in stage.scenarios]
    return [
        (one, _refreshed(stage, one, task.result()))
        for one, task in zip(stage.scenarios, playing, strict=True)
    ]


async def _play_in_place(client: AsyncClient, stage: _Stage, scenario: Scenario) -> Verdict:
    async with stage.places:
        verdict = await _play(client, stage, scenario)
    if not stage.conditions.refreshes:
        stage.verdicts[scenario.path].set_result(verdict)
    return verdict


async def _play(client: AsyncClient, stage: _Stage, scenario: Scenario) -> Verdict:
    """Send the prompts of a scenario one after the other, as far as the turns end as recorded."""
    name, began_s = scenario.name, time.monotonic()
    cwd = stage.conditions.cwd or mkdtemp(prefix="workspace-", dir=stage.folder)
    session = client.session(scenario.session_id, **_session_options(scenario, cwd))
    n_requests, n_children, notes, problem = 0, 0, list[str](), ""
    try:
        try:
            await session.create()
        except RpcError as error:
            return Verdict(name, "error", str(error))
        for number, turn in enumerate(scenario.turns, 1):
            result = await session.run(_shown(turn.content, Workspace(cwd)))
            n_turn = _count_requests(result)
            n_requests += n_turn
            n_children += sum(one.method == wire.SUBAGENT_STARTED for one in result.notifications)
            notes += [
                event["data"]["message"] for event in result.events if event["type"] == "replay/divergence"
            ]
            problem = _problem(number, turn, result, n_turn, is_log=scenario.is_log)
            if problem:
                break
        if not problem and n_children < len(scenario.children):
            files = ", ".join(path.name for path in scenario.children)
            problem = (
                f"of its sub-sessions ({files}) {n_children} came about: is their tool in the composition?"
            )
        with suppress(RpcError):
            await session.close()
    except SdkError as error:
        problem = str(error)
    outcome: Literal["ok", "failed"] = "failed" if problem else "ok"
    return Verdict(name, outcome, problem, n_requests, time.monotonic() - began_s, notes)


def _problem(number: int, turn: Turn, result: RunResult, n_requests: int, *, is_log: bool) -> str:
    """How the end of a turn differs from the recorded one; empty if it does not."""
    error: Mapping[str, object] = dict(result.error or {})
    if error.get("code") == MISMATCH:
        return str(error["message"])
    end = result.finish_reason if is_log else result.stop_reason
    if end != turn.end:
        why = f": {error['message']}" if error else ""
        return f'turn {number} ended with "{end}", when recorded with "{turn.end}"{why}'
    if n_requests < turn.n_requests:
        return f"turn {number} made {n_requests} of {turn.n_requests} recorded model requests"
    return ""


def _shown(value: Any, workspace: Workspace) -> Any:
    """Recorded content with the working directory in the place of its token."""
    match value:
        case str():
            return workspace.show(value)
        case list():
            return [_shown(inner, workspace) for inner in value]
        case dict():
            return {key: _shown(inner, workspace) for key, inner in value.items()}
    return value


def _count_requests(result: RunResult) -> int:
    """How many model requests of the turn were answered, failures among them: each has one `finish`."""
    chunks = (event["data"]["chunk"] for event in result.events if event["type"] == "assistant/chunk")
    return sum(chunk["type"] == "finish" for chunk in chunks)


def _refreshed(stage: _Stage, scenario: Scenario, verdict: Verdict) -> Verdict:
    """The verdict with the changes, once what was recorded anew has taken the recording's place."""
    if not stage.conditions.refreshes or verdict.outcome != "ok":
        return verdict
    fresh = stage.folder / "recordings" / (encode_segment(scenario.session_id) + SUFFIX)
    try:
        changes = refresh(scenario.path, fresh)
    except (CordisError, OSError) as error:
        return Verdict(verdict.name, "error", str(error))
    return Verdict(verdict.name, "ok", "", verdict.n_requests, verdict.elapsed_s, (), changes)


def _options(stage: _Stage) -> DaemonOptions:
    conditions, first = stage.conditions, stage.scenarios[0]
    patch = stage.folder / "patch.yml"
    patch.write_text(json.dumps([{"insert": _rows(stage)}]), encoding="utf-8")  # JSON is YAML
    root = conditions.keep or stage.folder / "logs"
    options: DaemonOptions = {
        "composition": stage.cast.composition,
        "patches": [*conditions.patches, patch],
        "cwd": stage.folder,
        "provider": str(first.agent.get("provider")),
        "model": str(first.agent.get("model") or DEFAULT_MODEL),
        "session_root": root / str(stage.cast.number) if stage.cast.number else root,
        "env": dict.fromkeys(("DSH_SNAPSHOT_FILE", "DSH_SNAPSHOT_OVERRIDE", "DSH_SNAPSHOT_CHILD_FILES")),
        "on_stderr": lambda line: None,
    }
    if stage.cast.effort is not None:
        options["reasoning_effort"] = stage.cast.effort
    return options


def _rows(stage: _Stage) -> list[JsonObject]:
    """The entries that play, and for a refresh record, what the scenarios say."""
    conditions = stage.conditions
    files = [str(scenario.path) for scenario in stage.scenarios]
    if stage.cast.is_log:
        [log] = stage.scenarios
        children = [str(path) for path in log.children]
        config = {"mode": "cursor", "file": files[0], "childFiles": children}
        return [_row("replay", config | {"providers": [{"id": log.agent["provider"]}]})]
    mode = "refresh" if conditions.refreshes else "strict"
    tools = {"tools": conditions.tools, "onDivergence": conditions.on_divergence}
    rows = [_row("replay", {"mode": mode, "file": files[0], "files": files[1:], **tools})]
    if conditions.refreshes:
        config = json.loads(stage.cast.rules) | {"composition": stage.cast.note}
        rows.append(_row("recorder", config | {"folder": str(stage.folder / "recordings")}))
    return rows


def _row(name: str, config: Mapping[str, object]) -> JsonObject:
    return {"id": f"cordisd-replay:{name}", "name": name, "config": dict(config)}


def _session_options(scenario: Scenario, cwd: str) -> SessionOptions:
    options: SessionOptions = {"cwd": cwd}
    agent = scenario.agent
    if agent.get("preset") is not None:
        options["preset"] = agent["preset"]
    if agent.get("provider") is not None:
        options["provider"] = agent["provider"]
    if agent.get("model") is not None:
        options["model"] = agent["model"]
    if agent.get("maxTokens") is not None:
        options["max_tokens"] = agent["maxTokens"]
    return options

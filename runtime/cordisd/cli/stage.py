"""Which scenarios one daemon can play together, and what it is started with for that."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

from cordisd.cli.record import composition_note
from cordisd.cli.rollout import DEFAULT_MODEL
from cordisd.cli.scenario import Scenario
from cordisd.cli.verdict import Verdict
from cordisd.events import JsonObject
from cordisd.replay.player import OnDivergence, Tools
from cordisd.shipped import shipped
from cordisd_sdk import DaemonOptions


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


class Cast(NamedTuple):
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
class Stage:
    """Where a group of scenarios is played."""

    cast: Cast
    folder: Path
    conditions: Conditions
    places: asyncio.Semaphore
    """Held by each session that is played."""
    scenarios: list[Scenario] = field(default_factory=list)
    verdicts: dict[Path, asyncio.Future[Verdict]] = field(default_factory=dict)


def stages_of(
    scenarios: Sequence[Scenario], conditions: Conditions, root: Path, places: asyncio.Semaphore
) -> list[Stage]:
    """The scenarios by what they need; those that exclude each other get daemons of their own."""
    loop = asyncio.get_running_loop()
    stages: dict[Cast, Stage] = {}
    for scenario in scenarios:
        number = 0
        while True:
            cast = _cast(scenario, conditions, number)
            stage = stages.get(cast)
            if stage is None:
                folder = Path(mkdtemp(prefix="daemon-", dir=root))
                stage = stages[cast] = Stage(cast, folder, conditions, places)
            if not any(_exclude(one, scenario) for one in stage.scenarios):
                break
            number += 1
        stage.scenarios.append(scenario)
        stage.verdicts[scenario.path] = loop.create_future()
    return list(stages.values())


def _exclude(one: Scenario, other: Scenario) -> bool:
    """Whether two scenarios cannot be in one daemon.

    Logs play in order, and an id is one session's. Of two that are asked the same in other words of their
    agents, each would be content with the recording of the other, should their prompts be mixed up.
    """
    are_alike = one.turns[0].content == other.turns[0].content and one.beginning != other.beginning
    return other.is_log or one.session_id == other.session_id or are_alike


def _cast(scenario: Scenario, conditions: Conditions, number: int) -> Cast:
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
    return Cast(composition, note, effort, rules, scenario.is_log, number)


def daemon_options(stage: Stage) -> DaemonOptions:
    """What the stage's daemon is started with; writes the patch file that belongs to it."""
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


def _rows(stage: Stage) -> list[JsonObject]:
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

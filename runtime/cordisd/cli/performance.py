"""Plays scenarios through daemons: one for all that share a composition, their sessions side by side."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any, Final, Literal

from cordisd import wire
from cordisd.cli.refresh import refresh
from cordisd.cli.scenario import Scenario, Turn
from cordisd.cli.stage import Conditions, Stage, daemon_options, stages_of
from cordisd.cli.verdict import Verdict
from cordisd.errors import CordisError
from cordisd.replay.paths import Workspace
from cordisd.replay.recorder import SUFFIX
from cordisd.session.names import encode_segment
from cordisd_sdk import AsyncClient, PromptOptions, RpcError, RunResult, SdkError, SessionOptions

MISMATCH: Final = "REPLAY_MISMATCH"


async def play(scenarios: Sequence[Scenario], conditions: Conditions) -> AsyncGenerator[Verdict]:
    """The verdicts, in the order of the scenarios. Leaving it early ends what is still under way."""
    with TemporaryDirectory(prefix="cordisd-replay-", ignore_cleanup_errors=True) as folder:
        root = Path(os.path.realpath(folder))
        places, daemons = asyncio.Semaphore(conditions.jobs), asyncio.Semaphore(conditions.jobs)
        stages = stages_of(scenarios, conditions, root, places)
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


async def _perform(stage: Stage, daemons: asyncio.Semaphore) -> None:
    """Play the scenarios of one daemon; each verdict is set, whatever happens."""
    try:
        async with daemons:
            ends = await _play_all(stage)
        for scenario, end in ends:
            if not stage.verdicts[scenario.path].done():
                stage.verdicts[scenario.path].set_result(end)
    except asyncio.CancelledError:
        for verdict in stage.verdicts.values():
            verdict.cancel()
        raise
    except BaseException as error:
        for verdict in stage.verdicts.values():
            if not verdict.done():
                verdict.set_exception(error)
        raise


async def _play_all(stage: Stage) -> list[tuple[Scenario, Verdict]]:
    """What is left to say when the daemon has ended."""
    client = AsyncClient(**daemon_options(stage))
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


async def _play_in_place(client: AsyncClient, stage: Stage, scenario: Scenario) -> Verdict:
    async with stage.places:
        verdict = await _play(client, stage, scenario)
    if not stage.conditions.refreshes:
        stage.verdicts[scenario.path].set_result(verdict)
    return verdict


async def _play(client: AsyncClient, stage: Stage, scenario: Scenario) -> Verdict:
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
            result = await session.run(_shown(turn.content, Workspace(cwd)), **_prompt_options(turn))
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


def _refreshed(stage: Stage, scenario: Scenario, verdict: Verdict) -> Verdict:
    """The verdict with the changes, once what was recorded anew has taken the recording's place."""
    if not stage.conditions.refreshes or verdict.outcome != "ok":
        return verdict
    fresh = stage.folder / "recordings" / (encode_segment(scenario.session_id) + SUFFIX)
    try:
        changes = refresh(scenario.path, fresh)
    except CordisError as error:
        return Verdict(verdict.name, "error", str(error))
    except OSError as error:
        return Verdict(verdict.name, "error", f"{scenario.path}: cannot be replaced: {error.strerror}")
    return Verdict(verdict.name, "ok", "", verdict.n_requests, verdict.elapsed_s, (), changes)


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
    if agent.get("limits"):
        options["limits"] = agent["limits"]
    return options


def _prompt_options(turn: Turn) -> PromptOptions:
    return {
        "max_turns": turn.limits.get("maxTurns"),
        "run_timeout_s": turn.limits.get("timeoutSeconds"),
    }

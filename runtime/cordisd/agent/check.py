"""What keeps the sessions of an agent from their first request: every problem, at its place in a file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from cordisd.agent.agent import Agent, assembling, check_lock
from cordisd.agent.host import Host
from cordisd.agent.preset import AGENT_FILE, LABEL_FILE, Preset, read_label
from cordisd.errors import CompositionError, CordisError, Problem, PromptError, problems_behind
from cordisd.kernel.load import LoadedEntry, load
from cordisd.kernel.report import Report
from cordisd.services.models import RequestConfig
from cordisd.services.prompt import PromptRegistry, interpolate
from cordisd.services.tools import ToolRegistry


class Verdict(NamedTuple):
    """`digest` is None when the agent does not mount."""

    digest: str | None
    problems: tuple[Problem, ...]


async def check_agent(host: Host, preset: Preset) -> Verdict:
    """Mount the agent of `preset` in `host`, render every part of its prompt, and unmount it."""
    place = str(host.composition.path if preset.folder is None else preset.folder / AGENT_FILE)
    digest: str | None = None
    try:
        async with host.trial(preset, os.getcwd(), RequestConfig("", "")) as agent:
            digest = agent.fingerprint.digest
            with assembling(preset):
                problems = tuple(_prompt_problems(agent, host, place))
            check_lock(agent, {})
    except CordisError as error:
        problems = problems_of(error, place)
    return Verdict(digest, problems)


def problems_of(error: CordisError, place: str) -> tuple[Problem, ...]:
    """The problems that an error tells of; one at `place` if it names none."""
    return problems_behind(error) or (Problem(place, str(error)),)


def warnings_about(folder: Path) -> tuple[Problem, ...]:
    """What the preset in `folder` says to no effect, in its label too. It may have problems besides."""
    report = Report()
    read_label(folder / LABEL_FILE, report)
    try:
        warnings = load(folder / AGENT_FILE).warnings
    except CompositionError:
        warnings = ()
    try:
        report.raise_problems()
    except CompositionError as error:
        warnings += error.problems
    return warnings


def _prompt_problems(agent: Agent, host: Host, place: str) -> Iterator[Problem]:
    """Each section and context that cannot be rendered, at the entry that has written it."""
    tools = agent.scope.get(ToolRegistry).all().values()
    assembly = agent.scope.get(PromptRegistry).assemble([tool.schema for tool in tools])
    entries = (*agent.preset.entries, *host.composition.host)
    for section in (*assembly.sections, *assembly.contexts):
        try:
            interpolate(section, assembly.variables)
        except PromptError as error:
            yield Problem(_author(section.text, entries) or place, str(error))


def _author(text: str, entries: Sequence[LoadedEntry]) -> str | None:
    return next((entry.where for entry in entries if text in entry.config.model_dump().values()), None)

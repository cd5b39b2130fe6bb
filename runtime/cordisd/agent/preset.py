"""Agent presets: what one session's agent is made of, and the folders in which presets are found."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeGuard

from yaml.nodes import MappingNode, Node

from cordisd.errors import CompositionError, PresetError, Problem, nearest
from cordisd.kernel.document import UnreadableError, construct, fields, read
from cordisd.kernel.javascript import ExpressionError, Value
from cordisd.kernel.load import Composition, LoadedEntry, load
from cordisd.kernel.report import Report
from cordisd.kernel.strict import check

AGENT_FILE: Final = "agent.cordis.yml"
LABEL_FILE: Final = "preset.yml"
_LABEL_KEYS: Final = ("name", "description", "order")
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]*")
_CLOCK_STEP_NS: Final = 50_000_000
"""More than a step of the clock that file systems date changes by; within one, no change shows."""

Trust = Literal["system", "user"]
Stamp = tuple[tuple[str, int, int, int, int], ...]


class Preset(NamedTuple):
    """What an agent is made of. `name` None: the session entries of the process composition itself."""

    name: str | None
    entries: tuple[LoadedEntry, ...]
    folder: Path | None = None
    other_roots: tuple[Path, ...] = ()
    """Folders of presets whose locks bind this one too: under an id that they lock it must be the same."""

    def __str__(self) -> str:
        return "the composition's own agent" if self.name is None else f'preset "{self.name}"'


class Root(NamedTuple):
    """A folder of presets; `trust` says whose they are."""

    path: Path
    trust: Trust = "system"


class Label(NamedTuple):
    """What `preset.yml` tells people; it never changes what an agent is."""

    title: str | None = None
    description: str | None = None
    order: float | None = None


class Listed(NamedTuple):
    """One preset of a roster. `problem`: why it cannot be mounted, None when it loads."""

    name: str
    folder: Path
    trust: Trust
    label: Label
    problem: str | None


@dataclass(slots=True)
class Roster:
    """The presets of a daemon: folders of `roots`, earlier roots first; names are looked up at each use."""

    roots: Sequence[Root]
    default: str | None = None
    """Preset of the sessions that name none; None: the composition's own agent."""
    _loaded: dict[Path, tuple[Stamp, Preset]] = field(default_factory=dict)

    def list(self) -> list[Listed]:
        """Every preset, in the order that labels ask for, then by name; broken ones with their problem."""
        found = [self._listed(folder, trust) for folder, trust in self._folders().items()]
        last = float("inf")
        return sorted(found, key=lambda one: (last if one.label.order is None else one.label.order, one.name))

    def get(self, name: str) -> Preset:
        """The preset of that name, read again when one of its files has changed.

        Raises:
            PresetError: there is none, or its files have problems.
        """
        folder = next((folder for folder in self._folders() if folder.name == name), None)
        if folder is None:
            available = sorted(folder.name for folder in self._folders())
            is_misnamed = any(os.path.isfile(root.path / name / AGENT_FILE) for root in self.roots)
            rule = f"; names of presets match {_NAME.pattern}" if is_misnamed else ""
            raise PresetError(
                f'agent-presets: preset "{name}" not found{nearest(name, available)}{rule} '
                f"(available: {', '.join(available) or 'none'})"
            )
        try:
            return self._load(folder)
        except CompositionError as error:
            raise PresetError(f'agent-presets: preset "{name}" failed to mount: {error}') from error

    def _other_roots(self, folder: Path) -> tuple[Path, ...]:
        """Those beside the one that `folder` is in; what a user locks does not bind the system's presets."""
        is_users = self._folders()[folder] == "user"
        others = [root.path for root in self.roots if is_users or root.trust == "system"]
        return tuple(path for path in dict.fromkeys(others) if path != folder.parent)

    def _listed(self, folder: Path, trust: Trust) -> Listed:
        problem = None
        try:
            self._load(folder)
        except CompositionError as error:
            problem = str(error)
        return Listed(folder.name, folder, trust, read_label(folder / LABEL_FILE), problem)

    def _folders(self) -> dict[Path, Trust]:
        """The folder of each preset; a name that an earlier root has is left out."""
        found: dict[str, tuple[Path, Trust]] = {}
        for root in self.roots:
            for folder in _presets_in(root.path):
                found.setdefault(folder.name, (folder, root.trust))
        return dict(found.values())

    def _load(self, folder: Path) -> Preset:
        known = self._loaded.get(folder)
        if known is not None and known[0] == _stamp([path for path, *_ in known[0]]):
            return known[1]
        self._loaded.pop(folder, None)
        began_ns = time.time_ns()
        preset, files = read_preset(folder)
        preset = preset._replace(other_roots=self._other_roots(folder))
        stamp = _stamp(files)
        if all(changed_ns < began_ns - _CLOCK_STEP_NS for _, _, changed_ns, _, _ in stamp):
            self._loaded[folder] = (stamp, preset)  # else it may have changed since it was read
        return preset


def read_preset(folder: Path) -> tuple[Preset, Sequence[str]]:
    """The preset in `folder`, and the files it was read from.

    Raises:
        CompositionError: with every problem of its files; an entry in it is not of a session's.
    """
    path = folder / AGENT_FILE
    composition = load(path)
    if any(entry.entry_class.freezes for entry in composition.entries):
        composition = load(path, literal=True)
    strangers = [_stranger(entry) for entry in composition.host if not entry.entry_class.inert]
    if strangers:
        raise CompositionError(strangers)
    return Preset(folder.name, composition.session, folder), composition.files


def own_preset(composition: Composition) -> Preset:
    """The agent that a process composition describes with its session entries."""
    return Preset(None, composition.session)


def read_label(path: Path, report: Report | None = None) -> Label:
    """What a label file says; one that is missing or malformed says nothing, and `report` is told why."""
    report = Report() if report is None else report
    try:
        node = read(str(path))
    except UnreadableError as error:
        if path.exists():
            report.problem_at(str(path), error.line, str(error).split(";")[0])
        return Label()
    written = construct(node, _no_value, report.problem) if check(node, report) else None
    if report.n_reported:
        return Label()
    if not isinstance(written, dict) or not isinstance(node, MappingNode):
        report.problem(node, f"a label is a mapping of {', '.join(_LABEL_KEYS)}")
        return Label()
    for key, value in fields(node).items():
        _check_label_key(key, written.get(key), value, report)
    title, description, order = (written.get(key) for key in _LABEL_KEYS)
    return Label(
        title if isinstance(title, str) else None,
        description if isinstance(description, str) else None,
        order if _is_order(order) else None,
    )


def _check_label_key(key: str, value: object, node: Node, report: Report) -> None:
    if key not in _LABEL_KEYS:
        allowed = ", ".join(_LABEL_KEYS)
        report.problem(node, f'unknown key "{key}"{nearest(key, _LABEL_KEYS)}; a label has {allowed}')
    elif key == "order" and not _is_order(value):
        report.problem(node, "order must be a finite number")
    elif key != "order" and not isinstance(value, str):
        report.problem(node, f"{key} must be a text")


def _is_order(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _no_value(expression: str) -> Value:
    raise ExpressionError("a label is plain text")


def _presets_in(root: Path) -> Iterator[Path]:
    try:
        with os.scandir(root) as rows:
            names = sorted(row.name for row in rows if _NAME.fullmatch(row.name))
    except OSError:  # a root that is not there (the user's, mostly) holds no preset
        return
    # os.path, not pathlib: a folder that must not be looked into is none, and not an error
    yield from (root / name for name in names if os.path.isfile(root / name / AGENT_FILE))


def _stranger(entry: LoadedEntry) -> Problem:
    message = (
        f'entry "{entry.name}" lives as long as the daemon; a preset holds entries of a session. '
        "Put it into the process composition"
    )
    return Problem(entry.where, message)


def _stamp(files: Sequence[str]) -> Stamp:
    """What changes when a file is written or replaced."""
    stamps = []
    for path in files:
        try:
            stat = os.stat(path)
        except OSError:
            stamps.append((path, 0, 0, 0, 0))
        else:
            stamps.append((path, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino))
    return tuple(stamps)

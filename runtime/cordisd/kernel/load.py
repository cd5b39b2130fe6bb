"""Compositions: from a YAML file to entry classes with validated configurations, or every problem at once."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from yaml.nodes import MappingNode

from cordisd.errors import Problem
from cordisd.kernel.config import read_config
from cordisd.kernel.document import construct, fields, is_expression, is_string
from cordisd.kernel.entry import Entry
from cordisd.kernel.include import Tree
from cordisd.kernel.javascript import UNDEFINED
from cordisd.kernel.names import EntryNameError, is_published, resolve
from cordisd.kernel.report import Report, place
from cordisd.kernel.rows import Row, check_row, describe
from cordisd.settings import EntryConfig


class LoadedEntry(NamedTuple):
    """One enabled row, ready to mount.

    `where` is its `file:line, entry "id"`. `isolate` maps each service that it, or a group around it, wants a
    private instance of to the name of the realm that shares one, outer groups first. Which services there
    are shows only when entries mount, so a name that stands for none is not found here; it has no effect.
    """

    id: str
    name: str
    entry_class: type[Entry]
    config: EntryConfig
    where: str
    isolate: Mapping[str, str]


class Composition(NamedTuple):
    """A loaded composition: its enabled entries in file order, groups and includes flattened."""

    path: Path
    entries: tuple[LoadedEntry, ...]
    warnings: tuple[Problem, ...]
    files: tuple[str, ...] = ()
    """Every file that was read for it, the outermost first."""

    @property
    def host(self) -> tuple[LoadedEntry, ...]:
        """The entries that mount once, when the daemon starts."""
        return tuple(entry for entry in self.entries if entry.entry_class.lifetime == "host")

    @property
    def session(self) -> tuple[LoadedEntry, ...]:
        """The entries that mount in the scope of each session without a preset."""
        return tuple(entry for entry in self.entries if entry.entry_class.lifetime == "session")


def load(
    path: str | os.PathLike[str],
    *,
    patches: Sequence[str | os.PathLike[str]] = (),
    env: Mapping[str, str] | None = None,
    literal: bool = False,
) -> Composition:
    """The composition of a file, with the patch lists of other files applied to it in order.

    `env` is what expressions see as `process.env`; by default the process's. `literal` refuses expressions.
    Nothing is written, and no module of a disabled row is imported.

    Raises:
        CompositionError: with every problem found, in file order.
    """
    report = Report()
    tree = Tree(os.environ if env is None else env, report, literal)
    rows = tree.open(os.fspath(path))
    for patch in patches:
        tree.patch_with(rows, os.fspath(patch), (os.path.realpath(path),))
    entries = _load_rows(tree, rows, {}, Counter())
    report.raise_problems()
    return Composition(Path(path), tuple(entries), report.warnings(), tuple(tree.paths))


def _load_rows(
    tree: Tree, rows: Sequence[Row], isolate: Mapping[str, str], realms: Counter[str]
) -> list[LoadedEntry]:
    """The entries of `rows`, with what is around them isolated; `realms` counts the private ones by name."""
    loaded: list[LoadedEntry] = []
    for row in rows:
        usable = check_row(row, is_published(row.name or ""), tree.report)
        if tree.is_disabled(row) or not usable:
            continue
        if "intercept" in row.fields:  # `inject` only orders, as `Entry.needs` does
            tree.report.warn(row.fields["intercept"], "intercept has no effect yet", row.id)
        own = _isolate(row, realms, tree.report)
        around = {service: realm for service, realm in isolate.items() if service not in own}
        inside = {**around, **{service: realm for service, realm in own.items() if realm}}
        if row.kind != "entry":
            loaded += _load_rows(tree, tree.children(row), inside, realms)
        elif (entry := _load_entry(tree, row, inside)) is not None:
            loaded.append(entry)
    return loaded


def _load_entry(tree: Tree, row: Row, isolate: Mapping[str, str]) -> LoadedEntry | None:
    report, name = tree.report, row.name or ""
    try:
        target = resolve(name)
        entry_class = target.import_class()
    except EntryNameError as error:
        report.problem(row.fields["name"], str(error), row.id)
        return None
    n_before = report.n_reported
    node = row.fields.get("config", row.node)
    raw = _config(tree, row)
    if report.n_reported > n_before:
        return None
    lenient = target.is_published or entry_class.lenient
    config = read_config(entry_class, raw, node, row.id, lenient=lenient, report=report)
    if config is None:
        return None
    return LoadedEntry(row.id, name, entry_class, config, place(row.node, row.id), isolate)


def _config(tree: Tree, row: Row) -> dict[str, object]:
    node = row.fields.get("config")
    if node is None:
        return {}
    value = construct(node, tree.evaluate, partial(tree.report.problem, entry_id=row.id))
    if isinstance(value, dict):
        return value
    if value is not None and value is not UNDEFINED:
        tree.report.problem(node, f"config must be a mapping, not {describe(node)}", row.id)
    return {}


def _isolate(row: Row, realms: Counter[str], report: Report) -> dict[str, str]:
    """Service → realm: `true` is one of this row's own, a string a shared one, `false` none."""
    node = row.fields.get("isolate")
    if node is None or node.tag.endswith(":null"):
        return {}
    if not isinstance(node, MappingNode):
        report.problem(node, f"isolate maps services to true or a name, not {describe(node)}", row.id)
        return {}
    own = f"private {place(row.node, row.id)}"
    realms[own] += 1
    if realms[own] > 1:  # a file that is included twice is two sets of entries
        own = f"{own} ({realms[own]})"
    isolate: dict[str, str] = {}
    for service, value in fields(node).items():
        if value.tag.endswith(":bool"):
            isolate[service] = own if value.value.lower() == "true" else ""
        elif is_string(value) and value.value:
            isolate[service] = f"shared {value.value}"
        elif not is_expression(value):  # that one is reported with the other fields
            message = f"isolate.{service} must be true, false or a name, not {describe(value)}"
            report.problem(value, message, row.id)
    return isolate

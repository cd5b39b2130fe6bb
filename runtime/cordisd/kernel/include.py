"""Groups, included files and patches: the rows below a row, and changes made to them from outside."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from yaml.nodes import MappingNode, Node, SequenceNode

from cordisd.errors import nearest
from cordisd.kernel.document import UnreadableError, fields, is_expression, is_string, read
from cordisd.kernel.expr import Environment, evaluate
from cordisd.kernel.javascript import ExpressionError, Value, is_truthy
from cordisd.kernel.report import Report
from cordisd.kernel.rows import FIELDS, Row, describe, read_rows
from cordisd.kernel.strict import check

MAX_FILES: Final = 64
INCLUDE_KEYS: Final = ("path", "initial", "patches", "enableLogs")
"""`initial` and `enableLogs` are accepted without effect: nothing is ever written into a composition."""


@dataclass(slots=True)
class Tree:
    """Reads rows from files, below other rows, and patches them; files are opened only when needed."""

    env: Environment
    report: Report
    literal: bool = False
    """Whether `!!js` is refused: every value is written out."""
    paths: list[str] = field(default_factory=list)
    """Every file opened so far."""
    n_files: int = 0

    def open(self, path: str) -> list[Row]:
        """The rows of the outermost file; what is wrong is reported."""
        return self._rows(self._read(path), (os.path.realpath(path),))

    def patch_with(self, rows: list[Row], path: str, files: tuple[str, ...]) -> None:
        """Apply the patch list of a file to `rows`."""
        patches = self._read(path)
        if patches is not None:
            self.patch(rows, patches, files)

    def children(self, row: Row) -> list[Row]:
        """The rows of a group or include, read at first use."""
        if row.children is None:
            row.children = []  # already set while reading, so that nothing below can come back here
            row.children = self._included(row) if row.kind == "include" else self._grouped(row)
        return row.children

    def evaluate(self, expression: str) -> Value:
        """The value of a `!!js` expression.

        Raises:
            ExpressionError: it cannot be evaluated, or may not stand here.
        """
        if self.literal:
            raise ExpressionError("a frozen preset writes every value out; !!js is refused in it")
        return evaluate(expression, self.env)

    def is_disabled(self, row: Row) -> bool:
        """Whether the row is switched off: `disabled: true`, or an expression that is true now."""
        node = row.fields.get("disabled")
        if node is None:
            return False
        if is_expression(node):
            try:
                return is_truthy(self.evaluate(node.value))
            except ExpressionError as error:
                self.report.problem(node, str(error), row.id)
        elif node.tag.endswith(":bool"):
            return bool(node.value.lower() == "true")
        elif not node.tag.endswith(":null"):
            self.report.problem(node, f"disabled must be true, false or !!js, not {describe(node)}", row.id)
        return False

    def patch(self, rows: list[Row], patches: Node, files: tuple[str, ...]) -> None:
        """Apply a list of patches in order; later ones see what earlier ones did (`protocol.md` 8.3)."""
        if not isinstance(patches, SequenceNode):
            self.report.problem(patches, f"patches must be a list, not {describe(patches)}")
            return
        for node in patches.value:
            if not isinstance(node, MappingNode):
                self.report.problem(node, f"a patch must be a mapping, not {describe(node)}")
                continue
            changes = fields(node)
            target, insert = changes.pop("id", None), changes.pop("insert", None)
            if not self._is_patch(node, target, insert, changes):
                continue
            if target is not None:
                self._patch_row(rows, target, insert, changes)
            elif insert is not None:
                read_rows(insert, files, self.report, rows)

    def _is_patch(
        self, node: MappingNode, target: Node | None, insert: Node | None, changes: dict[str, Node]
    ) -> bool:
        n_before = self.report.n_reported
        known = (*FIELDS, "insert")
        for key, value in changes.items():
            if key not in known:
                self.report.problem(value, f'unknown patch field "{key}"{nearest(key, known)}')
        if target is None and (insert is None or changes):
            self.report.problem(node, "a patch names the entry it changes by id, or is {insert: [entries]}")
        if target is not None and not is_string(target):
            self.report.problem(target, f"id must be a string, not {describe(target)}")
        return self.report.n_reported == n_before

    def _patch_row(
        self, rows: list[Row], target: Node, insert: Node | None, changes: dict[str, Node]
    ) -> None:
        entry_id = target.value
        matches = list(self._find(rows, entry_id))
        if len(matches) != 1:
            if matches:
                self.report.problem(target, f"{len(matches)} lists have an entry of this id", entry_id)
            else:
                hint = nearest(entry_id, self._ids(rows))
                self.report.warn(target, f"patch skipped: there is no entry of this id{hint}", entry_id)
            return
        row, name = matches[0], changes.pop("name", None)
        if name is not None and name.value != row.name:
            self.report.warn(
                name, f"patch skipped: the entry's name is {row.name!r}, not {name.value!r}", entry_id
            )
            return
        row.fields |= changes
        if changes.keys() & {"config", "group"}:
            row.children = None
        if insert is not None and row.kind != "group":
            self.report.problem(insert, "entries can be inserted into a group only", entry_id)
        elif insert is not None:
            read_rows(insert, row.files, self.report, self.children(row))

    def _find(self, rows: list[Row], entry_id: str) -> Iterator[Row]:
        """The row of that id in `rows`, else those in the lists below."""
        for row in rows:
            if row.id == entry_id:
                yield row
                return
        for row in self._parents(rows):
            yield from self._find(self.children(row), entry_id)

    def _ids(self, rows: list[Row]) -> Iterator[str]:
        yield from (row.id for row in rows)
        for row in self._parents(rows):
            yield from self._ids(self.children(row))

    def _parents(self, rows: list[Row]) -> Iterator[Row]:
        return (row for row in rows if row.kind != "entry" and not self.is_disabled(row))

    def _rows(self, root: Node | None, files: tuple[str, ...]) -> list[Row]:
        rows: list[Row] = []
        if root is not None:
            read_rows(root, files, self.report, rows)
        return rows

    def _grouped(self, row: Row) -> list[Row]:
        config = row.fields.get("config")
        return self._rows(None if config is None or config.tag.endswith(":null") else config, row.files)

    def _included(self, row: Row) -> list[Row]:
        settings = self._settings(row)
        path_node = settings.get("path")
        if path_node is None:
            return []
        # Relative to the file that the path is written in, which for a patched row is the patch's.
        path = os.path.normpath(os.path.join(os.path.dirname(path_node.start_mark.name), path_node.value))
        files = (*row.files, os.path.realpath(path))
        self.n_files += 1
        if files[-1] in row.files:
            self.report.problem(path_node, f"{path} includes itself: {' → '.join(files)}", row.id)
            return []
        if self.n_files > MAX_FILES:
            self.report.problem(path_node, f"more than {MAX_FILES} files are included", row.id)
            return []
        rows = self._rows(self._read(path, (path_node, row)), files)
        if "patches" in settings:
            self.patch(rows, settings["patches"], files)
        return rows

    def _settings(self, row: Row) -> dict[str, Node]:
        """The configuration of an include by key; without `path` when that is wrong."""
        config = row.fields.get("config", row.node)
        settings = fields(config) if config is not row.node and isinstance(config, MappingNode) else {}
        for key in settings.keys() - set(INCLUDE_KEYS):
            message = f"unknown key $.{key}{nearest(key, INCLUDE_KEYS)}; allowed: {', '.join(INCLUDE_KEYS)}"
            self.report.problem(settings[key], message, row.id)
        path_node = settings.get("path")
        if path_node is None or not is_string(path_node) or not path_node.value:
            message = "an include needs a config with the path of a file, written out"
            self.report.problem(path_node or config, message, row.id)
            settings.pop("path", None)
        return settings

    def _read(self, path: str, asked_by: tuple[Node, Row] | None = None) -> Node | None:
        """The root of a file. One that cannot be opened is a fault of the row that asked for it."""
        self.paths.append(path)
        try:
            root = read(path)
        except UnreadableError as error:
            if asked_by is None or error.line is not None:
                self.report.problem_at(path, error.line, str(error))
            else:
                self.report.problem(asked_by[0], f"{path}: {error}", asked_by[1].id)
            return None
        return root if check(root, self.report) else None

"""The rows of a composition as they are written: identified and checked, not yet evaluated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from yaml.nodes import MappingNode, Node, SequenceNode

from cordisd.errors import nearest
from cordisd.kernel.document import fields, is_expression, is_string
from cordisd.kernel.report import Report

FIELDS: Final = ("id", "name", "config", "disabled", "group", "inject", "intercept", "isolate")
GROUP_NAMES: Final = ("cordis:group",)
INCLUDE_NAMES: Final = ("cordis:include", "@deepseek-ai/cordis-plugin-include")


@dataclass(slots=True)
class Row:
    """One row. Patches replace its `fields`; `files` are the real paths that led here, outermost first.

    A row without an id is called by its place in the list: `#3` is the third.
    """

    id: str
    node: MappingNode
    fields: dict[str, Node]
    files: tuple[str, ...]
    children: list[Row] | None = None
    """Of a group or include: its rows, once they were asked for."""

    @property
    def name(self) -> str | None:
        """The entry name, where it is a string."""
        node = self.fields.get("name")
        return node.value if node is not None and is_string(node) else None

    @property
    def kind(self) -> Literal["entry", "group", "include"]:
        """What the row stands for."""
        if self.name in INCLUDE_NAMES:
            return "include"
        flag = self.fields.get("group")
        is_group = self.name in GROUP_NAMES or (flag is not None and flag.value in ("true", "True", "TRUE"))
        return "group" if is_group else "entry"


def read_rows(nodes: Node, files: tuple[str, ...], report: Report, rows: list[Row]) -> None:
    """Append the rows of a list node to `rows`, in order; a faulty row is reported and left out."""
    if not isinstance(nodes, SequenceNode):
        report.problem(nodes, f"must be a list of entries, not {describe(nodes)}")
        return
    taken = {row.id: row for row in rows}
    for node in nodes.value:
        row = _read_row(node, len(rows) + 1, files, report)
        if row is None:
            continue
        first = taken.setdefault(row.id, row)
        if first is not row:
            mark = first.node.start_mark
            report.problem(
                node,
                f'duplicate loader entry id: "{row.id}" is already used at {mark.name}:{mark.line + 1}',
                row.id,
            )
        rows.append(row)


def _read_row(node: Node, number: int, files: tuple[str, ...], report: Report) -> Row | None:
    if not isinstance(node, MappingNode):
        report.problem(node, f"an entry must be a mapping with a name, not {describe(node)}")
        return None
    written = fields(node)
    id_node = written.get("id")
    if id_node is None:
        return Row(f"#{number}", node, written, files)
    if is_string(id_node) and id_node.value:
        return Row(id_node.value, node, written, files)
    report.problem(id_node, f"id must be a non-empty string, not {describe(id_node)}", f"#{number}")
    return Row(f"#{number}", node, written, files)


def check_row(row: Row, is_published: bool, report: Report) -> bool:
    """Report what is wrong with the fields of a row, after patches. False when its name is wrong."""
    for key, node in row.fields.items():
        if key not in FIELDS:
            message = f'unknown entry field "{key}"{nearest(key, FIELDS)}; allowed: {", ".join(FIELDS)}'
            tell = report.warn if is_published else report.problem
            tell(node, message, row.id)
        elif key not in ("config", "disabled"):
            for expression in _expressions(node):
                message = f"{key} must be written out; !!js is evaluated in config and disabled only"
                report.problem(expression, message, row.id)
    flag = row.fields.get("group")
    if flag is not None and not flag.tag.endswith(":bool"):
        report.problem(flag, f"group must be true or false, not {describe(flag)}", row.id)
    problem = _name_problem(row)
    if problem:
        report.problem(row.fields.get("name", row.node), problem, row.id)
    return problem is None


def _name_problem(row: Row) -> str | None:
    name = row.fields.get("name")
    if name is None:
        return None if row.kind == "group" else "has no name; an entry names what it loads"
    if not row.name:
        return f"name must be a non-empty string, not {describe(name)}"
    if row.kind == "group" and row.name not in GROUP_NAMES:
        return f'a group is named {GROUP_NAMES[0]} or has no name, not "{row.name}"'
    return None


def _expressions(node: Node) -> Iterator[Node]:
    """The `!!js` expressions in a node."""
    if isinstance(node, (MappingNode, SequenceNode)):
        for child in fields(node).values() if isinstance(node, MappingNode) else node.value:
            yield from _expressions(child)
    elif is_expression(node):
        yield node


def describe(node: Node) -> str:
    """What a node is, as a message says it: `a mapping`, `a list`, `nothing`, `'text'`."""
    if isinstance(node, MappingNode):
        return "a mapping"
    if isinstance(node, SequenceNode):
        return "a list"
    if is_expression(node):
        return "an expression"
    return repr(node.value)[:60] if node.value or is_string(node) else "nothing"

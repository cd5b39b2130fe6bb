"""What YAML's own parser lets through and a composition may not hold.

Duplicate keys, merge keys, tags other than `!!js` and those of the core schema, expressions outside the
subset. An alias means a copy, within a limit on the size of the whole.
"""

from __future__ import annotations

from typing import Final

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from cordisd.kernel.document import CORE, JS, STR, TAG, fields, text_of
from cordisd.kernel.expr import parse
from cordisd.kernel.javascript import ExpressionError
from cordisd.kernel.report import Report

MAX_DEPTH: Final = 64
MAX_NODES: Final = 100_000
"""Values of a document with its aliases written out; bounds what a few nested aliases can grow to."""


def check(root: Node, report: Report) -> bool:
    """Report every fault below `root`, the list of a composition or of patches.

    False when the document must not be read on: it has no end, or a value whose tag says what it is not.
    """
    walk = _Check(report)
    walk.visit(root, None, "rows", 0)
    return walk.is_sound


class _Check:
    """A walk over a document; `entry_id` is the innermost entry around a node."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.is_sound = True
        self.n_nodes = 0

    def visit(self, node: Node, entry_id: str | None, role: str | None, depth: int) -> None:
        """Check a node and all below it. `role`: "rows" a list of entries, "row" one, "config" its config."""
        self.n_nodes += 1
        if self.n_nodes > MAX_NODES:
            if self.n_nodes == MAX_NODES + 1:
                self.refuse(
                    node, f"the document has more than {MAX_NODES} values, aliases written out", entry_id
                )
        elif depth > MAX_DEPTH:
            self.refuse(node, f"the document has more than {MAX_DEPTH} levels", entry_id)
        elif isinstance(node, ScalarNode):
            self.scalar(node, entry_id)
        elif node.tag not in (TAG + "map", TAG + "seq"):
            self.refuse(node, f"unknown tag {_short(node.tag)}; only !!js is known", entry_id)
        elif isinstance(node, SequenceNode):
            for item in node.value:
                self.visit(item, entry_id, "row" if role == "rows" else None, depth + 1)
        elif isinstance(node, MappingNode):
            self.mapping(node, entry_id, role, depth)

    def refuse(self, node: Node, message: str, entry_id: str | None) -> None:
        self.is_sound = False
        self.report.problem(node, message, entry_id)

    def mapping(self, node: MappingNode, entry_id: str | None, role: str | None, depth: int) -> None:
        if role == "row":
            entry_id = text_of(fields(node).get("id")) or entry_id
        lines: dict[str, int] = {}
        for key, value in node.value:
            name = text_of(key)
            if name is None:
                self.report.problem(key, "a key must be a plain word or a string", entry_id)
                continue
            if name == "<<" and not key.style:
                self.report.problem(key, "merge keys (<<) are not supported; write the keys out", entry_id)
            if name in lines:
                self.report.problem(key, f'duplicate key "{name}", first on line {lines[name]}', entry_id)
            lines.setdefault(name, key.start_mark.line + 1)
            self.visit(value, entry_id, _role(role, name, value), depth + 1)

    def scalar(self, node: ScalarNode, entry_id: str | None) -> None:
        if node.tag == JS:
            try:
                parse(node.value)
            except ExpressionError as error:
                self.report.problem(node, str(error), entry_id)
        elif node.tag in CORE:
            if not CORE[node.tag][0].fullmatch(node.value):
                self.refuse(node, f"{node.value!r} is not of the tag {_short(node.tag)}", entry_id)
        elif node.tag != STR:
            self.refuse(node, f"unknown tag {_short(node.tag)}; only !!js is known", entry_id)


def _role(role: str | None, key: str, value: Node) -> str | None:
    if role == "row" and key in ("config", "insert"):
        return "rows" if isinstance(value, SequenceNode) else "config"
    return "rows" if role == "config" and key == "patches" else None


def _short(tag: str) -> str:
    return tag.replace(TAG, "!!")

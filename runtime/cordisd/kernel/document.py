"""YAML 1.2 documents: nodes that know their file and line, and the plain values that they stand for.

The parser is libyaml's, the types are those of the core schema: `on`, `no` and dates are strings, `012` is
twelve. `!!js` marks an expression.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from io import StringIO
from typing import Any, Final

from yaml import CSafeLoader, MarkedYAMLError
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.reader import ReaderError

from cordisd.kernel.javascript import UNDEFINED, ExpressionError, Value

MAX_BYTES: Final = 8 * 2**20

TAG: Final = "tag:yaml.org,2002:"
JS: Final = TAG + "js"
STR: Final = TAG + "str"
CORE: Final[dict[str, tuple[re.Pattern[str], Callable[[str], Any]]]] = {
    TAG + "null": (re.compile(r"~|null|Null|NULL|"), lambda text: None),
    TAG + "bool": (re.compile(r"true|True|TRUE|false|False|FALSE"), lambda text: text.lower() == "true"),
    TAG + "int": (
        re.compile(r"[-+]?[0-9]{1,40}|0o[0-7]{1,40}|0x[0-9a-fA-F]{1,40}"),
        lambda text: int(text, 0) if text[:2] in ("0o", "0x") else int(text),
    ),
    TAG + "float": (
        re.compile(
            r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
        ),
        lambda text: float(text.lower().replace(".inf", "inf").replace(".nan", "nan")),
    ),
}
_NOT_STRING: Final = frozenset("~nNtTfF-+.0123456789")
"""First characters of plain scalars that may be something else than a string."""


class _Loader(CSafeLoader):
    def resolve(self, kind: type[Node], value: Any, implicit: Any) -> str:
        """The tag of an untagged node; libyaml's composer asks for each."""
        if kind is not ScalarNode:
            return TAG + ("seq" if kind is SequenceNode else "map")
        if implicit[0] and (not value or value[0] in _NOT_STRING):
            for tag, (pattern, _) in CORE.items():
                if pattern.fullmatch(value):
                    return tag
        return STR


class _NamedText(StringIO):
    """A text that the parser's position marks call by its file's name."""

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text)
        self.name = name


class UnreadableError(Exception):
    """A file holds no YAML document; `line` is where, from 1, or None when nothing could be read."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


def read(path: str) -> Node:
    """The root node of a YAML file. Only `cordisd.kernel.strict` says whether it keeps our rules.

    Raises:
        UnreadableError: there is no such file, or it is not UTF-8, not YAML or empty.
    """
    content = _content(path)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableError(f"is not UTF-8: {error.reason}", _line(content, error.start)) from error
    try:
        root = _Loader(_NamedText(text, path)).get_single_node()
    except MarkedYAMLError as error:
        line = error.problem_mark.line if error.problem_mark else 0
        raise UnreadableError(
            f"is not YAML: {_explain(error, text.splitlines()[line:])}", line + 1
        ) from error
    except ReaderError as error:
        raise UnreadableError(f"is not YAML: {error.reason}", _line(content, error.position)) from error
    if root is None:
        raise UnreadableError("is empty; write a list of entries, or [] for none")
    return root


def _content(path: str) -> bytes:
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path) or path.startswith("/dev/")):
        raise UnreadableError("is no regular file; opening it might never end")
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_BYTES + 1)
    except IsADirectoryError as error:
        raise UnreadableError("is a directory, not a YAML file") from error
    except FileNotFoundError as error:
        raise UnreadableError("config file not found") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise UnreadableError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if len(content) > MAX_BYTES:
        raise UnreadableError(f"is larger than {MAX_BYTES} bytes")
    return content


def _line(content: bytes, offset: int) -> int:
    return content.count(b"\n", 0, offset) + 1


def _explain(error: MarkedYAMLError, rest: Sequence[str]) -> str:
    reason = " ".join(part for part in (error.context, error.problem) if part)
    hint = '; an expression with ": " or " #" in it needs quotes: !!js "…"'
    return reason + (hint if rest and "!!js" in rest[0] else "")


def text_of(node: Node | None) -> str | None:
    """The text of a scalar as written; None for anything else, an expression included."""
    return node.value if isinstance(node, ScalarNode) and node.tag != JS else None


def is_string(node: Node | None) -> bool:
    """Whether a node is a string, not a number, boolean, null or expression."""
    return node is not None and node.tag == STR


def is_expression(node: Node) -> bool:
    """Whether a node is a `!!js` expression."""
    return node.tag == JS


def fields(node: MappingNode) -> dict[str, Node]:
    """The values of a mapping by key."""
    return {key.value: value for key, value in node.value if isinstance(key, ScalarNode)}


def construct(node: Node, evaluate: Callable[[str], Value], fail: Callable[[Node, str], None]) -> Value:
    """The plain value of a checked node, expressions evaluated; a key whose value is undefined is absent.

    `fail(node, message)` is called for each expression without a value; the result is then of no use.
    """
    if isinstance(node, ScalarNode):
        if node.tag == JS:
            try:
                return evaluate(node.value)
            except ExpressionError as error:
                fail(node, str(error))
                return None
        return CORE[node.tag][1](node.value) if node.tag in CORE else node.value
    if isinstance(node, MappingNode):
        pairs = ((key, construct(value, evaluate, fail)) for key, value in fields(node).items())
        return {key: value for key, value in pairs if value is not UNDEFINED}
    items = [construct(item, evaluate, fail) for item in node.value]
    for item, child in zip(items, node.value, strict=True):
        if item is UNDEFINED:
            fail(child, "is undefined; a list cannot hold that")
    return items


def find(node: Node, path: Sequence[str | int]) -> Node:
    """The node at a path of keys and indexes, or the deepest one on the way that exists."""
    for step in path:
        if isinstance(node, MappingNode) and isinstance(step, str):
            node = fields(node).get(step, node)
        elif isinstance(node, SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
    return node

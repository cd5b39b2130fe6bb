"""What the sources say of a class: its own docstring, and the string below each of its fields.

Python keeps the first and drops the others, so they are read from the source when a schema is asked for.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import pairwise


def class_text(cls: type) -> str:
    """The docstring of a class itself, unwrapped; empty without one."""
    return unwrap(cls.__dict__.get("__doc__") or "")


def field_texts(cls: type) -> dict[str, str]:
    """The string below each annotated field by the field's name, unwrapped; those of base classes too.

    A class whose source cannot be read adds nothing.
    """
    texts: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        texts |= _texts_of_module(base.__module__).get(base.__qualname__, {})
    return texts


def unwrap(text: str) -> str:
    """A docstring without its indentation, each paragraph and list item in one line."""
    return re.sub(r"(?<!\n)\n(?![\n*-]) *", " ", inspect.cleandoc(text))


@lru_cache(maxsize=64)
def _texts_of_module(name: str) -> Mapping[str, Mapping[str, str]]:
    try:
        tree = ast.parse(inspect.getsource(sys.modules[name]))
    except (KeyError, OSError, TypeError, SyntaxError):  # built in, compiled, or typed at a prompt
        return {}
    texts: dict[str, dict[str, str]] = {}
    for qualname, node in _classes(tree, ""):
        # A `TypedDict` does not know its bases before Python 3.12: those beside it are found by their names.
        beside = [texts.get(base.id, {}) for base in node.bases if isinstance(base, ast.Name)]
        texts[qualname] = {
            field: text for own in (*beside, _texts_of_class(node)) for field, text in own.items()
        }
    return texts


def _classes(parent: ast.AST, prefix: str) -> Iterator[tuple[str, ast.ClassDef]]:
    """Every class below a node with its `__qualname__`."""
    for node in ast.iter_child_nodes(parent):
        match node:
            case ast.ClassDef():
                yield prefix + node.name, node
                yield from _classes(node, f"{prefix}{node.name}.")
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from _classes(node, f"{prefix}{node.name}.<locals>.")
            case _:
                yield from _classes(node, prefix)


def _texts_of_class(node: ast.ClassDef) -> dict[str, str]:
    texts: dict[str, str] = {}
    for field, below in pairwise(node.body):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                texts[name] = unwrap(text)
    return texts

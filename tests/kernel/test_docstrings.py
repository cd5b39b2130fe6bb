from __future__ import annotations

import textwrap
from pathlib import Path
from types import ModuleType
from typing import TypedDict

import pytest

from cordisd.kernel.docstrings import class_text, field_texts, unwrap

SOURCE = '''
class Base:
    """Of the base."""

    inherited: int = 1
    """Kept as the base
    says it."""
    replaced: int = 2
    """Said by the base."""


if True:

    class Thing(Base):
        replaced: int = 3
        """Said by the class itself."""
        silent: str = "x"
        spaced: str = "y"

        """After a blank line.

        A second paragraph:
        * one item,
          which goes on
        * another item."""
        not_a_field = 1
        """Below something without a type."""

        class Inner:
            deep: int
            """In the inner class."""


def make():
    class Local:
        local: int
        """In a function."""

    return Local
'''


class Shape(TypedDict):
    inherited: int
    """Of the base, which a shape forgets."""


class Wider(Shape):
    own: str
    """Of its own."""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    (tmp_path / "written_for_docstrings.py").write_text(textwrap.dedent(SOURCE))
    monkeypatch.syspath_prepend(str(tmp_path))
    import written_for_docstrings  # type: ignore[import-not-found]

    return written_for_docstrings


def test_the_string_below_a_field_is_read_base_classes_included(module: ModuleType) -> None:
    assert field_texts(module.Thing) == {
        "inherited": "Kept as the base says it.",
        "replaced": "Said by the class itself.",
        "spaced": "After a blank line.\n\nA second paragraph:\n* one item, which goes on\n* another item.",
    }


def test_a_shape_has_the_strings_of_the_shapes_that_it_widens() -> None:
    assert field_texts(Wider) == {"inherited": "Of the base, which a shape forgets.", "own": "Of its own."}


def test_inner_and_local_classes_are_found(module: ModuleType) -> None:
    assert field_texts(module.Thing.Inner) == {"deep": "In the inner class."}
    assert field_texts(module.make()) == {"local": "In a function."}


def test_a_class_without_a_docstring_does_not_take_that_of_its_base(module: ModuleType) -> None:
    assert class_text(module.Base) == "Of the base."
    assert class_text(module.Thing) == ""


def test_a_class_without_a_source_has_no_texts() -> None:
    assert field_texts(int) == {}
    assert field_texts(type("Made", (), {"__module__": "nowhere"})) == {}


def test_lines_of_a_paragraph_are_joined() -> None:
    assert unwrap("One\n    and two.\n\n    Three.") == "One and two.\n\nThree."

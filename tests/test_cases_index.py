"""The indexes of public reports and cases name tests that are there, and every case."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
RUNTIME_CASES = Path("/work/shared/cases/runtime_cases.md")


def names_in(*folders: str) -> set[str]:
    """The names of all tests below these folders."""
    sources = [path.read_text() for folder in folders for path in (HERE / folder).glob("*.py")]
    return set(re.findall(r"def (test_\w+)\(", "".join(sources)))


@pytest.mark.parametrize(
    ("index", "folders"), [("tools", ("tools", "load")), ("wire", ("wire", "tools", "sdk"))]
)
def test_every_test_that_an_index_names_exists(index: str, folders: tuple[str, ...]) -> None:
    named = set(re.findall(r"`(test_\w+)`", (HERE / index / "CASES.md").read_text()))
    assert len(named) > 30
    assert named - names_in(*folders) == set()


def test_every_runtime_case_has_a_row() -> None:
    if not RUNTIME_CASES.exists():
        pytest.skip("the catalogue of cases is not here")
    cases = set(re.findall(r"^(\d+)\. \*\*", RUNTIME_CASES.read_text(), re.MULTILINE))
    rows = set(re.findall(r"^\| (\d+) ", (HERE / "wire" / "CASES.md").read_text(), re.MULTILINE))
    assert len(cases) > 30
    assert rows == cases

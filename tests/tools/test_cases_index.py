"""The index of public reports names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent


def test_every_test_that_the_index_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", (HERE / "CASES.md").read_text()))
    sources = "".join(path.read_text() for path in [*HERE.glob("*.py"), *HERE.parent.glob("load/*.py")])
    assert len(named) > 30
    assert named - set(re.findall(r"def (test_\w+)\(", sources)) == set()

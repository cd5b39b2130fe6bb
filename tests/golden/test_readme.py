"""The README's list of methods is what the methods say of themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordisd.rpc.openrpc import document

README = Path(__file__).parents[2] / "README.md"
BEGIN, END = "<!-- methods: pytest tests/golden/test_readme.py --update-golden -->\n", "<!-- end -->\n"


def method_table() -> str:
    rows = [f"| `{method['name']}` | {method['summary']} |" for method in document()["methods"]]
    return "".join(f"{row}\n" for row in ("| method | what it does |", "|---|---|", *rows))


def test_the_readme_lists_every_method_as_it_describes_itself(request: pytest.FixtureRequest) -> None:
    before, begin, rest = README.read_text().partition(BEGIN)
    kept, end, after = rest.partition(END)
    assert begin and end, f"{README} has no block between {BEGIN!r} and {END!r}"
    if request.config.option.update_golden:
        kept = method_table()
        README.write_text(f"{before}{begin}{kept}{end}{after}")
    assert kept == method_table(), f"run {BEGIN[14:-5]}"


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= 150

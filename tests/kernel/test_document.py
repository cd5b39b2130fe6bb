from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordisd.kernel.document import UnreadableError, read
from cordisd.kernel.report import Report
from cordisd.kernel.strict import check


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"),
        ("no", "no"),
        ("yes", "yes"),
        ("Off", "Off"),
        ("012", 12),
        ("0o17", 15),
        ("0x1F", 31),
        ("0b11", "0b11"),
        ("1_000", "1_000"),
        ("12:30:45", "12:30:45"),
        ("2026-01-01", "2026-01-01"),
        ("+5", 5),
        ("-5", -5),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("-.inf", -math.inf),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("", None),
        ("nULL", "nULL"),
        ("'1'", "1"),
        ("!!str 1", "1"),
        ("!!int '1'", 1),
        ("<<", "<<"),
        ("=", "="),
        ("[1, {a: [b]}]", [1, {"a": ["b"]}]),
        ("{1: a, true: b}", {"1": "a", "true": "b"}),
        ("&anchor [1, 2]", [1, 2]),
        ("[&a {b: c}, *a]", [{"b": "c"}, {"b": "c"}]),
    ],
)
def test_scalars_have_the_types_of_yaml_1_2(
    value_of: Callable[[str], object], text: str, value: object
) -> None:
    found = value_of(text)
    assert found == value
    assert type(found) is type(value)


def test_a_not_a_number_is_a_float(value_of: Callable[[str], object]) -> None:
    found = value_of(".NaN")
    assert isinstance(found, float)
    assert math.isnan(found)


def _faults(path: Path) -> list[str]:
    report = Report()
    check(read(str(path)), report)
    return [str(problem).removeprefix(f"{path}:") for problem in report._in_file_order(report._problems)]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("- id: a\n  name: n\n  id: b\n", '3, entry "b": duplicate key "id", first on line 1'),
        ("- id: a\n  config:\n    x: 1\n    'x': 2\n", '4, entry "a": duplicate key "x", first on line 3'),
        (
            "- id: a\n  config:\n    <<: {x: 1}\n",
            '3, entry "a": merge keys (<<) are not supported; write the keys out',
        ),
        ("- id: a\n  config: {[1]: 2}\n", '2, entry "a": a key must be a plain word or a string'),
        ("- id: a\n  config: !foo 1\n", '2, entry "a": unknown tag !foo; only !!js is known'),
        ("- id: a\n  config: !!set {x}\n", '2, entry "a": unknown tag !!set; only !!js is known'),
        ("- id: a\n  config: !!js {x: 1}\n", '2, entry "a": unknown tag !!js; only !!js is known'),
        ("- id: a\n  config: !!int x\n", "2, entry \"a\": 'x' is not of the tag !!int"),
        ("- id: a\n  config: !!binary aGk=\n", '2, entry "a": unknown tag !!binary; only !!js is known'),
    ],
)
def test_what_a_composition_may_not_hold_is_named_with_its_line(
    tmp_path: Path, text: str, fault: str
) -> None:
    path = tmp_path / "c.yml"
    path.write_text(text)
    assert _faults(path) == [fault]


def test_a_fault_inside_a_group_names_the_innermost_entry(tmp_path: Path) -> None:
    path = tmp_path / "c.yml"
    path.write_text("- id: g\n  name: cordis:group\n  config:\n    - id: inner\n      name: !foo x\n")
    assert _faults(path) == ['5, entry "inner": unknown tag !foo; only !!js is known']


def test_nested_aliases_cannot_grow_without_bound(tmp_path: Path) -> None:
    path = tmp_path / "c.yml"
    lines = ["- {id: a0, config: &a0 [x, x, x, x, x, x, x, x, x, x]}"]
    lines += [f"- {{id: a{n}, config: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, 10)]
    path.write_text("\n".join(lines))
    (fault,) = _faults(path)
    assert "the document has more than 100000 values, aliases written out" in fault


@pytest.mark.parametrize("text", ["- &a [*a]", "- &a {b: [*a]}", "- " + "[" * 200 + "]" * 200])
def test_endless_nesting_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.yml"
    path.write_text(text)
    (fault,) = _faults(path)
    assert "more than 64 levels" in fault


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        (b"", None, "is empty; write a list of entries, or [] for none"),
        (b"# only a comment\n", None, "is empty"),
        (b"- a\n- \xff\n", 2, "is not UTF-8"),
        (b"- a\n- b\n- [\n", 4, "is not YAML"),
        (
            b"- a\n---\n- b\n",
            2,
            "is not YAML: expected a single document in the stream but found another document",
        ),
        (b"- *nobody\n", 1, "is not YAML: found undefined alias"),
        (b"- a\n- \x01\n", 2, "is not YAML: control characters are not allowed"),
        (b"- x: !!js process.env.A ? 'a' : 'b'\n", 1, 'an expression with ": " or " #" in it needs quotes'),
        (b"- " + b"[" * 5000, 1, "is not YAML"),
    ],
)
def test_a_file_that_is_no_document_is_one_clear_fault(
    tmp_path: Path, content: bytes, line: int | None, message: str
) -> None:
    path = tmp_path / "c.yml"
    path.write_bytes(content)
    with pytest.raises(UnreadableError) as caught:
        read(str(path))
    assert message in str(caught.value)
    assert caught.value.line == line


def test_a_file_that_cannot_be_opened_is_one_clear_fault(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path, message in [
        (tmp_path / "missing.yml", "config file not found"),
        (tmp_path, "is a directory"),
        (pipe, "is no regular file"),
        ("/proc/self/mem", "cannot be read: Input/output error"),
        ("/dev/zero", "is larger than"),
        ("a\0b", "cannot be read"),
    ]:
        with pytest.raises(UnreadableError, match=message):
            read(str(path))


def test_a_byte_order_mark_and_windows_line_ends_do_not_move_lines(tmp_path: Path) -> None:
    path = tmp_path / "c.yml"
    path.write_bytes(b"\xef\xbb\xbf- id: a\r\n  name: x\r\n  name: y\r\n")
    assert _faults(path) == ['3, entry "a": duplicate key "name", first on line 2']


@given(st.text(alphabet="ab-:[]{}&*!<'\"#| \n\t?,0.", max_size=40))
def test_any_text_is_a_document_or_unreadable(text: str) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".yml", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        try:
            check(read(file.name), Report())
        except UnreadableError as error:
            assert str(error)

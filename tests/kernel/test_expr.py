from __future__ import annotations

import math
import os
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordisd.kernel.expr import evaluate, parse
from cordisd.kernel.javascript import UNDEFINED, ExpressionError

ENV = {
    "SET": "value",
    "EMPTY": "",
    "N": "7",
    "BAD": "seven",
    "JSON": '{"a": [1, null]}',
    "DSH_HOME": "/home/dsh",
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("process.env.SET", "value"),
        ("process.env.MISSING", UNDEFINED),
        ("process.env.SET ?? 'literal'", "value"),
        ("process.env.MISSING ?? 'literal'", "literal"),
        ("process.env.EMPTY ?? 'literal'", ""),
        ("process.env.MISSING ?? process.cwd()", os.getcwd()),
        ("process.env.EMPTY || 'literal'", "literal"),
        ("process.env.SET || 'literal'", "value"),
        ("process.env.SET && 800 || 50000", 800),
        ("process.env.EMPTY && 800 || 50000", 50000),
        ("process.env.MISSING && 800", UNDEFINED),
        ("process.cwd()", os.getcwd()),
        ("process.cwd() + '/sub'", os.getcwd() + "/sub"),
        ("process.execPath", sys.executable),
        ("process.platform === 'win32'", False),
        ("process.platform !== 'win32'", True),
        ("Number(process.env.N ?? 1000000)", 7),
        ("Number(process.env.MISSING ?? 1000000)", 1000000),
        ("JSON.parse(process.env.JSON ?? '{}')", {"a": [1, None]}),
        ("JSON.parse(process.env.MISSING ?? '[]')", []),
        ("process.env.MISSING === undefined ? 'a' : 'b'", "a"),
        ("process.env.JSON === undefined ? true : JSON.parse(process.env.JSON)", {"a": [1, None]}),
        ("process.env.MISSING === undefined ? true : JSON.parse(process.env.MISSING)", True),
        ("(process.env.A ?? (process.env.B === undefined ? 'x' : 'y')) === 'x' ? 'never' : 'ask'", "never"),
        ("dshHomePath('sessions')", "/home/dsh/sessions"),
    ],
)
def test_each_form_of_the_published_files_has_its_javascript_value(text: str, value: object) -> None:
    found = evaluate(text, ENV)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("null ?? 1", 1),
        ("false ?? 1", False),
        ("0 || 'zero'", "zero"),
        ("Number('x') || 'nan'", "nan"),
        ("JSON.parse('[]') ? 1 : 2", 1),
        ("JSON.parse('{}') || 2", {}),
        ("null === undefined", False),
        ("undefined === undefined", True),
        ("1 === true", False),
        ("0 !== false", True),
        ("'1' === 1", False),
        ("Number('x') === Number('x')", False),
        ("JSON.parse('[]') === JSON.parse('[]')", False),
        ("!process.env.EMPTY", True),
        ("!!'a'", True),
        ("!!!'a'", False),
        ("1 + 2 + 3", 6),
        ("'a' + 'b' + 'c'", "abc"),
        ("true ? false ? 1 : 2 : 3", 2),
        ("false ? 1 : true ? 2 : 3", 2),
        ("true || JSON.parse('not evaluated')", True),
        ("(true && null) ?? 3", 3),
        ("null ?? (false || 4)", 4),
        ("  'spaces'\n", "spaces"),
        (r"'it\'s' + '\n\t\u0041\x42\\'", "it's\n\tAB\\"),
        ("\"double 'quoted'\"", "double 'quoted'"),
    ],
)
def test_operators_follow_javascript(text: str, value: object) -> None:
    found = evaluate(text, ENV)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("''", 0),
        ("' 12 '", 12),
        ("'1e3'", 1000),
        ("'0x1f'", 31),
        ("'-2.5'", -2.5),
        ("'.5'", 0.5),
        ("null", 0),
        ("true", 1),
        ("3", 3),
        ("'-Infinity'", -math.inf),
        ("'1e400'", math.inf),
    ],
)
def test_number_converts_like_javascript(argument: str, value: float) -> None:
    found = evaluate(f"Number({argument})", {})
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "argument",
    ["'x'", "undefined", "'1_000'", "'12px'", "'inf'", "'++Infinity'", "'１'", "'nan'", "JSON.parse('{}')"],
)
def test_number_of_something_else_is_nan(argument: str) -> None:
    assert math.isnan(evaluate(f"Number({argument})", {}))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "process.env",
        "process.env.A.trim()",
        "process.env['A']",
        "process.env.X?.trim() || 'a'",
        "process.exit()",
        "process.cwd",
        "process.cwd(1)",
        "ctx.webStartup.port ?? 1",
        "ctx.get('profileContext')",
        "require('fs')",
        "new URL('x')",
        "Number",
        "Number()",
        "JSON.stringify('a')",
        "dshHomePath(process.env.A)",
        "1 == 1",
        "1 === 1 === true",
        "1 - 1",
        "a = 1",
        "'open",
        "`template`",
        "(1",
        "1)",
        "1 2",
        "true ? 1",
        "[1]",
        "{}",
        "-1",
        "() => 1",
        "__import__('os')",
        "１",
    ],
)
def test_any_other_form_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(ExpressionError, match=r"column \d+ of !!js .*; allowed are process\.env\.NAME"):
        parse(text)


@pytest.mark.parametrize(
    "text", ["1 ?? 2 || 3", "1 || 2 ?? 3", "1 && 2 ?? 3", "1 ?? 2 && 3", "1 ?? 2 ?? 3 && 4"]
)
def test_nullish_mixed_with_other_logic_needs_parentheses(text: str) -> None:
    with pytest.raises(ExpressionError, match="without parentheses"):
        parse(text)


@pytest.mark.parametrize("text", ["''", "'{'", "'NaN'", "undefined", "null", "1", "'[' + '1'"])
def test_json_parse_of_anything_but_json_text_fails(text: str) -> None:
    with pytest.raises(ExpressionError, match=r"JSON\.parse"):
        evaluate(f"JSON.parse({text})", {})


@pytest.mark.parametrize("text", ["process.env.MISSING + '/sub'", "null + 1", "'a' + 1", "true + 1"])
def test_plus_never_turns_an_unset_variable_into_text(text: str) -> None:
    with pytest.raises(ExpressionError, match="joins two strings or adds two numbers"):
        evaluate(text, {})


def test_home_path_falls_back_to_the_user_s_home() -> None:
    assert evaluate("dshHomePath('storages')", {"HOME": "/root"}) == "/root/.dsh/storages"
    assert evaluate("dshHomePath('storages')", {"HOME": "/root", "DSH_HOME": ""}) == "/root/.dsh/storages"


def test_depth_is_bounded() -> None:
    assert evaluate("(" * 30 + "1" + ")" * 30, {}) == 1
    with pytest.raises(ExpressionError, match="nested deeper than 32"):
        parse("(" * 100_000 + "1" + ")" * 100_000)
    assert evaluate("!" * 10_001 + "1", {}) is False
    assert evaluate(" + ".join("1" * 10_000), {}) == 10_000


_WORDS = [
    "process.env.A",
    "'s'",
    "1",
    "null",
    "undefined",
    "(",
    ")",
    "?",
    ":",
    "??",
    "||",
    "&&",
    "===",
    "+",
    "!",
]


@given(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(_WORDS), max_size=20).map(" ".join)))
def test_any_text_is_an_expression_or_an_expression_error(text: str) -> None:
    try:
        evaluate(text, {"A": "a"})
    except ExpressionError as error:
        assert str(error)


_LITERALS = st.sampled_from([("'s'", "s"), ("''", ""), ("0", 0), ("7", 7), ("true", True), ("null", None)])


def _combine(parts: st.SearchStrategy[tuple[str, Any]]) -> st.SearchStrategy[tuple[str, Any]]:
    def logic(left: tuple[str, Any], right: tuple[str, Any], sign: str) -> tuple[str, Any]:
        (left_text, a), (right_text, b) = left, right
        value = {"||": a or b, "&&": a and b, "??": b if a is None else a}[sign]
        return f"({left_text} {sign} {right_text})", value

    choice = st.builds(
        lambda c, a, b: (f"({c[0]} ? {a[0]} : {b[0]})", a[1] if c[1] else b[1]), parts, parts, parts
    )
    negation = st.builds(lambda a: (f"!{a[0]}", not a[1]), parts)
    return st.one_of(st.builds(logic, parts, parts, st.sampled_from(["||", "&&", "??"])), choice, negation)


@given(st.recursive(_LITERALS, _combine, max_leaves=12))
def test_composed_logic_equals_its_parts(case: tuple[str, Any]) -> None:
    text, value = case
    found = evaluate(text, {})
    assert found == value
    assert type(found) is type(value)

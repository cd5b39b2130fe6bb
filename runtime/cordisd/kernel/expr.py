"""`!!js` expressions: the subset that compositions use, read by our own parser (`protocol.md` 8.2).

    ternary  := or ('?' ternary ':' ternary)?
    or       := and ('||' and)* | and ('??' and)*        mixed only with parentheses
    and      := equality ('&&' equality)*
    equality := sum (('===' | '!==') sum)?
    sum      := unary ('+' unary)*
    unary    := '!' unary | primary
    primary  := STRING | NUMBER | true | false | null | undefined | '(' ternary ')' | process.env.NAME
              | process.cwd() | process.execPath | process.platform | Number(ternary) | JSON.parse(ternary)
              | dshHomePath(STRING)

No code of a composition ever runs; any other form is an error.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from cordisd.kernel.javascript import (
    UNDEFINED,
    ExpressionError,
    Value,
    add,
    is_identical,
    is_nullish,
    is_truthy,
    parse_json,
    to_number,
)

Environment = Mapping[str, str]
Expression = Callable[[Environment], Value]

MAX_DEPTH: Final = 32
ALLOWED: Final = (
    "allowed are process.env.NAME, process.cwd(), process.execPath, process.platform, Number(…), "
    "JSON.parse(…), dshHomePath('…'), literals, parentheses and the operators ?? || && === !== + ! ?:"
)
_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<word>[A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)*)|(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    |(?P<string>'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")|(?P<sign>===|!==|\?\?|\|\||&&|[!+?:()]))""",
    re.VERBOSE | re.ASCII,
)
_ESCAPE: Final = r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)"
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0"}
_VARIABLE: Final = re.compile(r"process\.env\.([\w$]+)", re.ASCII)


def evaluate(text: str, env: Environment) -> Value:
    """The value of an expression under `env`: a JSON value or `UNDEFINED`. Integral numbers are int.

    Raises:
        ExpressionError: not of the subset, or a part of it has no value (bad JSON, `+` of undefined).
    """
    return parse(text)(env)


@lru_cache(maxsize=256)
def parse(text: str) -> Expression:
    """The function of the environment that an expression stands for.

    Raises:
        ExpressionError: not of the subset; the message names the column and what is allowed.
    """
    parser = _Parser(text)
    expression = parser.ternary()
    parser.expect("")
    return expression


class _Parser:
    """Recursive descent over the tokens of one expression; each rule returns what it stands for."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.depth = 0
        self.kind: str | None = None
        """Group of the current token: word, number, string or sign; None at the end."""
        self.token = ""
        self.start = self.end = 0
        self.advance()

    def advance(self) -> str:
        """Step over the current token and return it."""
        taken = self.token
        match = _TOKEN.match(self.text, self.end)
        if match:
            self.kind, self.end = match.lastgroup, match.end()
            self.token = match[match.lastgroup or 0]
            self.start = self.end - len(self.token)
        else:
            rest = self.text[self.end :].lstrip()
            self.start = len(self.text) - len(rest)
            self.kind, self.token = None, ""
            if rest:
                raise self.unexpected(rest[0])
        return taken

    def unexpected(self, token: str) -> ExpressionError:
        found = f"unexpected {token}" if token else "unexpected end"
        return ExpressionError(f"{found} at column {self.start + 1} of !!js {self.text}; {ALLOWED}")

    def expect(self, sign: str) -> None:
        """Step over `sign`; the empty one is the end of the text."""
        if self.token != sign:
            raise self.unexpected(self.token)
        if sign:
            self.advance()

    def at(self, *signs: str) -> bool:
        return self.kind == "sign" and self.token in signs

    def ternary(self) -> Expression:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ExpressionError(f"!!js expression is nested deeper than {MAX_DEPTH} levels")
        expression = self.either()
        if self.at("?"):
            self.advance()
            then = self.ternary()
            self.expect(":")
            expression = _choice(expression, then, self.ternary())
        self.depth -= 1
        return expression

    def either(self) -> Expression:
        first, has_and = self.both()
        if not self.at("||", "??"):
            return first
        operands, sign = [first], self.token
        while self.at("||", "??"):
            mixed = self.advance() != sign
            operand, operand_has_and = self.both()
            has_and = has_and or operand_has_and
            if mixed or (has_and and sign == "??"):
                raise ExpressionError(f"?? is mixed with || or && without parentheses in !!js {self.text}")
            operands.append(operand)
        return _chain(operands, is_truthy if sign == "||" else lambda value: not is_nullish(value))

    def both(self) -> tuple[Expression, bool]:
        """A chain of `&&`, and whether there was one."""
        operands = [self.equality()]
        while self.at("&&"):
            self.advance()
            operands.append(self.equality())
        has_and = len(operands) > 1
        return (_chain(operands, lambda value: not is_truthy(value)) if has_and else operands[0]), has_and

    def equality(self) -> Expression:
        left = self.sum()
        if not self.at("===", "!=="):
            return left
        same = self.advance() == "==="
        right = self.sum()
        return lambda env: is_identical(left(env), right(env)) is same

    def sum(self) -> Expression:
        operands = [self.unary()]
        while self.at("+"):
            self.advance()
            operands.append(self.unary())
        return _sum(operands) if len(operands) > 1 else operands[0]

    def unary(self) -> Expression:
        n_negations = 0
        while self.at("!"):
            self.advance()
            n_negations += 1
        operand, is_even = self.primary(), n_negations % 2 == 0
        return (lambda env: is_truthy(operand(env)) is is_even) if n_negations else operand

    def primary(self) -> Expression:
        match self.kind:
            case "string":
                return _constant(self.string())
            case "number":
                return _constant(to_number(self.advance()))
            case "word":
                return self.named()
            case _:
                return self.in_parentheses()

    def in_parentheses(self) -> Expression:
        self.expect("(")
        inner = self.ternary()
        self.expect(")")
        return inner

    def string(self) -> str:
        if self.kind != "string":
            raise self.unexpected(self.token)
        text = self.advance()[1:-1]
        return re.sub(_ESCAPE, _unescape, text) if "\\" in text else text

    def named(self) -> Expression:
        word = self.token
        variable = _VARIABLE.fullmatch(word)
        if not variable and word not in _NAMES:
            raise self.unexpected(word)
        self.advance()
        if variable:
            name = variable[1]
            return lambda env: env.get(name, UNDEFINED)
        return _NAMES[word](self)


def _constant(value: Value) -> Expression:
    return lambda env: value


def _choice(condition: Expression, then: Expression, otherwise: Expression) -> Expression:
    return lambda env: then(env) if is_truthy(condition(env)) else otherwise(env)


def _chain(operands: list[Expression], is_final: Callable[[Value], bool]) -> Expression:
    """The first operand whose value is final, else the last; later ones are not evaluated."""

    def value(env: Environment) -> Value:
        found = UNDEFINED
        for operand in operands:
            found = operand(env)
            if is_final(found):
                break
        return found

    return value


def _sum(operands: list[Expression]) -> Expression:
    def value(env: Environment) -> Value:
        total = operands[0](env)
        for operand in operands[1:]:
            total = add(total, operand(env))
        return total

    return value


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code[1:], 16)) if len(code) > 1 else _ESCAPES.get(code, code)


def _function(function: Callable[[Value], Value]) -> Callable[[_Parser], Expression]:
    def call(parser: _Parser) -> Expression:
        argument = parser.in_parentheses()
        return lambda env: function(argument(env))

    return call


def _working_directory(parser: _Parser) -> Expression:
    parser.expect("(")
    parser.expect(")")

    def value(env: Environment) -> Value:
        try:
            return os.getcwd()
        except OSError as error:
            raise ExpressionError(
                f"process.cwd(): the working directory is gone ({error.strerror})"
            ) from error

    return value


def _home_path(parser: _Parser) -> Expression:
    parser.expect("(")
    name = parser.string().lstrip("/")
    parser.expect(")")

    def value(env: Environment) -> Value:
        home = env.get("DSH_HOME") or os.path.join(env.get("HOME") or os.path.expanduser("~"), ".dsh")
        return os.path.join(home, name)

    return value


_NAMES: Final[dict[str, Callable[[_Parser], Expression]]] = {
    "true": lambda parser: _constant(True),
    "false": lambda parser: _constant(False),
    "null": lambda parser: _constant(None),
    "undefined": lambda parser: _constant(UNDEFINED),
    "process.execPath": lambda parser: _constant(sys.executable),
    "process.platform": lambda parser: _constant(sys.platform),
    "process.cwd": _working_directory,
    "dshHomePath": _home_path,
    "Number": _function(to_number),
    "JSON.parse": _function(parse_json),
}

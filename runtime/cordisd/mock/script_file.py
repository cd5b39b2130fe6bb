"""Script files: a YAML (or JSON) list of replies, read into a `Playlist`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from yaml.nodes import MappingNode, Node, SequenceNode

from cordisd.errors import CompositionError, CordisError, Problem
from cordisd.kernel import strict
from cordisd.kernel.config import explain
from cordisd.kernel.document import UnreadableError, construct, find, read
from cordisd.kernel.javascript import ExpressionError
from cordisd.kernel.report import Report, place
from cordisd.mock.answer import Answer, Call, Token, raw_arguments
from cordisd.mock.faults.table import wrong_fault
from cordisd.mock.parts import Parameter, RawReply
from cordisd.mock.playlist import Match, Playlist, Rule
from cordisd.mock.script_shape import ReplyShape
from cordisd.mock.server import Reply
from cordisd.mock.sse import error, error_object, json_body


class ScriptError(CordisError):
    """A script file cannot be served. `problems` lists every fault found, in file order."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


def read_playlist(path: Path) -> Playlist:
    """The script in a file.

    Raises:
        ScriptError: with every fault, each with file and line.
    """
    report = Report()
    try:
        root = read(str(path))
        rules = _rules(root, report) if strict.check(root, report) else []
        report.raise_problems()
    except UnreadableError as problem:
        where = str(path) if problem.line is None else f"{path}:{problem.line}"
        raise ScriptError((Problem(where, str(problem)),)) from problem
    except CompositionError as problem:
        raise ScriptError(problem.problems) from problem
    return Playlist(rules)


def _rules(root: Node, report: Report) -> list[Rule]:
    if not isinstance(root, SequenceNode):
        report.problem(root, "a script is a list of replies")
        return []
    return [rule for node in root.value if (rule := _rule(node, report)) is not None]


def _rule(node: Node, report: Report) -> Rule | None:
    if not isinstance(node, MappingNode):
        report.problem(node, "a reply is a mapping, such as {text: Hello}")
        return None
    raw: Any = construct(node, _refuse_expression, report.problem)
    try:
        shape = ReplyShape.model_validate(raw)
    except ValidationError as error:
        explain(error, ReplyShape, raw, node, report, what="invalid reply")
        return None
    faults = _faults(shape.faults, node, report)
    match = _match(shape, node, report)
    repeat = (
        None if shape.repeat == "always" or (shape.default and shape.repeat is None) else shape.repeat or 1
    )
    return Rule(_reply(shape, faults, place(node)), match, repeat, shape.default)


def _refuse_expression(text: str) -> object:
    raise ExpressionError("a script holds no !!js expressions")


def _faults(named: dict[str, Any], node: Node, report: Report) -> dict[str, Parameter]:
    """The faults and their parameters; `true` stands for the usual one."""
    faults = {name: None if parameter is True else parameter for name, parameter in named.items()}
    for name, parameter in faults.items():
        if wrong := wrong_fault(name, parameter):
            report.problem(find(node, ["faults", name]), f"invalid reply: {wrong}")
    return faults


def _match(shape: ReplyShape, node: Node, report: Report) -> Match | None:
    if shape.match is None:
        return None

    def compiled(pattern: str | None, *path: str) -> re.Pattern[str] | None:
        try:
            return None if pattern is None else re.compile(pattern)
        except re.error as problem:
            where = ".".join(("$.match", *path))
            report.problem(
                find(node, ["match", *path]), f"invalid reply: {where} is no regular expression: {problem}"
            )
            return None

    headers = {
        name: pattern
        for name, text in shape.match.headers.items()
        if (pattern := compiled(text, "headers", name)) is not None
    }
    one = shape.match
    return Match(
        compiled(one.user, "user"),
        compiled(one.tool, "tool"),
        compiled(one.system, "system"),
        compiled(one.model, "model"),
        headers,
    )


def _reply(shape: ReplyShape, faults: dict[str, Parameter], source: str) -> Reply:
    if (refused := shape.error) is not None:
        if refused.html is not None:
            page = error(refused.status, refused.html.encode())
            return RawReply(
                page.parts, page.status, {**page.headers, **refused.headers}, page.framing, faults, source
            )
        more = {name: value for name in ("type", "code") if (value := getattr(refused, name)) is not None}
        body = json_body(
            error_object(refused.status, refused.message, **more), refused.status, refused.headers
        )
        return RawReply(body.parts, body.status, body.headers, body.framing, faults, source)
    if shape.stream is not None:
        headers = {"Content-Type": "text/event-stream", **shape.headers}
        return RawReply([part.part() for part in shape.stream], 200, headers, faults=faults, source=source)
    calls = [
        Call(
            one.name, _pieces(one.arguments), f"call_{number}" if "id" not in one.model_fields_set else one.id
        )
        for number, one in enumerate(shape.calls, 1)
    ]
    written: dict[str, Any] = {
        "reasoning": _pieces(shape.reasoning),
        "text": _pieces(shape.text),
        "refusal": _pieces(shape.refusal),
        "calls": calls,
        "tokens": [Token(one.text, one.id, one.logprob) for one in shape.tokens],
        "prompt_token_ids": shape.prompt_token_ids or [],
    }
    written = {key: value for key, value in written.items() if value}
    for key in shape.model_fields_set & {"usage", "finish"}:  # which may be null
        written[key] = getattr(shape, key)
    return Answer(**written, headers=shape.headers, faults=faults, source=source)


def _pieces(value: str | list[str] | dict[str, Any] | None) -> list[str]:
    """The deltas of a text, a list of pieces, or arguments given as an object."""
    if value is None:
        return []
    return value if isinstance(value, list) else [raw_arguments(value)]

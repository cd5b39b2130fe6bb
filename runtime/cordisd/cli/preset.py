"""`cordisd preset`: which agents there are, what exactly a model sees of one, and how two differ."""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import Final

from cordisd.agent.check import Verdict, check_agent, problems_of, warnings_about
from cordisd.agent.fingerprint import canonical_json
from cordisd.agent.render import first_request
from cordisd.agent.settings import SessionSettings
from cordisd.cli.difference import differences
from cordisd.cli.host import NAME_RULE, Answer, Hosts, add_composition, answer
from cordisd.cli.output import complain
from cordisd.cli.rollout import DEFAULT_MODEL, UsageError
from cordisd.errors import CordisError, Problem
from cordisd.events import JsonObject
from cordisd.rpc.presets import listing

PARTS: Final = ("request", "system", "tools", "parameters")
N_DIGITS: Final = len("sha256:") + 12
"""Of a digest in a table."""


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the subcommands of `cordisd preset`."""
    commands = parser.add_subparsers(metavar="COMMAND", dest="action", required=True)

    command = commands.add_parser("list", help="every preset of the roster, broken ones with the reason")
    command.add_argument("--json", action="store_true", help="print the answer of the method preset/list")
    add_composition(command)

    command = commands.add_parser(
        "render",
        help="the first model request of a session, byte for byte",
        description="Prints the first model request of a session, byte for byte. Nothing is sent, no key is "
        f"needed. {NAME_RULE} Without NAME: the agent of sessions that name no preset.",
    )
    command.add_argument("name", metavar="NAME", nargs="?")
    command.add_argument(
        "--part",
        choices=PARTS,
        default="request",
        help="only the system prompt as text, or the tools or the parameters as canonical JSON; of a frozen "
        "profile, sha256sum of the first two is prompt_sha256 and tools_sha256 (default: the whole request)",
    )
    command.add_argument(
        "--prompt",
        metavar="TEXT",
        default="",
        help="the first prompt; - reads it from stdin (default: empty)",
    )
    command.add_argument(
        "--cwd", metavar="DIR", default=".", help="of the session; it need not exist (default: here)"
    )
    command.add_argument("--provider", default="deepseek-official", help="default: %(default)s")
    command.add_argument("--model", help=f"else DSH_MODEL, else {DEFAULT_MODEL}")
    command.add_argument("--max-tokens", type=_limit, metavar="N", help="limit of each model answer")
    command.add_argument("--reasoning-effort", metavar="EFFORT", help="one that the model offers")
    add_composition(command)

    command = commands.add_parser(
        "check",
        help="every problem that would keep a session from its first request",
        description=f"Mounts and renders presets, by default all of the roster. {NAME_RULE} Exit code 2: "
        "there are problems.",
    )
    command.add_argument("names", metavar="NAME", nargs="*")
    add_composition(command)

    command = commands.add_parser(
        "diff",
        help="what differs between two agents",
        description=f"Compares all that a digest is taken of. {NAME_RULE} Exit codes: 0 equal, 1 different.",
    )
    command.add_argument("a", metavar="A")
    command.add_argument("b", metavar="B")
    add_composition(command)


def run(args: Namespace) -> int:
    """Run the chosen subcommand; the result goes to stdout, problems to stderr."""
    match args.action:
        case "list":
            return answer(args, lambda hosts: _list(hosts, as_json=args.json))
        case "check":
            return answer(args, lambda hosts: _check(hosts, args.names))
        case "diff":
            return answer(args, lambda hosts: _diff(hosts, args.a, args.b))
    try:
        prompt = _prompt(args.prompt)
    except UsageError as error:
        complain(error)
        return 2
    return answer(args, lambda hosts: _render(hosts, args, prompt))


async def _list(hosts: Hosts, *, as_json: bool) -> Answer:
    await hosts.roster()
    found = await listing(await hosts.main())
    return Answer(json.dumps(found, indent=2) + "\n" if as_json else _table(found))


async def _render(hosts: Hosts, args: Namespace, prompt: str) -> Answer:
    host, preset = await hosts.find(args.name)
    model = args.model or os.environ.get("DSH_MODEL") or DEFAULT_MODEL
    config = host.configure(args.provider, model, args.max_tokens, args.reasoning_effort)
    settings = SessionSettings(os.path.abspath(args.cwd), config)
    rendering = await first_request(host, preset, settings, prompt)
    match args.part:
        case "system":
            part = rendering.system.encode("utf-8", "surrogatepass")
        case "tools":
            part = canonical_json(rendering.tools)
        case "parameters":
            part = canonical_json(rendering.parameters)
        case _:
            part = rendering.body
    return Answer(part)


async def _check(hosts: Hosts, names: list[str]) -> Answer:
    told: dict[Problem, None] = {}
    sound: list[str] = []
    names = names or [preset.name for preset in (await hosts.roster()).list()]
    for name in names:
        verdict = await _verdict(hosts, name)
        complain(*(problem for problem in verdict.problems if problem not in told))
        told |= dict.fromkeys(verdict.problems)
        if not verdict.problems:
            sound.append(f"ok: {name} {verdict.digest}\n")
    return Answer("".join(sound), 0 if len(sound) == len(names) else 2)


async def _verdict(hosts: Hosts, name: str) -> Verdict:
    try:
        host, preset = await hosts.find(name)
    except CordisError as error:
        return Verdict(None, problems_of(error, name))
    warnings = host.composition.warnings if preset.folder is None else warnings_about(preset.folder)
    complain(*warnings, kind="warning")
    return await check_agent(host, preset)


async def _diff(hosts: Hosts, a: str, b: str) -> Answer:
    agents = []
    for name in (a, b):
        host, preset = await hosts.find(name)
        agents.append(await host.try_out(preset))
    fingerprints = [agent.fingerprint for agent in agents]
    if fingerprints[0].digest == fingerprints[1].digest:
        return Answer(f"{fingerprints[0].digest}\n")
    lines = differences(fingerprints[0].document, fingerprints[1].document, (a, b))
    return Answer("".join(f"{line}\n" for line in lines), 1)


def _table(found: JsonObject) -> str:
    """A line for each preset, with the problem of a broken one below it; * marks the default."""
    presets: list[JsonObject] = found["presets"]
    rows = [
        ("name", "title", "trust", "digest", "frozen"),
        *(_row(preset, found["default"]) for preset in presets),
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    problems = ["", *(preset["problem"] or "" for preset in presets)]
    lines: list[str] = []
    for row, problem in zip(rows, problems, strict=True):
        lines.append("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        lines += [f"    {line}" for line in problem.splitlines()]
    return "".join(f"{line}\n" for line in lines)


def _row(preset: JsonObject, default: str | None) -> tuple[str, ...]:
    title = "".join(char if char.isprintable() else " " for char in preset["title"] or "-")
    return (
        preset["name"] + ("*" if preset["name"] == default else ""),
        title,
        preset["trust"],
        "broken" if preset["digest"] is None else preset["digest"][:N_DIGITS],
        "-" if preset["profile"] is None else "frozen",
    )


def _prompt(argument: str) -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8") if argument == "-" else argument
    except UnicodeDecodeError as error:
        raise UsageError(f"the prompt is not UTF-8: {error}") from error


def _limit(argument: str) -> int:
    if not argument.isdecimal() or int(argument) < 1:
        raise ArgumentTypeError(f"must be a whole number above 0, not {argument!r}")
    return int(argument)

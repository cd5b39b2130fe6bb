"""`cordisd profile`: frozen presets and the hashes that they are locked by."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from typing import Final, NamedTuple

from cordisd.agent.agent import Agent
from cordisd.agent.fingerprint import Hashes
from cordisd.agent.host import Host
from cordisd.agent.preset import Preset, Root, Roster
from cordisd.agent.profile import LOCK_FILE, Profile, read_locks, unwritten_keys, write_lock
from cordisd.cli.host import NAME_RULE, Answer, Hosts, add_composition, answer, lines_of
from cordisd.cli.output import complain
from cordisd.errors import CordisError, PresetError
from cordisd.rpc.presets import profile_of

CHANGED: Final = Hashes(
    "the system prompt has changed",
    "a name, a description or a schema of a tool has changed, or their order",
    "the value of a key or a request parameter has changed, or what the results of a tool look like",
)
"""What it means when a hash is the first of the three to differ; the last one covers everything."""


class NotFrozenError(PresetError):
    """A preset was named as a frozen profile, and is none."""


class Frozen(NamedTuple):
    """A mounted and unmounted agent with its profile."""

    agent: Agent
    profile: Profile


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the subcommands of `cordisd profile`."""
    commands = parser.add_subparsers(metavar="COMMAND", dest="action", required=True)

    command = commands.add_parser(
        "show", help="id, hashes, lock, prompt and tools of a frozen preset", description=NAME_RULE
    )
    command.add_argument("name", metavar="NAME")
    command.add_argument("--json", action="store_true", help="print one JSON document")
    add_composition(command)

    command = commands.add_parser(
        "verify",
        help="compare frozen presets with what was locked",
        description="Compares frozen presets with their locks; by default every frozen preset and every lock "
        f"in the folders of the roster. {NAME_RULE} Exit code 1: something differs.",
    )
    command.add_argument("names", metavar="NAME", nargs="*")
    add_composition(command)

    command = commands.add_parser(
        "lock",
        help="lock a frozen preset as it is now",
        description=f"Writes the hashes of a frozen preset into {LOCK_FILE}, beside its folder, for good. "
        f"{NAME_RULE} Exit code 1: it cannot be locked.",
    )
    command.add_argument("name", metavar="NAME")
    add_composition(command)


def run(args: Namespace) -> int:
    """Run the chosen subcommand; the result goes to stdout, problems to stderr."""
    match args.action:
        case "show":
            return answer(args, lambda hosts: _show(hosts, args.name, as_json=args.json))
        case "verify":
            return answer(args, lambda hosts: _verify(hosts, args.names))
        case _:
            return answer(args, lambda hosts: _lock(hosts, args.name))


async def _show(hosts: Hosts, name: str, *, as_json: bool) -> Answer:
    agent, profile = await _frozen(*await hosts.find(name))
    locked = read_locks(profile.lock_path).get(profile.id)
    hashes = agent.fingerprint.hashes
    status = "not locked" if locked is None else "locked" if locked == hashes else "differs from its lock"
    document = {
        "id": profile.id,
        "folder": str(profile.folder),
        "status": status,
        "digest": agent.fingerprint.digest,
        **profile_of(agent),
        "locked": None if locked is None else locked._asdict(),
    }
    if as_json:
        return Answer(json.dumps(document, indent=2) + "\n")
    lines = [f"{profile.id} ({status})", f"folder          {profile.folder}"]
    for field, value in hashes._asdict().items():
        was = (
            "" if locked is None or getattr(locked, field) == value else f", locked {getattr(locked, field)}"
        )
        lines.append(f"{field:<15} {value}{was}")
    lines += ["", "system prompt:", *_indented(document["system"])]
    for tool in document["tools"]:
        schema = json.dumps(tool["parameters"], ensure_ascii=False)
        lines += ["", f"tool {tool['name']}:", *_indented(tool["description"]), *_indented(schema)]
    return Answer("".join(f"{line}\n" for line in lines))


async def _verify(hosts: Hosts, names: list[str]) -> Answer:
    """Checks all that was asked for; one that fails keeps none of the others from being checked."""
    sound: list[str] = []
    failures: list[str] = []
    for name in names:
        host, preset = await hosts.find(name)
        await _check(host, preset, sound, failures)
    if not names:
        host = await hosts.main()
        for root in (await hosts.roster()).roots:
            await _check_folder(host, root, sound, failures)
        if not sound and not failures:
            complain("no preset of the roster is frozen", kind="warning")
    complain(*failures)
    return Answer("".join(f"ok: {line}\n" for line in sound), 1 if failures else 0)


async def _check_folder(host: Host, root: Root, sound: list[str], failures: list[str]) -> None:
    """Every frozen preset of a folder, and every lock in it."""
    lock_path, roster = root.path / LOCK_FILE, Roster([root])
    ids = set(read_locks(lock_path))
    presets = roster.list()
    failures += [
        f"{name}: locked in {lock_path}, but its folder is gone"
        for name in sorted(ids - {one.name for one in presets})
    ]
    for listed in presets:
        if listed.problem is not None:
            lines = listed.problem.splitlines()
            if listed.name in ids:
                failures += [f"{listed.name}: {line}" for line in lines]
            else:
                complain(
                    *(f"{listed.name}: broken, and not locked: {line}" for line in lines), kind="warning"
                )
            continue
        preset = roster.get(listed.name)
        if any(entry.entry_class.freezes for entry in preset.entries):
            await _check(host, preset, sound, failures)
        elif listed.name in ids:
            failures.append(f'{listed.name}: locked in {lock_path}, but its entry "profile" is gone')


async def _check(host: Host, preset: Preset, sound: list[str], failures: list[str]) -> None:
    """Compare a frozen preset with its lock, and add what is said of it to one of the lists."""
    try:
        agent, profile = await _frozen(host, preset)
        differing = agent.fingerprint.hashes.unlike(profile.locked())
    except NotFrozenError:
        raise
    except CordisError as error:
        failures += [f"{preset.name}: {line}" for line in lines_of(error)]
        return
    if not differing:
        sound.append(f"{profile.id} {agent.fingerprint.digest}")
        return
    first = next(iter(differing))
    differing[first] += f": {getattr(CHANGED, first)}"
    failures += [f"{profile.id}: {line}" for line in differing.values()]
    failures.append(
        f"{profile.id}: undo the change, or give the changed preset a new id, {_next(profile.id)}, "
        "as the name of its folder and in its entry, and lock that"
    )


async def _lock(hosts: Hosts, name: str) -> Answer:
    host, preset = await hosts.find(name)
    agent, profile = await _frozen(host, preset)
    told = f"{profile.id} {agent.fingerprint.digest} in {profile.lock_path}\n"
    locked = read_locks(profile.lock_path).get(profile.id)
    if locked == agent.fingerprint.hashes:
        return Answer(f"already locked: {told}")
    unwritten = unwritten_keys(preset.entries) if locked is None else []
    if unwritten:
        complain(
            *(
                f"{profile.id}: {key} is not written out, so a later version could change it"
                for key in unwritten
            )
        )
        return Answer(code=1)
    write_lock(profile.lock_path, profile.id, agent.fingerprint.hashes)
    return Answer(f"locked: {told}")


async def _frozen(host: Host, preset: Preset) -> Frozen:
    agent = await host.try_out(preset)
    if agent.profile is None:
        raise NotFrozenError(f'{preset} is not a frozen profile: it has no entry "profile"')
    return Frozen(agent, agent.profile)


def _next(profile_id: str) -> str:
    name, _, version = profile_id.rpartition("-v")
    return f"{name}-v{int(version) + 1}"


def _indented(text: str) -> list[str]:
    return [f"  {line}".rstrip() for line in text.split("\n")]

"""Hosts for commands that look at agents: mounted in this process, serving nobody, gone afterwards."""

from __future__ import annotations

import asyncio
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Awaitable, Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from cordisd.agent.host import Host
from cordisd.agent.preset import AGENT_FILE, Preset, Root, Roster
from cordisd.cli.output import complain, write_out
from cordisd.errors import CordisError, PresetError, ProfileError, problems_behind
from cordisd.kernel.load import load
from cordisd.shell.guardian import Guardian
from cordisd.shipped import SUFFIX, composition_path, shipped, shipped_names

DEFAULT: Final = "host"
NAME_RULE: Final = (
    "NAME is a preset of the roster; with a slash in it, the folder of a preset; and if it ends in .yml, a "
    "process composition, a file or a shipped one (minimal.cordis.yml): the agent of its sessions without a "
    "preset."
)


class Answer(NamedTuple):
    """What a command has found out: its output and exit code."""

    output: str | bytes = ""
    code: int = 0


@dataclass(slots=True)
class Hosts:
    """The host of the composition that a command is about, and of others that it names."""

    composition: str
    patches: Sequence[str]
    guardian: Guardian
    _open: dict[tuple[str, ...], Host] = field(default_factory=dict)

    async def main(self) -> Host:
        """The host of `composition`.

        Raises:
            CompositionError: it does not load, or an entry of the daemon does not mount.
        """
        path = composition_path(self.composition)
        if not path.exists():
            names = ", ".join(shipped_names())
            raise CordisError(f"{path}: config file not found; shipped compositions: {names}")
        return await self._mounted(path, self.patches)

    async def find(self, name: str | None) -> tuple[Host, Preset]:
        """The agent that `NAME_RULE` means, and the host that it lives in; None: the composition's default.

        Raises:
            CompositionError: as `main`.
            PresetError: there is no such preset, or its files have problems.
        """
        if name is not None and name.endswith((".yml", ".yaml")) and os.path.basename(name) != AGENT_FILE:
            host = await self._mounted(_composition_file(name), ())
            return host, host.preset(None)
        host = await self.main()
        if name is None or os.sep not in name:
            return host, host.preset(name)
        folder = Path(os.path.abspath(name.removesuffix(AGENT_FILE)))
        return host, Roster([Root(folder.parent)]).get(folder.name)

    async def roster(self) -> Roster:
        """The roster of the composition.

        Raises:
            CompositionError: as `main`.
            PresetError: it has none.
        """
        roster = (await self.main()).scope.find(Roster)
        if roster is None:
            raise PresetError(f'{self.composition} has no presets: it holds no entry "presets"')
        return roster

    async def close(self) -> None:
        """Unmount everything."""
        for host in self._open.values():
            await host.close()
        await self.guardian.close()

    async def _mounted(self, path: Path, patches: Sequence[str]) -> Host:
        key = (str(path), *patches)
        if key not in self._open:
            host = Host(load(path, patches=patches), self.guardian)
            await host.mount()
            self._open[key] = host
        return self._open[key]


def add_composition(parser: ArgumentParser) -> None:
    """Declare the arguments that say which composition a command is about."""
    parser.add_argument(
        "--composition",
        metavar="FILE",
        default=DEFAULT,
        help="the process composition whose roster and host are meant, a file or a shipped name "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--patch", metavar="FILE", action="append", default=[], help="a patch list to apply to it; repeatable"
    )


def answer(args: Namespace, work: Callable[[Hosts], Awaitable[Answer]]) -> int:
    """Print the output of `work` and return its exit code.

    Errors go to stderr, a line for each problem: 1 for a frozen profile that fails, 2 for the rest.
    """
    guardian = Guardian.fork()
    try:
        with redirect_stdout(sys.stderr):  # whatever a plug-in prints
            found = asyncio.run(_work(Hosts(args.composition, args.patch, guardian), work))
    except CordisError as error:
        complain(*lines_of(error))
        return 1 if isinstance(error, ProfileError) else 2
    output = found.output
    data = output if isinstance(output, bytes) else output.encode("utf-8", "backslashreplace")
    write_out(data + b"\n" if sys.stdout.isatty() and not data.endswith(b"\n") else data)
    return found.code


def lines_of(error: CordisError) -> list[str]:
    """What an error says: a line for each problem of a composition that is behind it, else its message."""
    return [str(problem) for problem in problems_behind(error)] or [str(error)]


async def _work(hosts: Hosts, work: Callable[[Hosts], Awaitable[Answer]]) -> Answer:
    try:
        return await work(hosts)
    finally:
        await hosts.close()


def _composition_file(name: str) -> Path:
    path = Path(name)
    is_shipped = not path.exists() and name.endswith(SUFFIX)
    return (shipped(name.removesuffix(SUFFIX)) if is_shipped else None) or path

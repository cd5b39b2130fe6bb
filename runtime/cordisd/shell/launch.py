"""How the processes of a session are launched: behind which command, as which user, within which limits."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from cordisd.errors import ShellError

_NO_USER = 2**32 - 1
"""What means "unchanged" to the kernel."""

Resource = Literal["as", "core", "cpu", "data", "fsize", "memlock", "nofile", "nproc", "stack"]
"""As in `prlimit --as`: RLIMIT_AS and so on."""


@dataclass(frozen=True, slots=True)
class User:
    """Whom the kernel takes a process for, and what its environment says of that."""

    uid: int
    gid: int
    groups: list[int]
    environment: dict[str, str]


@dataclass(frozen=True, slots=True)
class Launch:
    """What stands between the guardian and a program of a session; nothing by default."""

    argv: tuple[str, ...] = ()
    """A command that runs the command behind it, keeping its terminal and its descriptors."""
    user: User | None = None
    """None: the daemon's."""
    rlimits: Mapping[Resource, int] = field(default_factory=dict)
    """Soft and hard limits, in the units of setrlimit(2)."""

    @property
    def is_elsewhere(self) -> bool:
        """Whether files may look different from where the program is."""
        return bool(self.argv or self.user)


@dataclass(frozen=True, slots=True)
class ShellSpec:
    """What to start. `argv[0]` is found on PATH; a realm is the name that `close_realm` ends."""

    realm: str
    argv: list[str]
    env: dict[str, str]
    rows: int = 40
    columns: int = 160
    launch: Launch = field(default_factory=Launch)
    """Its `argv` is run, with the `argv` of this as its arguments."""
    driven: bool = True
    """With the descriptors that `driver` needs, on a plain terminal; else on a usual one without them."""

    @property
    def program(self) -> str:
        """What it is, for messages."""
        if not self.launch.argv:
            return self.argv[0]
        return f"{self.argv[0]} behind {self.launch.argv[0]} (which must keep its terminal and descriptors)"

    def as_json(self) -> dict[str, object]:
        """What `spawn.start` takes."""
        user = self.launch.user
        return {
            "realm": self.realm,
            "argv": [*self.launch.argv, *self.argv],
            "env": self.env,
            "rows": self.rows,
            "columns": self.columns,
            "driven": self.driven,
            "user": [user.uid, user.gid, user.groups] if user else None,
            "rlimits": dict(self.launch.rlimits),
        }


class Place(NamedTuple):
    """Where a process is, and who it was when that was noted."""

    pid: int
    uid: int
    gid: int
    groups: list[int]
    umask: int
    capabilities: int
    """A bit for each effective one, as capabilities(7) numbers them."""


def place_of(pid: int) -> Place:
    """Where a process is, and who it is now: before it runs commands of the model, which may change that.

    Raises:
        OSError: it has ended.
    """
    with open(f"/proc/{pid}/status") as file:
        fields = dict(line.split(":", 1) for line in file)
    uid, gid = (int(fields[name].split()[1]) for name in ("Uid", "Gid"))
    groups = [int(group) for group in fields["Groups"].split()]
    return Place(pid, uid, gid, groups, int(fields["Umask"], 8), int(fields["CapEff"], 16))


def find_user(name: str | int) -> User:
    """The user of that name or number.

    Raises:
        ShellError: there is none, or this process may not become that user.
    """
    if isinstance(name, str) and not name.isdecimal():
        try:
            entry = pwd.getpwnam(name)
        except KeyError as failure:
            raise ShellError(f'there is no user "{name}" on this machine') from failure
    else:
        if int(name) >= _NO_USER:
            raise ShellError(f"{name} is no user number: they are below {_NO_USER}")
        try:
            entry = pwd.getpwuid(int(name))
        except KeyError:  # as in containers: a number is enough for the kernel
            entry = pwd.struct_passwd((str(name), "x", int(name), int(name), "", "/", "/bin/sh"))
    if os.geteuid() != 0 and entry.pw_uid != os.geteuid():
        raise ShellError(f'only a daemon of root can run tools as another user, here "{name}"')
    groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
    names = {"HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name}
    return User(entry.pw_uid, entry.pw_gid, groups, names)

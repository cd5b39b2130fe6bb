"""Looks into /proc: which processes are there, and who made them."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from measure import PATIENCE_S, SOON_S

MARKED_S = 8.0
"""0.05 s on an idle machine; what is not ended stays for ever."""


def children(pid: int) -> list[int]:
    """Live processes whose parent is `pid`, zombies included."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it ended while we looked
            if int(fields[1]) == pid:
                found.append(int(entry.name))
    return found


def descendants(pid: int) -> set[int]:
    """Live processes below `pid`, zombies included."""
    found: set[int] = set()
    todo = [pid]
    while todo:
        below = children(todo.pop())
        found.update(below)
        todo += below
    return found


def alive(pids: set[int]) -> set[int]:
    """Those that still run; a zombie does not, and is init's to collect once its parent is gone."""
    found = set()
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state not in "ZX":
            found.add(pid)
    return found


def gone(pids: set[int], timeout_s: float = SOON_S) -> bool:
    """Whether none of them runs any more before `timeout_s` seconds have passed."""
    end = time.monotonic() + timeout_s
    while alive(pids):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def with_environment(marker: str) -> set[int]:
    """Live processes, but this one, whose environment contains `marker`."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                if marker.encode() in (entry / "environ").read_bytes():
                    found.add(int(entry.name))
            except OSError:
                continue
    return found


def gone_within(marker: str, time_s: float = SOON_S) -> bool:
    """Whether no process with `marker` in its environment is left before `time_s` seconds have passed."""
    end = time.monotonic() + time_s
    while with_environment(marker):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


async def exists(path: Path) -> None:
    """Wait, while the loop runs, until somebody has made the file."""
    async with asyncio.timeout(PATIENCE_S):
        while not path.exists():
            await asyncio.sleep(0.01)


def footprint(pid: int) -> dict[str, int]:
    """What a process holds: open descriptors by kind, threads, children, and memory in kB."""
    found: dict[str, int] = {}
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(link)
        except OSError:
            continue  # it was closed while we looked
        kind = "memfd" if target.startswith("/memfd:") else "file" if target.startswith("/") else target
        kind = kind.partition(":[")[0]
        found[f"fd {kind}"] = found.get(f"fd {kind}", 0) + 1
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("Rss", "Pss", "Pss_Anon"):
            found[f"{name} kB"] = int(value.split()[0])
    found["threads"] = len(list(Path(f"/proc/{pid}/task").iterdir()))
    found["children"] = len(children(pid))
    return found


def left(marker: str) -> dict[int, str]:
    """Living processes that `marker` betrays: by arguments, environment or working directory."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                seen = words + (entry / "environ").read_bytes() + os.readlink(entry / "cwd").encode()
            except OSError:
                continue  # it has ended
            if marker.encode() in seen:
                found[int(entry.name)] = words.decode()
    return found


def clean_after_s(marker: str, limit_s: float = MARKED_S) -> float:
    """The seconds until nothing with `marker` is left; one look could miss what forks all the time."""
    start_s = time.monotonic()
    n_clean, clean_s = 0, 0.0
    while n_clean < 3:
        there = left(marker)
        now_s = time.monotonic() - start_s
        n_clean, clean_s = (0, now_s) if there else (n_clean + 1, clean_s)
        assert n_clean or now_s < limit_s, there
    return clean_s

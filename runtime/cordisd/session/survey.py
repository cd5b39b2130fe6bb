"""Which logs there are where a person points: a file, the folder of a session or project, a session root."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cordisd.errors import LogError
from cordisd.session.disk import cause_of
from cordisd.session.layout import FLAT_SUFFIXES, folders_named, log_in, old_layout, stored_twice
from cordisd.session.names import LOG_NAME, is_project_key

_log_name = re.compile(r"session(\.v\d+)?\.jsonl(\.zstd)?")


class Found(NamedTuple):
    """A log, or what lies in the place of one.

    `problem` says why no session can go on from it, whatever it holds. One that `is_placed` lies in a session
    root, where its folders are named after what it says; else it is a copy, or has come from elsewhere.
    """

    path: Path
    is_placed: bool
    problem: LogError | None = None


def survey(path: Path) -> list[Found]:
    """The logs at or below `path`, by name.

    Raises:
        OSError: nothing is there, or it cannot be read.
    """
    if path.is_dir():
        found = list(_below(path, os.listdir(path), depth=2))
    elif path.stat() and path.name == LOG_NAME:
        found = [_in(path.parent)]
    else:
        found = [Found(path, is_placed=False)]
    together: defaultdict[str, list[Path]] = defaultdict(list)
    for one in found:
        together[one.path.parent.name].append(one.path.parent)
    return [_unless_twice(one, path, together) for one in found]


def _below(folder: Path, names: list[str], depth: int) -> Iterator[Found]:
    """Those in `folder`, which has the entries `names`; sessions lie `depth` levels further down at most."""
    if any(_log_name.fullmatch(name) for name in names):
        yield _in(folder)
        return
    for name in sorted(names):
        child = folder / name
        if child.is_dir():
            if depth:
                try:
                    yield from _below(child, os.listdir(child), depth - 1)
                except FileNotFoundError:
                    continue  # it has been removed meanwhile
                except OSError as problem:
                    if is_project_key(child.name) or is_project_key(folder.name):
                        error = LogError(f"cannot read the folder {child}: {cause_of(problem)}")
                        yield Found(child, True, error)
        elif is_project_key(folder.name) and name.endswith(FLAT_SUFFIXES):
            yield Found(child, True, old_layout(child))


def _in(folder: Path) -> Found:
    is_placed = is_project_key(folder.absolute().parent.name)
    try:
        return Found(log_in(folder), is_placed)
    except LogError as problem:
        return Found(folder, is_placed, problem)


def _unless_twice(found: Found, surveyed: Path, together: dict[str, list[Path]]) -> Found:
    """The same with the problem, if it is one, that its session is stored in several folders of the root."""
    folder = found.path.parent
    root = folder.absolute().parent.parent
    if not found.is_placed or found.path.name != LOG_NAME:
        return found
    folders = together[folder.name] if root == surveyed.absolute() else list(folders_named(root, folder.name))
    return found if len(folders) < 2 else found._replace(problem=stored_twice(folder.name, folders))

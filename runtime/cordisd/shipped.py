"""The compositions that come with cordisd, found in an installed package or in a checkout."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

SUFFIX: Final = ".cordis.yml"
ALIASES: Final = {"sdk": "minimal", "sdk-minimal": "minimal"}
"""Profiles that the published clients ask for."""

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]*")


def shipped(name: str) -> Path | None:
    """The file of the shipped composition `name`, or None when there is none of that name."""
    return _find(ALIASES.get(name, name) + SUFFIX) if _NAME.fullmatch(name) else None


def shipped_recording(name: str) -> Path | None:
    """The file of the shipped recording `name`, or None when there is none of that name."""
    return _find(f"recordings/{name}.jsonl") if _NAME.fullmatch(name) else None


def shipped_names() -> list[str]:
    """The names that `shipped` finds, sorted; aliases are left out."""
    found = {path.name.removesuffix(SUFFIX) for folder in _folders() for path in folder.glob(f"*{SUFFIX}")}
    return sorted(found)


def presets_folder() -> Path:
    """The folder of the shipped agent presets."""
    folders = [path for path in _folders() if path.name == "presets"]
    return next(filter(Path.is_dir, folders), folders[0])


def composition_path(named: str) -> Path:
    """The file that a command line or environment means: a shipped name, else a path.

    A file called like a shipped composition is reached with a slash: `./minimal`.
    """
    return shipped(named) or Path(named)


def _find(relative: str) -> Path | None:
    return next((path for folder in _folders() if (path := folder / relative).is_file()), None)


def _folders() -> Iterator[Path]:
    """Where shipped files lie; the installed package comes first."""
    package = Path(__file__).resolve().parent
    roots = [package / "_presets"]
    if package.parent.name == "runtime":  # a checkout: runtime/cordisd/shipped.py
        roots.append(package.parents[1])
    for root in roots:
        yield root
        yield root / "presets"

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from cordisd.errors import CompositionError
from cordisd.kernel.load import Composition, load

ENTRIES = "kernel.sample_entries"


class Folder:
    """A folder of compositions; `Sample` and its like are written `$Sample` in them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.env: Mapping[str, str] = {}

    def write(self, text: str, name: str = "c.yml") -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).replace("$", f"{ENTRIES}:"), encoding="utf-8")
        return path

    def load(self, text: str, *, patches: Sequence[Path] = ()) -> Composition:
        return load(self.write(text), patches=patches, env=self.env)

    def configs(self, text: str, *, patches: Sequence[Path] = ()) -> dict[str, object]:
        """Entry id → its config's text."""
        return {entry.id: entry.config.text for entry in self.load(text, patches=patches).entries}

    def warnings(self, text: str, *, patches: Sequence[Path] = ()) -> list[str]:
        return [self.short(str(warning)) for warning in self.load(text, patches=patches).warnings]

    def problems(self, text: str, *, patches: Sequence[Path] = ()) -> list[str]:
        """What is wrong, with file names relative to the folder."""
        with pytest.raises(CompositionError) as caught:
            self.load(text, patches=patches)
        return [self.short(str(problem)) for problem in caught.value.problems]

    def short(self, text: str) -> str:
        return text.replace(f"{self.path}/", "").replace(f"{ENTRIES}:", "$")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.fixture
def value_of(folder: Folder) -> Callable[[str], object]:
    """The value that YAML text has inside a config."""

    def value(text: str) -> object:
        return folder.load(f"- {{id: x, name: '$Sample', config: {{extra: {text}}}}}").entries[0].config.extra

    return value

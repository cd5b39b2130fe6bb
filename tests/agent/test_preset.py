"""Presets as files: a change of one is seen by whoever asks next."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from cordisd.agent.preset import AGENT_FILE, Preset, Root, Roster

TICK_NS = 10_000_000


class Coarse:
    """What `os.stat` tells on a file system whose times have steps of `TICK_NS`."""

    def __init__(self, found: os.stat_result) -> None:
        self._found = found

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._found, name)
        return value // TICK_NS * TICK_NS if name.endswith("time_ns") else value


def text_of(preset: Preset) -> str:
    [entry] = preset.entries
    text: str = entry.config.text  # type: ignore[attr-defined]
    return text


def test_a_change_of_the_same_size_within_a_tick_of_the_clock_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = os.stat
    monkeypatch.setattr(os, "stat", lambda *args, **kwargs: Coarse(stat(*args, **kwargs)))
    (tmp_path / "one").mkdir()
    file = tmp_path / "one" / AGENT_FILE
    roster = Roster([Root(tmp_path)])
    for number in range(100, 130):
        file.write_text(f"- {{name: persona, config: {{text: t{number}}}}}\n")
        assert text_of(roster.get("one")) == f"t{number}"


def test_a_preset_that_stays_as_it_is_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    file = tmp_path / "one" / AGENT_FILE
    file.write_text("- {name: persona, config: {text: t}}\n")
    roster = Roster([Root(tmp_path)])
    roster.get("one")
    while roster.get("one") is not roster.get("one"):  # until the change of the file has settled
        pass
    assert roster.get("one") is roster.get("one")

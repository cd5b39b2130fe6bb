"""`cordisd replay` of agents that are asked the same, and differ in what they are told to be."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.conftest import Folder
from cordisd.mock import text
from recorded_sessions import record


def test_agents_that_have_changed_places_fail_though_each_asks_what_the_other_asked(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    composition = tmp_path / "agent.yml"
    for name in ("one", "two"):
        words = f"!!js process.env.{name.upper()} ?? 'You are {name}.'"
        folder.add(name, f"- {{id: persona, name: persona, config: {{complete: true, text: {words}}}}}\n")
    composition.write_text((tmp_path / "roster.yml").read_text() + "- {id: sessions, name: sessions-jsonl}\n")
    for name in ("one", "two"):
        record(
            tmp_path / "rec",
            name,
            script=[text("ok")],
            prompts=["hi"],
            composition=str(composition),
            preset=name,
        )
    words = ("replay", "rec", "--composition", str(composition))
    assert folder.run_bare(*words).code == 0

    monkeypatch.setenv("ONE", "You are two.")
    monkeypatch.setenv("TWO", "You are one.")
    ended = folder.run_bare(*words)
    assert (ended.code, ended.out.count("FAILED ")) == (1, 2)
    assert "-You are one.\n  +You are two.\n" in ended.out and "-You are two.\n  +You are one.\n" in ended.out

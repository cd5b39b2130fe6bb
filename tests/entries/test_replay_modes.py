"""Which files the entry `replay` plays in which mode, and what it refuses."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from cordisd.entries.recorder import RecorderEntry
from cordisd.entries.replay import ReplayEntry
from cordisd.errors import CompositionError
from cordisd.kernel.scope import Scope
from cordisd.replay.recording import lines
from cordisd.replay.turns import Recording
from cordisd.services.models import ModelRegistry
from cordisd.services.secrets import SecretNames
from cordisd.services.traffic import Traffic

LOG = b'{"type":"session","version":0,"id":"fix","createdAt":1,"cwd":"{{cwd}}","delegationDepth":0}\n'


@pytest.fixture
def recording(tmp_path: Path) -> str:
    header = {"type": "recording", "version": 1, "session": "s", "composition": None, "agent": {}}
    path = tmp_path / "recording.jsonl"
    path.write_bytes(b"".join(lines(Recording(path, header))))
    return str(path)


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "log.jsonl"
    path.write_bytes(LOG)
    return str(path)


def taps(**config: Any) -> int:
    """How many taps there are while the entry is mounted."""

    async def mount() -> int:
        scope = Scope("host")
        registry, traffic = ModelRegistry(), Traffic()
        scope.provide(ModelRegistry, registry)
        scope.provide(Traffic, traffic)
        scope.provide(SecretNames, SecretNames())
        try:
            async with ReplayEntry(ReplayEntry.read_config(config)).mount(scope):
                return len(traffic.taps)
        finally:
            await scope.close()

    return asyncio.run(mount())


def refusal(**config: Any) -> str:
    with pytest.raises(CompositionError) as caught:
        taps(**config)
    return str(caught.value)


def test_a_recording_is_played_strictly_and_a_log_by_its_cursor(recording: str, log: str) -> None:
    assert taps(file=recording) == taps(file=recording, mode="strict", files=[recording]) == 1
    assert taps(file=recording, mode="refresh", tools="recorded") == 1
    assert taps(file=log) == taps(file=log, mode="cursor", paceMs=0) == 0


def test_a_file_of_the_other_mode_is_refused(recording: str, log: str) -> None:
    assert f"{log}:1: is not the first line of a recording" in refusal(file=log, mode="strict")
    assert "a session log is played with mode: cursor" in refusal(file=log, mode="strict")
    assert f"{log}:1:" in refusal(file=recording, files=[log])
    assert f"{recording} is a recording, which mode: strict or refresh plays" in refusal(
        file=recording, mode="cursor"
    )


def test_members_of_the_other_mode_are_refused(recording: str, log: str) -> None:
    assert "replay: overrideFile, paceMs would have no effect: a recording is played strictly" in refusal(
        file=recording, paceMs=1, overrideFile="x"
    )
    assert "onDivergence, tools would have no effect: a session log is played by its cursor" in refusal(
        file=log, tools="live", onDivergence="event"
    )


@pytest.mark.parametrize("content", [b"", b"\n", b"{", b"{}\n", b'{"type": "recording", "version": 2}\n'])
def test_a_file_that_is_neither_is_refused_with_its_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "odd.jsonl"
    path.write_bytes(content)
    for mode in ({}, {"mode": "strict"}, {"mode": "cursor"}):
        assert str(path) in refusal(file=str(path), **mode)


@pytest.mark.parametrize(
    ("masks", "said"),
    [
        ({"Time": "x"}, "must match"),
        ({"cwd": "x"}, "cwd and secret are taken"),
        ({"t": "["}, 'mask "t": unterminated'),
        ({"t": "x?"}, "matches an empty text"),
        ({"word": r"\w+"}, 'mask "word" finds too much: it hits the token {{cwd}}'),
        ({"t": "wor", "word": "x"}, 'mask "t" finds too much: it hits the token {{word}}'),
    ],
)
def test_masks_that_cannot_be_are_refused(tmp_path: Path, masks: dict[str, str], said: str) -> None:
    with pytest.raises(ValidationError, match="masks") as caught:
        RecorderEntry.read_config({"folder": str(tmp_path), "masks": masks})
    assert said in str(caught.value)


@pytest.mark.parametrize("pattern", ["(", "x*", "a(b)c", ".", "secret", "cwd"])
def test_a_pattern_that_cannot_be_for_secrets_is_refused(tmp_path: Path, pattern: str) -> None:
    with pytest.raises(ValidationError, match="redact"):
        RecorderEntry.read_config({"folder": str(tmp_path), "redact": [pattern]})

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from cordisd.entries.sessions_jsonl import SessionsJsonlEntry
from cordisd.errors import LogError
from cordisd.kernel.scope import Scope
from cordisd.session.store import SessionStore
from log_samples import finished_session, header


def mounted(config: dict[str, Any]) -> SessionStore:
    """The store that the entry provides; it has stored and synced one session."""

    async def run() -> SessionStore:
        scope = Scope("host")
        async with SessionsJsonlEntry(SessionsJsonlEntry.read_config(config)).mount(scope):
            store = scope.get(SessionStore)
            file = store.create(header())
            file.append(finished_session())
            await file.sync()
            file.close()
        await scope.close()
        return store

    return asyncio.run(run())


def test_the_entry_provides_a_store_at_its_root(tmp_path: Path) -> None:
    store = mounted({"root": str(tmp_path / "logs"), "packChunks": False, "fsync": "step"})
    assert store.root == tmp_path / "logs"
    assert store.fsync == "step"
    assert [one.id for one in store.list()] == ["s1"]


def test_the_published_keys_are_accepted(tmp_path: Path) -> None:
    published = {"compression": "none", "writeBatchMaxDelayMs": 200, "preparedSessionCacheSize": 5}
    assert mounted({"root": str(tmp_path), **published}).list()


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"root": ""}, "root"),
        ({"root": "x", "compression": "zstd"}, "logs are plain here"),
        ({"root": "x", "fsync": "always"}, "'step', 'turn' or 'never'"),
        ({"root": "x", "compresion": "none"}, "compresion"),
    ],
)
def test_a_wrong_configuration_is_refused(config: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        SessionsJsonlEntry.read_config(config)


def test_without_a_root_logs_go_where_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DSH_SESSION_ROOT", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert mounted({}).root == tmp_path / "state" / "cordisd" / "sessions"
    monkeypatch.setenv("DSH_SESSION_ROOT", str(tmp_path / "logs"))
    assert mounted({}).root == tmp_path / "logs"


def test_a_root_that_cannot_hold_logs_fails_the_mount(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LogError, match="is not a folder"):
        mounted({"root": str(tmp_path / "file")})

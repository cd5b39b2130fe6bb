"""The SDK's clients choose presets, and require their digests."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from conversations import PERSONA, Conversations, persona, write_preset
from cordisd.mock import MockModelThread
from cordisd_sdk import AsyncClient, Client, RpcError


def options(folder: Path, url: str, **more: Any) -> dict[str, Any]:
    write_preset(folder / "home" / ".agent-presets", "other", [persona("Other.")])
    (folder / "w").mkdir(exist_ok=True)
    return {
        "composition": "host",
        "cwd": folder / "w",
        "session_root": folder / "logs",
        "base_url": url,
        "provider": "openai",  # of the host's two, the one that `base_url` is for
        "env": {"DSH_HOME": str(folder / "home"), "DSH_SYSTEM_PROMPT": None},
        **more,
    }


def test_a_client_and_a_session_choose_their_presets(tmp_path: Path) -> None:
    model = Conversations()

    async def work(url: str) -> None:
        async with AsyncClient(**options(tmp_path, url, preset="minimal")) as client:
            assert client.server["preset"] == "minimal"
            digest = client.server["digest"]
            await client.session("a").run("a")
            b = client.session("b", preset="other")
            made = await b.create()
            assert made["preset"] == "other" and made["digest"] != digest
            await b.run("b")
            with pytest.raises(RpcError) as caught:
                await client.session("c", preset="other", require_preset=digest).run("c")
            assert caught.value.code == -32021
            with pytest.raises(RpcError, match=r'preset "othre" not found \(did you mean "other"\?\)'):
                await client.session("d", preset="othre").create()
            await client.session("e", preset="other", require_preset=made["digest"]).run("e")
            assert [one["sessionId"] for one in await client.list()] == ["a", "b", "e"]

    with MockModelThread(model) as mock:
        asyncio.run(work(mock.url))
    assert {name: model.systems(name) for name in ("a", "b", "e")} == {
        "a": [PERSONA],
        "b": ["Other."],
        "e": ["Other."],
    }
    assert "c" not in model.received


def test_a_client_that_requires_a_digest_starts_with_that_agent_only(tmp_path: Path) -> None:
    model = Conversations()
    with MockModelThread(model) as mock:
        with Client(**options(tmp_path, mock.url, preset="minimal")) as client:
            digest = client.server["digest"]
        with Client(**options(tmp_path, mock.url, preset="minimal", require_preset=digest)) as client:
            client.session("s").run("s")
        for more in ({}, {"preset": "other"}):
            with pytest.raises(RpcError) as caught:
                Client(**options(tmp_path, mock.url, require_preset=digest, **more)).start()
            assert caught.value.code == -32021 and digest in str(caught.value)
    assert model.systems("s") == [PERSONA]

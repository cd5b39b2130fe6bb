"""Agents that fail, hang or are raced while they mount: the session is as it was, and nothing is left."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from conversations import persona, write_preset
from cordisd.agent import sessions
from cordisd.agent.host import Host
from cordisd.agent.settings import SessionSettings
from cordisd.errors import (
    CompositionError,
    CordisError,
    InvalidParamsError,
    NotInitializedError,
    PresetError,
    PresetMismatchError,
    SessionBegunError,
)
from cordisd.kernel import mount
from cordisd.kernel.load import load
from cordisd.kernel.scope import Scope
from cordisd.session.session import new_message
from measure import SOON_S
from preset_entries import Journal

MODEL = {
    "id": "model",
    "name": "openai",
    "config": {"provider": "p", "apiKeyEnv": None, "baseUrl": "http://[::1]:9"},
}
LOUD = [
    persona("LOUD in {{cwd}}"),
    {"id": "a", "name": "agent", "config": {"parameters": {"temperature": 0.5}}},
]


def faulty(kind: str = "", **config: str) -> dict[str, Any]:
    return {"id": "faulty", "name": f"preset_entries:{kind}FaultyEntry", "config": config}


class Place:
    """A composition file, a folder of presets, and hosts made of them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.presets = root / "presets"
        self.journal = Journal()
        write_preset(self.presets, "loud", LOUD)
        write_preset(self.presets, "quiet", [persona("quiet")])

    @asynccontextmanager
    async def host(
        self, *rows: dict[str, Any], default: str | None = None, own: str = "own"
    ) -> AsyncIterator[Host]:
        config = {"roots": [{"path": str(self.presets)}], "includeUserRoot": False, "default": default}
        fixed = [
            MODEL,
            {"id": "presets", "name": "presets", "config": config},
            {"id": "logs", "name": "sessions-jsonl", "config": {"root": str(self.root / "logs")}},
            persona(own),
        ]
        (self.root / "c.yml").write_text(json.dumps([*fixed, *rows]))
        scope = Scope("host")
        scope.provide(Journal, self.journal)
        host = Host(load(self.root / "c.yml"), None, scope)
        try:
            await host.start()
            yield host
        finally:
            await host.close()

    def settings(
        self, host: Host, preset: str | None = None, *, required: str | None = None
    ) -> SessionSettings:
        return SessionSettings(str(self.root), host.configure("p", "m", None, None), preset, required)

    @property
    def logs(self) -> list[Path]:
        return list((self.root / "logs").rglob("*.jsonl"))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def steering(text: str) -> dict[str, Any]:
    return new_message([{"type": "text", "text": text}], {"kind": "user"})


def test_a_preset_that_fails_to_mount_makes_no_session_and_frees_the_id(place: Place) -> None:
    write_preset(place.presets, "bad", [faulty(mount="ok"), {**faulty(mount="fail"), "id": "second"}])

    async def steps() -> None:
        async with place.host() as host:
            with pytest.raises(PresetError) as caught:
                await sessions.create(host, "s", place.settings(host, "bad"), None)
            where = f'{place.presets}/bad/agent.cordis.yml:1, entry "second"'
            assert str(caught.value) == (
                f'agent-presets: preset "bad" failed to mount: {where}: failed to mount: '
                "RuntimeError: mounting fails"
            )
            assert place.journal == ["mounted", "unmounting"]
            assert (host.live, place.logs) == ({}, [])
            live = await sessions.create(host, "s", place.settings(host, "loud"), None)
            assert live.agent.preset.name == "loud"

    asyncio.run(steps())


def test_what_hangs_in_mount_is_given_up_with_the_name_of_the_entry(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_preset(place.presets, "stuck", [faulty(mount="hang")])

    async def steps() -> None:
        async with place.host() as host:
            monkeypatch.setattr(mount, "MOUNT_LIMIT_S", 0.1)
            with pytest.raises(
                PresetError, match=r'entry "faulty": failed to mount: it took longer than 0\.1 s'
            ):
                await host.try_out(host.preset("stuck"))
            assert place.journal == ["mounting was cancelled"]

    asyncio.run(steps())


def test_what_fails_or_hangs_in_unmount_is_logged_and_keeps_nobody(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(mount, "UNMOUNT_LIMIT_S", 0.1)
    for name in ("fail", "hang"):
        write_preset(place.presets, name, [faulty(mount="ok"), {**faulty(unmount=name), "id": "second"}])

    async def steps() -> None:
        async with place.host(faulty("Host", unmount="hang")) as host:
            for name in ("fail", "hang"):
                digest = (await host.try_out(host.preset(name))).fingerprint.digest
                live = await sessions.create(host, name, place.settings(host, name, required=digest), None)
                await host.close_session(live.session.id)
            for number in range(20):
                await sessions.create(host, f"s{number}", place.settings(host, "hang"), None)

    began = time.monotonic()
    with caplog.at_level(logging.ERROR):
        asyncio.run(steps())
    assert time.monotonic() - began < SOON_S
    assert place.journal.count("mounted") == place.journal.count("unmounting") == 4 * 2 + 20 * 2 + 1
    assert 'entry "second": failed to unmount' in caplog.text
    assert "it took longer than 0.1 s" in caplog.text


def test_a_default_preset_that_is_broken_or_missing_fails_the_start(place: Place) -> None:
    write_preset(place.presets, "bad", [faulty(mount="fail")])

    async def start(default: str) -> str:
        with pytest.raises(CompositionError) as caught:
            async with place.host(default=default):
                pass
        return str(caught.value)

    assert "mounting fails" in asyncio.run(start("bad"))
    assert 'preset "lowd" not found (did you mean "loud"?)' in asyncio.run(start("lowd"))
    write_preset(place.presets, "bad", "[")
    assert "agent.cordis.yml:2: is not YAML" in asyncio.run(start("bad"))


def test_a_prompt_that_cannot_be_assembled_fails_the_start_with_its_cause(place: Place) -> None:
    async def start() -> str:
        with pytest.raises(CompositionError) as caught:
            async with place.host({"id": "r", "name": "preset_entries:RaisingEntry"}):
                pass
        return str(caught.value)

    assert asyncio.run(start()) == (
        f"{place.root}/c.yml: the prompt of the composition's own agent cannot be assembled: KeyError: 'lost'"
    )


def test_the_default_preset_is_that_of_sessions_that_name_none(place: Place) -> None:
    async def steps() -> None:
        async with place.host(default="loud") as host:
            for name, expected in ((None, "loud"), ("quiet", "quiet")):
                live = await sessions.create(host, f"s-{name}", place.settings(host, name), None)
                assert live.agent.preset.name == expected == live.session.header.agent_preset

    asyncio.run(steps())


def test_a_message_that_comes_while_a_preset_is_selected_is_not_lost(place: Place) -> None:
    write_preset(place.presets, "slow", [persona("slow"), faulty(mount="pause")])

    async def steps() -> None:
        async with place.host() as host:
            live = await sessions.create(host, "s", place.settings(host), None)
            selecting = asyncio.ensure_future(sessions.select_preset(host, "s", "slow"))
            await asyncio.sleep(0.05)
            live.runner.steer(steering("do not forget me"))
            with pytest.raises(SessionBegunError):
                await selecting
            assert host.live == {"s": live}
            live.session.log.flush()
            [log] = place.logs
            assert "do not forget me" in log.read_text()
            assert place.journal == ["mounted", "unmounting"]

    asyncio.run(steps())


def test_no_session_opens_once_the_daemon_is_ending(place: Place) -> None:
    write_preset(place.presets, "slow", [persona("slow"), faulty(mount="pause")])

    async def steps() -> None:
        async with place.host() as host:
            creating = asyncio.ensure_future(sessions.create(host, "s", place.settings(host, "slow"), None))
            await asyncio.sleep(0.05)
            await host.abort()
            with pytest.raises(NotInitializedError, match="shutting down"):
                await creating
            assert (host.live, place.journal) == ({}, ["mounted", "unmounting"])

    asyncio.run(steps())


def test_a_session_that_cannot_have_a_preset_keeps_the_one_it_has(place: Place) -> None:
    write_preset(place.presets, "bad", [faulty(mount="fail")])

    async def steps() -> None:
        async with place.host() as host:
            digest = (await host.try_out(host.preset("quiet"))).fingerprint.digest
            settings = place.settings(host, "quiet", required=digest)
            live = await sessions.create(host, "s", settings, None, {"maxTokens": 5})
            refusals: list[tuple[str, type[CordisError]]] = [
                ("bad", PresetError),
                ("gone", PresetError),
                ("loud", PresetMismatchError),
            ]
            for name, refusal in refusals:
                with pytest.raises(refusal):
                    await sessions.select_preset(host, "s", name)
                assert host.live == {"s": live}
            live.runner.steer(steering("still here"))
            live.session.log.flush()
            [log] = place.logs
            assert json.loads(log.read_text().split("\n")[0])["agentPreset"] == "quiet"

    asyncio.run(steps())


def test_a_selected_preset_replaces_the_header_and_keeps_what_the_client_has_said(place: Place) -> None:
    async def steps() -> None:
        async with place.host() as host:
            named = {"rolloutId": "r", "attempt": 2}
            before = await sessions.create(host, "s", place.settings(host), "me", {"maxTokens": 5}, named)
            after = await sessions.select_preset(host, "s", "loud")
            assert (after.owner, after.session.config.max_tokens) == ("me", 5)
            assert after.session.header.cordisd == {
                **before.session.header.cordisd,
                "preset": "loud",
                "digest": after.agent.fingerprint.digest,
            }
            assert (host.live, place.logs) == ({"s": after}, [])
            again = await sessions.select_preset(host, "s", "quiet")
            assert again.session.header.agent_preset == "quiet"

    asyncio.run(steps())


@pytest.mark.parametrize("choice", ["maxTokens", "reasoningEffort"])
def test_what_the_agent_sets_a_client_cannot_choose(place: Place, choice: str) -> None:
    sent_as = {"maxTokens": "max_tokens", "reasoningEffort": "reasoning_effort"}[choice]
    row = {
        "id": "agent",
        "name": "agent",
        "config": {"parameters": {sent_as: 7 if choice == "maxTokens" else "low"}},
    }
    write_preset(place.presets, "set", [persona("x"), row])

    async def steps() -> None:
        async with place.host() as host:
            settings = place.settings(host, "set")
            config = settings.config._replace(
                max_tokens=5, reasoning_effort="high", adapter_defaults=frozenset()
            )
            other = {"maxTokens": "reasoning_effort", "reasoningEffort": "max_tokens"}[choice]
            with pytest.raises(InvalidParamsError, match=f'{choice} cannot be chosen: preset "set" sets the'):
                await sessions.create(
                    host, "s", settings._replace(config=config._replace(**{other: None})), None
                )
            assert host.live == {}
            await sessions.create(host, "s", settings, None)
            await sessions.create(host, "t", settings._replace(preset="quiet", config=config), None)

    asyncio.run(steps())


def test_a_session_is_resumed_with_its_own_preset_or_not_at_all(place: Place) -> None:
    async def steps() -> None:
        async with place.host() as host:
            for name in ("loud", None):
                live = await sessions.create(host, f"s-{name}", place.settings(host, name), None)
                live.runner.steer(steering("hello"))
        logs = {log: log.read_bytes() for log in place.logs}
        agent_file = place.presets / "loud" / "agent.cordis.yml"
        agent_file.unlink()
        faults = [
            ("", "not found"),
            ("[", "is not YAML"),
            (json.dumps([faulty(mount="fail")]), "mounting fails"),
        ]
        for broken, reason in faults:
            if broken:
                agent_file.write_text(broken)
            async with place.host(default="quiet") as host:
                with pytest.raises(PresetError, match="loud.*" + reason):
                    await sessions.resume(host, "s-loud", place.settings(host, "quiet"), None)
                assert {log: log.read_bytes() for log in place.logs} == logs
                assert host.live == {}
        write_preset(place.presets, "loud", LOUD)
        async with place.host(default="quiet") as host:
            for name in ("loud", None):
                live = await sessions.resume(host, f"s-{name}", place.settings(host, "quiet"), None)
                assert live.agent.preset.name == name

    asyncio.run(steps())

"""Forks while something fails or somebody goes: the child is whole or not there, the parent as it was."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from conversations import persona
from cordisd.agent import sessions
from cordisd.agent.fork import fork
from cordisd.agent.host import Host
from cordisd.agent.settings import SessionSettings
from cordisd.agent.verdict import note_outcome
from cordisd.errors import (
    CordisError,
    InvalidParamsError,
    LogWriteError,
    NotInitializedError,
    PresetMismatchError,
    SessionExistsError,
    SessionNotBegunError,
)
from cordisd.kernel.load import load
from cordisd.kernel.scope import Scope
from cordisd.session.disk import DiskCalls
from cordisd.session.session import new_message
from cordisd.session.store import SessionStore
from measure import PATIENCE_S

MODEL = {
    "id": "model",
    "name": "openai",
    "config": {"provider": "p", "apiKeyEnv": None, "baseUrl": "http://[::1]:9"},
}


class Disk:
    """A disk that can be full, or slow from the moment on that the test says."""

    def __init__(self) -> None:
        self.is_full = False
        self.is_slow = False
        self.reached, self.go_on = threading.Event(), threading.Event()

    def write(self, fd: int, data: memoryview) -> int:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self.is_slow:
            self.reached.set()
            assert self.go_on.wait(PATIENCE_S)
        return os.write(fd, data)


@asynccontextmanager
async def hosting(root: Path, disk: Disk | None = None) -> AsyncIterator[Host]:
    (root / "c.yml").write_text(json.dumps([MODEL, persona("own")]))
    scope = Scope("host")
    store = SessionStore(root / "logs", disk=DiskCalls(write=disk.write) if disk else None)
    scope.provide(SessionStore, store)
    host = Host(load(root / "c.yml"), None, scope)
    try:
        await host.start()
        yield host
    finally:
        await host.close()
        store.close()


def settings(host: Host, root: Path, required: str | None = None) -> SessionSettings:
    return SessionSettings(str(root), host.configure("p", "m", None, None), None, required)


async def begun(host: Host, root: Path, session_id: str = "parent", owner: object = None) -> Any:
    """A live session with an event in its log."""
    live = await sessions.create(host, session_id, settings(host, root), owner)
    live.runner.steer(new_message([{"type": "text", "text": "mind"}], {"kind": "user"}))
    live.session.log.commit()
    return live


def logs(root: Path) -> set[str]:
    return {path.parent.name for path in (root / "logs").rglob("*") if path.is_file()}


async def until(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, PATIENCE_S)


def test_whoever_asks_owns_the_fork_of_whosever_session_it_is(tmp_path: Path) -> None:
    async def steps() -> None:
        async with hosting(tmp_path) as host:
            parent = await begun(host, tmp_path, owner="one")
            child = await fork(host, "parent", "child", None, settings(host, tmp_path), "another")
            assert (parent.owner, child.owner) == ("one", "another")
            waiting = child.session.memory.inbox["next-step"]
            assert waiting == parent.session.memory.inbox["next-step"]
            assert waiting is not parent.session.memory.inbox["next-step"]

    asyncio.run(steps())


def test_the_digest_that_the_asking_connection_requires_counts(tmp_path: Path) -> None:
    async def steps() -> None:
        async with hosting(tmp_path) as host:
            parent = await begun(host, tmp_path)
            own = parent.agent.fingerprint.digest
            with pytest.raises(PresetMismatchError):
                await fork(host, "parent", "a", None, settings(host, tmp_path, "sha256:0"), None)
            await fork(host, "parent", "b", None, settings(host, tmp_path, own), None)
            assert set(host.live) == logs(tmp_path) == {"parent", "b"}

    asyncio.run(steps())


def test_a_full_disk_leaves_the_parent_and_an_id_that_is_free(tmp_path: Path) -> None:
    async def steps() -> None:
        disk = Disk()
        async with hosting(tmp_path, disk) as host:
            await begun(host, tmp_path)
            disk.is_full = True
            with pytest.raises(LogWriteError, match="No space left"):
                await fork(host, "parent", "child", None, settings(host, tmp_path), None)
            disk.is_full = False
            assert (set(host.live), logs(tmp_path)) == ({"parent"}, {"parent"})
            await fork(host, "parent", "child", None, settings(host, tmp_path), None)

    asyncio.run(steps())


def test_a_fork_whose_limits_cannot_be_kept_leaves_its_id_free(tmp_path: Path) -> None:
    async def steps() -> None:
        async with hosting(tmp_path) as host:
            await begun(host, tmp_path)
            await host.close_session("parent")
            [log] = (tmp_path / "logs").rglob("session.jsonl")
            first, rest = log.read_bytes().split(b"\n", 1)
            header = json.loads(first)
            header["cordisd"]["limits"] = {"maxCost": 1}  # from a composition whose models have prices
            log.write_bytes(json.dumps(header).encode() + b"\n" + rest)
            with pytest.raises(InvalidParamsError, match="has no prices"):
                await fork(host, "parent", "child", None, settings(host, tmp_path), None)
            assert (set(host.live), logs(tmp_path)) == (set(), {"parent"})

    asyncio.run(steps())


def test_a_fork_that_nobody_waits_for_any_more_is_a_stored_session(tmp_path: Path) -> None:
    async def steps() -> None:
        disk = Disk()
        async with hosting(tmp_path, disk) as host:
            await begun(host, tmp_path)
            disk.is_slow = True
            forking = asyncio.ensure_future(
                fork(host, "parent", "child", None, settings(host, tmp_path), None)
            )
            await until(disk.reached)
            forking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await forking
            assert set(host.live) == {"parent"}
            disk.go_on.set()
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    try:
                        child = await sessions.resume(host, "child", settings(host, tmp_path), None)
                        break
                    except CordisError:  # it is being written, and then let go
                        await asyncio.sleep(0.01)
            assert child.session.header.parent_session == "parent"
            assert len(child.session.memory.inbox["next-step"]) == 1

    asyncio.run(steps())


def test_of_two_forks_with_one_id_the_second_is_refused(tmp_path: Path) -> None:
    async def steps() -> None:
        async with hosting(tmp_path) as host:
            await begun(host, tmp_path)

            async def one() -> Any:
                async with host.in_order("child"):
                    return await fork(host, "parent", "child", None, settings(host, tmp_path), None)

            made = await asyncio.gather(one(), one(), return_exceptions=True)
            assert [type(result).__name__ for result in made] == ["Live", SessionExistsError.__name__]

    asyncio.run(steps())


def test_the_parent_goes_on_while_it_is_copied(tmp_path: Path) -> None:
    async def steps() -> None:
        disk = Disk()
        async with hosting(tmp_path, disk) as host:
            parent = await begun(host, tmp_path)
            disk.is_slow = True
            forking = asyncio.ensure_future(
                fork(host, "parent", "child", None, settings(host, tmp_path), None)
            )
            await until(disk.reached)
            disk.is_slow = False
            parent.move(str(tmp_path / "logs"))
            parent.session.log.commit()
            disk.go_on.set()
            child = await forking
            assert child.session.realm.cwd == str(tmp_path)
            assert child.session.header.seed_length == 1
            assert child.session.log.next_seq == 2

    asyncio.run(steps())


def test_an_ending_daemon_forks_and_notes_nothing(tmp_path: Path) -> None:
    async def steps() -> None:
        async with hosting(tmp_path) as host:
            await begun(host, tmp_path)
            await host.abort()
            with pytest.raises(NotInitializedError):
                await fork(host, "parent", "child", None, settings(host, tmp_path), None)
            with pytest.raises(NotInitializedError):
                await note_outcome(host, "parent", {"class": "timeout"})

    asyncio.run(steps())


def test_a_parent_whose_log_has_failed_is_forked_from_what_is_stored(tmp_path: Path) -> None:
    async def steps() -> None:
        disk = Disk()
        async with hosting(tmp_path, disk) as host:
            parent = await begun(host, tmp_path)
            disk.is_full = True
            with pytest.raises(LogWriteError):
                await note_outcome(host, "parent", {"class": "timeout"})
            assert parent.session.memory.outcome is None
            disk.is_full = False
            child = await fork(host, "parent", "child", None, settings(host, tmp_path), None)
            assert child.session.header.seed_length == 1
            blank = await sessions.create(host, "blank", settings(host, tmp_path), None)
            with pytest.raises(SessionNotBegunError):
                await fork(host, blank.session.id, "never", None, settings(host, tmp_path), None)

    asyncio.run(steps())

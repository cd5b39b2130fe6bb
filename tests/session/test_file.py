"""One log that is written: its bytes, its batches, its syncs."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import stat
import threading
from pathlib import Path

import pytest

from cordisd.errors import (
    LogWriteError,
)
from cordisd.events import Event
from cordisd.session.disk import DiskCalls
from cordisd.session.store import SessionStore
from log_samples import finished_session, header, plain
from measure import PATIENCE_S
from stored_logs import everything_below, stored


def test_nothing_is_on_disk_before_the_first_append(tmp_path: Path) -> None:
    root = tmp_path / "logs"
    file = SessionStore(root).create(header())
    assert not root.exists()
    file.append(finished_session()[:1])
    assert everything_below(root) == ["--srv-w--", "--srv-w--/s1", "--srv-w--/s1/session.jsonl"]
    file.close()


def test_folders_and_files_are_private(tmp_path: Path) -> None:
    path = stored(SessionStore(tmp_path / "new" / "logs"))
    modes = [stat.S_IMODE(p.stat().st_mode) for p in (path, *path.parents[:4])]
    assert modes == [0o600, 0o700, 0o700, 0o700, 0o700]


def test_the_log_is_the_header_and_the_events_as_the_wire_has_them(tmp_path: Path) -> None:
    file = SessionStore(tmp_path, pack_chunks=False).create(header(cordisd={"digest": "d"}))
    events = finished_session()
    file.append(events[:4])
    file.append(events[4:])
    file.close()
    first, *lines = file.path.read_bytes().splitlines(keepends=True)
    assert json.loads(first) == header(cordisd={"digest": "d"}).as_dict()
    assert lines == [event.json + b"\n" for event in events]


@pytest.mark.parametrize("pack_chunks", [True, False])
def test_what_was_written_is_read_back(tmp_path: Path, pack_chunks: bool) -> None:
    store = SessionStore(tmp_path, pack_chunks=pack_chunks)
    file = store.create(header(cwd=None))
    events = finished_session()
    for start in range(0, len(events), 7):
        file.append(events[start : start + 7])
    assert store.read(file.path)[0] == header(cwd=None)
    assert plain(store.read(file.path)[1]) == plain(events)
    file.close()


def test_a_packed_log_is_smaller(tmp_path: Path) -> None:
    sizes = [
        stored(SessionStore(tmp_path / str(packed), pack_chunks=packed)).stat().st_size
        for packed in (True, False)
    ]
    assert sizes[0] < sizes[1] * 0.7


def test_a_batch_is_one_write(tmp_path: Path) -> None:
    sizes: list[int] = []

    def write(fd: int, data: memoryview) -> int:
        sizes.append(len(data))
        return os.write(fd, data)

    file = SessionStore(tmp_path, disk=DiskCalls(write=write)).create(header())
    events = finished_session()
    file.append(events[:3])
    file.append(events[3:])
    file.append([])
    assert len(sizes) == 2
    assert sum(sizes) == file.path.stat().st_size
    file.close()


def test_a_short_write_is_continued(tmp_path: Path) -> None:
    store = SessionStore(tmp_path, disk=DiskCalls(write=lambda fd, data: os.write(fd, data[:100])))
    path = stored(store)
    assert plain(store.read(path)[1]) == plain(finished_session())


def test_an_event_out_of_order_is_refused(tmp_path: Path) -> None:
    file = SessionStore(tmp_path).create(header())
    file.append(finished_session()[:3])
    with pytest.raises(LogWriteError, match="seq 2, but 3 is next"):
        file.append(finished_session()[2:4])
    file.close()


def test_an_event_that_is_no_json_ends_the_log_with_the_reason(tmp_path: Path) -> None:
    file = SessionStore(tmp_path).create(header())
    with pytest.raises(LogWriteError, match="cannot be written as JSON"):
        file.append([Event("turn/start", 0, 1, {"turn": float("nan")})])
    assert everything_below(tmp_path) == []
    file.close()


def test_a_closed_log_takes_nothing(tmp_path: Path) -> None:
    file = SessionStore(tmp_path).create(header())
    file.close()
    file.close()
    with pytest.raises(LogWriteError, match="closed"):
        file.append(finished_session())


def test_sync_reaches_the_file_and_its_new_folders_once(tmp_path: Path) -> None:
    synced: list[int] = []

    def fsync(fd: int) -> None:
        synced.append(os.fstat(fd).st_ino)
        os.fsync(fd)

    store = SessionStore(tmp_path / "root", disk=DiskCalls(fsync=fsync))
    file = store.create(header())

    async def run() -> None:
        await file.sync()
        file.append(finished_session()[:2])
        await file.sync()
        await file.sync()
        file.append(finished_session()[2:])
        await file.sync()

    asyncio.run(run())
    file.close()
    store.close()
    session, project, root, above = file.path.parents[:4]
    expected = (file.path, session, project, root, above, file.path)
    assert synced == [path.stat().st_ino for path in expected]


def test_a_sync_without_a_descriptor_left_is_a_failure_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dup(fd: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    file = SessionStore(tmp_path).create(header())
    file.append(finished_session())

    async def run() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(os, "dup", dup)
            with pytest.raises(LogWriteError, match="open files"):
                await file.sync()
        with pytest.raises(LogWriteError, match="open files"):
            await file.sync()

    asyncio.run(run())
    file.close()


def test_a_second_sync_waits_for_the_first(tmp_path: Path) -> None:
    released = threading.Event()

    def fsync(fd: int) -> None:
        assert released.wait(PATIENCE_S)

    store = SessionStore(tmp_path, disk=DiskCalls(fsync=fsync))
    file = store.create(header())
    file.append(finished_session())

    async def run() -> None:
        tasks = [asyncio.create_task(file.sync()) for _ in range(2)]
        await asyncio.sleep(0.02)
        assert not any(task.done() for task in tasks)
        released.set()
        await asyncio.gather(*tasks)

    asyncio.run(run())
    file.close()
    store.close()


def test_without_fsync_the_disk_is_never_waited_for(tmp_path: Path) -> None:
    def fsync(fd: int) -> None:
        raise AssertionError(f"fsync of {fd}")

    store = SessionStore(tmp_path, fsync="never", disk=DiskCalls(fsync=fsync))
    file = store.create(header())
    file.append(finished_session())
    asyncio.run(file.sync())
    assert file.fsync == "never"
    file.close()

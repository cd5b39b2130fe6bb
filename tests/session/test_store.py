from __future__ import annotations

import asyncio
import errno
import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cordisd.errors import (
    InvalidParamsError,
    LogCorruptError,
    LogError,
    LogRefusedError,
    LogWriteError,
    SessionBusyError,
    SessionExistsError,
    SessionNotFoundError,
)
from cordisd.events import Event
from cordisd.session.disk import DiskCalls
from cordisd.session.header import SessionHeader
from cordisd.session.store import SessionStore
from log_samples import finished_session, header, plain
from measure import PATIENCE_S


def stored(store: SessionStore, session_id: str = "s1", cwd: str | None = "/srv/w") -> Path:
    """The path of a finished session, written and closed."""
    file = store.create(header(session_id, cwd))
    file.append(finished_session())
    file.close()
    return file.path


def everything_below(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


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


def test_a_stored_id_is_never_used_again_whatever_the_working_directory(tmp_path: Path) -> None:
    store = SessionStore(tmp_path)
    path = stored(store)
    before = path.read_bytes()
    for cwd in ("/srv/w", "/elsewhere", None):
        with pytest.raises(SessionExistsError, match="already exists"):
            store.create(header(cwd=cwd))
    assert path.read_bytes() == before


def test_an_id_stored_by_a_newer_program_is_taken(tmp_path: Path) -> None:
    folder = tmp_path / "--x--" / "s1"
    folder.mkdir(parents=True)
    (folder / "session.v4.jsonl").touch()
    store = SessionStore(tmp_path)
    with pytest.raises(SessionExistsError):
        store.create(header())
    with pytest.raises(LogRefusedError, match=r"session\.v4\.jsonl"):
        store.open("s1")


def test_an_id_whose_writer_died_before_the_log_existed_is_free(tmp_path: Path) -> None:
    folder = tmp_path / "--srv-w--" / "s1"
    folder.mkdir(parents=True)
    (folder / "session.jsonl.0123456789ab.tmp").write_bytes(b'{"type":"sess')
    store = SessionStore(tmp_path)
    with pytest.raises(SessionNotFoundError):
        store.open("s1")
    stored(store)
    store.open("s1").file.close()
    assert os.listdir(folder) == ["session.jsonl"]


@pytest.mark.parametrize("cwd", ["/srv/w", "/other"])
def test_of_two_that_make_the_same_id_only_the_first_to_write_gets_it(tmp_path: Path, cwd: str) -> None:
    first, second = (SessionStore(tmp_path) for _ in range(2))
    winner, loser = first.create(header()), second.create(header(cwd=cwd))
    winner.append(finished_session())
    with pytest.raises(LogWriteError, match="meanwhile"):
        loser.append(finished_session())
    loser.close()
    winner.close()
    assert everything_below(tmp_path) == ["--srv-w--", "--srv-w--/s1", "--srv-w--/s1/session.jsonl"]
    assert [one.id for one in first.list()] == ["s1"]


def test_an_open_session_is_busy_in_its_own_process(tmp_path: Path) -> None:
    store = SessionStore(tmp_path)
    file = store.create(header())
    for attempt in (lambda: store.open("s1"), lambda: store.create(header())):
        with pytest.raises(SessionBusyError, match="in this process"):
            attempt()
    file.append(finished_session())
    for attempt in (
        lambda: SessionStore(tmp_path).open("s1"),
        lambda: SessionStore(tmp_path).create(header()),
    ):
        with pytest.raises(SessionBusyError, match="another process"):
            attempt()
    file.close()
    store.open("s1").file.close()


def test_an_open_session_is_busy_in_another_process_until_its_owner_dies(tmp_path: Path) -> None:
    stored(SessionStore(tmp_path))
    script = (
        "import sys; from pathlib import Path; from cordisd.session.store import SessionStore\n"
        "opened = SessionStore(Path(sys.argv[1])).open('s1'); print('open', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"open\n"
        with pytest.raises(SessionBusyError, match="another process"):
            SessionStore(tmp_path).open("s1")
        owner.kill()
        owner.wait()
    SessionStore(tmp_path).open("s1").file.close()


def test_opening_an_unknown_id_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(SessionNotFoundError, match=str(tmp_path)):
        SessionStore(tmp_path).open("s1")


def test_a_resumed_log_goes_on_where_it_ended(tmp_path: Path) -> None:
    store = SessionStore(tmp_path)
    stored(store)
    opened = store.open("s1")
    n_old = len(finished_session())
    assert plain(opened.events[:n_old]) == plain(finished_session())
    assert [(event.type, event.seq) for event in opened.events[n_old:]] == [("session/end-seed", n_old)]
    assert opened.damage is None
    opened.file.append([Event("turn/start", n_old + 1, 5, {"turn": 2})])
    opened.file.close()
    assert [event.seq for event in store.read(opened.file.path)[1]] == list(range(n_old + 2))


def test_a_log_that_ends_with_the_seed_mark_gets_no_second_one(tmp_path: Path) -> None:
    store = SessionStore(tmp_path)
    path = stored(store)
    store.open("s1").file.close()
    before = path.read_bytes()
    store.open("s1").file.close()
    assert path.read_bytes() == before


def test_sessions_are_listed_oldest_first(tmp_path: Path) -> None:
    store = SessionStore(tmp_path)
    for session_id, created_at in (("b", 2), ("a", 2), ("c", 1)):
        file = store.create(SessionHeader(session_id, created_at, f"/{session_id}", cordisd={"preset": "p"}))
        file.append(finished_session())
        file.close()
    assert [one.id for one in store.list()] == ["c", "a", "b"]
    assert store.list()[0].cordisd == {"preset": "p"}
    assert SessionStore(tmp_path / "missing").list() == []


def test_listing_skips_what_has_no_header(tmp_path: Path) -> None:
    store = SessionStore(tmp_path)
    stored(store)
    for name, content in (("empty", b""), ("torn", b'{"type":"session"'), ("garbage", b"x\n")):
        folder = tmp_path / "--srv-w--" / name
        folder.mkdir()
        (folder / "session.jsonl").write_bytes(content)
        with pytest.raises(LogCorruptError, match=r"session\.jsonl"):
            store.open(name)
    assert [one.id for one in store.list()] == ["s1"]


def test_listing_warns_of_a_newer_format(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = SessionStore(tmp_path)
    path = stored(store)
    path.write_bytes(path.read_bytes().replace(b'"version":0', b'"version":3'))
    assert store.list() == []
    assert str(path) in caplog.text


def test_an_id_under_two_projects_is_an_error(tmp_path: Path) -> None:
    store = SessionStore(tmp_path)
    path = stored(store)
    copy = tmp_path / "--other--" / "s1"
    copy.mkdir(parents=True)
    (copy / "session.jsonl").write_bytes(path.read_bytes().replace(b'"/srv/w"', b'"/other"'))
    for attempt in (lambda: store.open("s1"), store.list):
        with pytest.raises(LogCorruptError, match="more than once") as caught:
            attempt()
        assert str(copy) in str(caught.value)
        assert str(path.parent) in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new"), [(b'"id":"s1"', b'"id":"s2"'), (b'"cwd":"/srv/w"', b'"cwd":"/other"')]
)
def test_a_log_in_the_wrong_folder_is_an_error(tmp_path: Path, old: bytes, new: bytes) -> None:
    store = SessionStore(tmp_path)
    path = stored(store)
    path.write_bytes(path.read_bytes().replace(old, new))
    for attempt in (lambda: store.open("s1"), store.list):
        with pytest.raises(LogCorruptError, match="must lie"):
            attempt()


@pytest.mark.parametrize("name", ["s1.jsonl", "s1.jsonl.zstd"])
def test_the_old_flat_layout_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "--srv-w--").mkdir()
    (tmp_path / "--srv-w--" / name).touch()
    store = SessionStore(tmp_path)
    for attempt in (lambda: store.open("s1"), lambda: store.create(header()), store.list):
        with pytest.raises(LogRefusedError, match="older layout"):
            attempt()


def test_an_id_that_looks_like_a_flat_file_is_no_old_layout(tmp_path: Path) -> None:
    store = SessionStore(tmp_path)
    stored(store, "s1.jsonl")
    stored(store, "s1")
    assert [one.id for one in store.list()] == ["s1", "s1.jsonl"]


@pytest.mark.parametrize("beside", [True, False])
def test_a_compressed_log_is_refused(tmp_path: Path, beside: bool) -> None:
    store = SessionStore(tmp_path)
    path = stored(store)
    path.with_name("session.jsonl.zstd").touch()
    if not beside:
        path.unlink()
    for attempt in (lambda: store.open("s1"), store.list):
        with pytest.raises(LogRefusedError, match="zstd -d"):
            attempt()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_in_the_place_of_a_log_is_refused_and_not_waited_for(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    store = SessionStore(tmp_path)
    path = stored(store)
    path.unlink()
    make(path)
    assert store.header("s1") is None
    for attempt in (lambda: store.open("s1"), store.list):
        with pytest.raises(LogError, match=r"Not a regular file|Is a directory"):
            attempt()
    with pytest.raises(SessionExistsError):
        store.create(header())


def test_an_id_too_long_for_a_folder_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidParamsError, match="255"):
        SessionStore(tmp_path).create(header("x" * 300))


@pytest.mark.parametrize("root", ["file", "file/below/it", "dangling"])
def test_a_root_that_can_never_be_a_folder_fails_the_check(tmp_path: Path, root: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    with pytest.raises(LogError, match="is not a folder"):
        SessionStore(tmp_path / root).check()


def test_a_missing_root_passes_the_check_and_is_not_made(tmp_path: Path) -> None:
    SessionStore(tmp_path / "a" / "b").check()
    assert everything_below(tmp_path) == []


def test_a_root_without_write_permission_fails_the_check(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    script = (
        "import os, sys; from pathlib import Path; from cordisd.session.store import SessionStore\n"
        "SessionStore(Path(sys.argv[1])).check()"
    )
    command = [sys.executable, "-c", script, str(locked / "new")]
    if os.getuid() == 0:  # root passes every permission check, unless it is without its capabilities
        command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", *command]
        os.chown(locked, 65534, 65534)
        locked.chmod(0o755)
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"{locked} is not writable" in done.stderr


def test_a_relative_root_is_resolved_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = SessionStore(Path("logs"))
    monkeypatch.chdir("/")
    assert store.root == tmp_path / "logs"


def test_an_independent_reader_sees_the_same_session(tmp_path: Path) -> None:
    trajviz = pytest.importorskip("agent_trajviz")
    path = stored(SessionStore(tmp_path))
    trajectory = trajviz.load(path)
    assert trajectory.format == "dsh"
    assert [step["role"] for step in trajectory.steps] == ["user", "assistant", "assistant"]
    [call] = trajectory.steps[1]["tool_calls"]
    assert (call["tool_id"], call["input"], call["output"]) == ("c1", {"command": "echo hé"}, "hé")
    assert trajectory.steps[2]["text_preview"] == "hé, hé!"

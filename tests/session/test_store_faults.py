from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

import pytest

from cordisd.errors import LogWriteError
from cordisd.events import Event
from cordisd.session.disk import DiskCalls
from cordisd.session.file import SessionLogFile
from cordisd.session.store import SessionStore
from log_samples import START_MS, Writer, finished_session, header, plain, tool_turn

IO_ERROR = OSError(errno.EIO, os.strerror(errno.EIO))


class BadDisk:
    """A disk that breaks on demand: writes take `room` more bytes, and then fail."""

    def __init__(self) -> None:
        self.room: int | None = None
        self.can_truncate = True
        self.can_sync = True

    def write(self, fd: int, data: memoryview) -> int:
        if self.room is None:
            return os.write(fd, data)
        if not self.room:
            raise IO_ERROR
        taken = os.write(fd, data[: self.room])
        self.room -= taken
        return taken

    def truncate(self, fd: int, size: int) -> None:
        if not self.can_truncate:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        os.ftruncate(fd, size)

    def fsync(self, fd: int) -> None:
        if not self.can_sync:
            raise IO_ERROR
        os.fsync(fd)

    def calls(self) -> DiskCalls:
        return DiskCalls(self.write, self.truncate, self.fsync)


def begun(root: Path, disk: BadDisk) -> SessionLogFile:
    """A log with the first ten events written."""
    file = SessionStore(root, disk=disk.calls()).create(header())
    file.append(finished_session()[:10])
    return file


@pytest.mark.parametrize("room", [0, 1, 57])
def test_a_failed_write_leaves_the_log_as_it_was(tmp_path: Path, room: int) -> None:
    disk = BadDisk()
    file = begun(tmp_path, disk)
    before = file.path.read_bytes()
    disk.room = room
    with pytest.raises(LogWriteError, match=r"Input/output error \(EIO\); .* the 10 events") as caught:
        file.append(finished_session()[10:])
    assert str(file.path) in str(caught.value)
    assert file.path.read_bytes() == before
    file.close()


def test_a_failed_log_stays_failed_when_the_disk_is_well_again(tmp_path: Path) -> None:
    disk = BadDisk()
    file = begun(tmp_path, disk)
    disk.room = 5
    for _ in range(2):
        with pytest.raises(LogWriteError, match="EIO"):
            file.append(finished_session()[10:])
        disk.room = None
    file.close()
    assert plain(SessionStore(tmp_path).read(file.path)[1]) == plain(finished_session()[:10])


def test_a_failed_rollback_reports_both_errors_and_the_log_still_opens(tmp_path: Path) -> None:
    disk = BadDisk()
    file = begun(tmp_path, disk)
    disk.room, disk.can_truncate = 20, False
    with pytest.raises(LogWriteError, match=r"\(EIO\).*could not be taken back.*\(EROFS\)"):
        file.append(finished_session()[10:])
    file.close()
    opened = SessionStore(tmp_path).open("s1")
    assert plain(opened.events[:10]) == plain(finished_session()[:10])
    assert opened.damage == "line 9 is torn"
    opened.file.close()


def test_a_failed_first_write_leaves_nothing(tmp_path: Path) -> None:
    disk = BadDisk()
    disk.room = 30
    file = SessionStore(tmp_path / "logs", disk=disk.calls()).create(header())
    with pytest.raises(LogWriteError, match="EIO"):
        file.append(finished_session())
    file.close()
    assert os.listdir(tmp_path) == []


def test_a_failed_sync_ends_the_log(tmp_path: Path) -> None:
    disk = BadDisk()
    file = begun(tmp_path, disk)
    disk.can_sync = False
    with pytest.raises(LogWriteError, match=r"EIO.* of its 10 events only the first 0 are known to be safe"):
        asyncio.run(file.sync())
    disk.can_sync = True
    with pytest.raises(LogWriteError, match="EIO"):
        file.append(finished_session()[10:])
    file.close()


def test_a_log_that_was_removed_is_noticed_before_anything_more_is_said_to_be_in_it(tmp_path: Path) -> None:
    for attempt in (lambda file: file.append(finished_session()[10:]), lambda file: asyncio.run(file.sync())):
        file = begun(tmp_path / "logs", BadDisk())
        shutil.rmtree(tmp_path / "logs")
        for _ in range(2):
            with pytest.raises(LogWriteError, match="removed while the session ran"):
                attempt(file)
        file.close()


@pytest.mark.parametrize("change", [b"x", b""])
def test_a_log_that_somebody_else_has_changed_is_not_written_any_more(tmp_path: Path, change: bytes) -> None:
    file = begun(tmp_path, BadDisk())
    with file.path.open("ab" if change else "wb") as stream:
        stream.write(change)
    before = file.path.read_bytes()
    with pytest.raises(
        LogWriteError, match=r"another process has changed it.* its first 10 events is unknown"
    ):
        file.append(finished_session()[10:])
    assert file.path.read_bytes() == before
    file.close()


def test_where_there_are_no_locks_the_second_writer_ends_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def flock(fd: int, how: int) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(fcntl, "flock", flock)
    first = begun(tmp_path, BadDisk())
    second = SessionStore(tmp_path).open("s1")
    assert "has no locks" in caplog.text
    with pytest.raises(LogWriteError, match="another process has changed it"):
        first.append(finished_session()[10:])
    n_events = len(second.events)
    second.file.append([Event("turn/start", n_events, START_MS, {"turn": 2})])
    second.file.close()
    first.close()
    assert [event.seq for event in SessionStore(tmp_path).read(second.file.path)[1]] == list(
        range(n_events + 1)
    )


def test_a_repair_that_cannot_keep_the_cut_bytes_changes_nothing(tmp_path: Path) -> None:
    disk = BadDisk()
    file = begun(tmp_path, disk)
    file.close()
    with file.path.open("ab") as stream:
        stream.write(b'{"type":"turn/st')
    before = file.path.read_bytes()
    disk.room = 0
    store = SessionStore(tmp_path, disk=disk.calls())
    with pytest.raises(Exception, match="EIO"):
        store.open("s1")
    assert file.path.read_bytes() == before
    disk.room = None
    store.open("s1").file.close()


def test_a_repair_that_cannot_be_written_lets_go_of_the_log(tmp_path: Path) -> None:
    disk = BadDisk()
    begun(tmp_path, disk).close()
    disk.room = 0
    store = SessionStore(tmp_path, disk=disk.calls())
    with pytest.raises(LogWriteError, match="EIO"):
        store.open("s1")
    disk.room = None
    store.open("s1").file.close()


_fill = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from cordisd.errors import LogWriteError
from cordisd.session.store import SessionStore
from log_samples import Writer, header, tool_turn
file = SessionStore(Path(sys.argv[1])).create(header())
writer = Writer()
try:
    for turn in range(1, 10_000):
        start = len(writer.events)
        tool_turn(writer, turn)
        file.append(writer.events[start:])
except LogWriteError as problem:
    print(start, problem)
else:
    sys.exit("nothing failed")
file.close()
kept = SessionStore(Path(sys.argv[1])).read(file.path)[1]
assert [event.json for event in kept] == [event.json for event in writer.events[:start]], len(kept)
"""
_tests = str(Path(__file__).parents[1])


def test_a_full_disk_ends_the_log_at_a_whole_batch(tmp_path: Path) -> None:
    mount = ["unshare", "-m", "--propagation", "private", "--", "sh", "-c"]
    shell = 'mount -t tmpfs -o size=64k tmpfs "$0" && exec "$@"'
    if subprocess.run([*mount, shell, tmp_path, "true"], capture_output=True).returncode != 0:
        pytest.skip("mount namespaces are not permitted here")
    command = [*mount, shell, tmp_path, sys.executable, "-c", _fill, tmp_path / "logs", _tests]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "No space left on device (ENOSPC)" in done.stdout


def test_a_file_size_limit_ends_the_log_at_a_whole_batch(tmp_path: Path) -> None:
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))\n" + _fill
    command = [sys.executable, "-c", limited, tmp_path, _tests]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "File too large (EFBIG)" in done.stdout


_write_until_killed = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from cordisd.session.store import SessionStore
from log_samples import Writer, header, tool_turn
file = SessionStore(Path(sys.argv[1]), fsync="never").create(header())
writer = Writer()
print("ready", flush=True)
for turn in range(1, 100_000):
    start = len(writer.events)
    tool_turn(writer, turn)
    for at in range(start, len(writer.events), 3):
        batch = writer.events[at:at + 3]
        file.append(batch)
        sys.stdout.write(f"{batch[-1].seq}\\n")
        sys.stdout.flush()
"""


def test_a_killed_writer_leaves_a_log_that_opens_with_every_event_that_was_announced(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    expected, turns = Writer(), count(1)
    for round_number in range(20):
        root = tmp_path / str(round_number)
        command = [sys.executable, "-c", _write_until_killed, root, _tests]
        with (tmp_path / "out").open("wb") as out, subprocess.Popen(command, stdout=out) as writer:
            while (tmp_path / "out").stat().st_size == 0:
                time.sleep(0.002)
            time.sleep(chance.uniform(0, 0.02))
            writer.send_signal(signal.SIGKILL)
        announced = (tmp_path / "out").read_text().split("\n")[1:-1]
        n_announced = int(announced[-1]) + 1 if announced else 0
        store = SessionStore(root)
        if not n_announced and not store.list():
            continue
        [stored] = store.list()
        kept = store.read(next(root.rglob("session.jsonl")))[1]
        assert stored == header()
        assert len(kept) >= n_announced
        while len(expected.events) < len(kept):
            tool_turn(expected, next(turns))
        assert plain(kept) == plain(expected.events[: len(kept)])
        opened = store.open("s1")
        opened.file.close()
        assert plain(opened.events[: len(kept)]) == plain(kept)
        assert opened.events[-1].type == "session/end-seed"
        shutil.rmtree(root)

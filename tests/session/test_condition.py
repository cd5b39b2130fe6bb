from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from cordisd.errors import LogWriteError
from cordisd.session.condition import examine, mend
from cordisd.session.disk import DiskCalls, lock
from cordisd.session.store import SessionStore
from cordisd.session.survey import survey
from stored_logs import everything, stopped_in_a_call, store


def test_a_repair_that_the_disk_does_not_take_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    [found] = survey(store(tmp_path, stopped_in_a_call()))
    before = everything(tmp_path)

    def write(fd: int, data: memoryview) -> int:
        if len(data) < 30:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.write(fd, data[:30])

    with pytest.raises(LogWriteError, match=r"No space left on device \(ENOSPC\)"):
        mend(found, DiskCalls(write=write))
    assert everything(tmp_path) == before
    assert mend(found).status == "interrupted"
    assert examine(found).status == "ok"


def test_a_repair_is_on_the_disk_when_it_is_told(tmp_path: Path) -> None:
    [found] = survey(store(tmp_path, stopped_in_a_call()))
    sizes: list[int] = []
    mend(found, DiskCalls(fsync=lambda fd: sizes.append(os.fstat(fd).st_size)))
    assert sizes == [found.path.stat().st_size]


def test_whoever_looks_at_a_log_keeps_no_resume_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = store(tmp_path)
    looking = os.open(path, os.O_RDONLY)
    assert lock(looking, path)

    def sleep(_: float) -> None:
        os.close(looking)

    monkeypatch.setattr("cordisd.session.disk.time.sleep", sleep)
    SessionStore(tmp_path).open("s1").file.close()

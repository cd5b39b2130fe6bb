"""What lies under a session root: what is listed, and what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cordisd.errors import (
    InvalidParamsError,
    LogCorruptError,
    LogError,
    LogRefusedError,
    SessionExistsError,
)
from cordisd.session.header import SessionHeader
from cordisd.session.store import SessionStore
from log_samples import finished_session, header
from stored_logs import everything_below, stored


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

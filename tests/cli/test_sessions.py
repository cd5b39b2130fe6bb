"""`cordisd sessions`: the stored ones at a glance; of old ones nothing is left, and nothing else goes."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from cli.conftest import Logs
from cordisd.errors import LogError, SessionBusyError, SessionNotFoundError
from cordisd.events import Event
from cordisd.session.header import SessionHeader
from cordisd.session.removal import remove
from cordisd.session.store import SessionStore
from log_samples import finished_session, header
from stored_logs import damage, everything, stopped_in_a_call, store

DAY_S = 86_400


@pytest.fixture
def sessions(logs: Logs) -> Logs:
    logs.command = "sessions"
    return logs


def aged(path: Path, days: float) -> Path:
    """The log, last written so many days ago."""
    then = time.time() - days * DAY_S
    os.utime(path, (then, then))
    return path


def names(root: Path) -> list[str]:
    """Everything below `root`."""
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def test_the_stored_sessions_are_listed_newest_first(sessions: Logs) -> None:
    for number, preset in ((1, None), (2, "minimal")):
        made = SessionHeader(f"s{number}", 1000 * number, "/srv/w", agent_preset=preset)
        file = SessionStore(sessions.root).create(made)
        file.append(stopped_in_a_call() if number == 1 else finished_session())
        file.close()
    live = SessionStore(sessions.root).create(header("live", None))
    live.append(finished_session()[:3])
    code, out = sessions.run("list")
    assert (code, sessions.err) == (0, "")
    rows = [line.split("  ") for line in out.splitlines()]
    found = [[cell.strip() for cell in row if cell] for row in rows]
    assert found[0] == ["id", "created", "status", "turns", "size", "preset", "cwd"]
    assert [(row[0], row[2], row[3], row[5], row[6]) for row in found[1:]] == [
        ("live", "open", "1", "-", "-"),
        ("s2", "closed", "1", "minimal", "/srv/w"),
        ("s1", "interrupted", "2", "-", "/srv/w"),
    ]
    one = json.loads(sessions.run("list", "--json")[1])["sessions"][1]
    path = sessions.root / "--srv-w--" / "s2" / "session.jsonl"
    assert one.pop("writtenAt") == path.stat().st_mtime_ns // 1_000_000
    assert one == {
        "sessionId": "s2", "status": "closed", "preset": "minimal", "turns": 1, "createdAt": 2000,
        "cwd": "/srv/w", "sizeBytes": path.stat().st_size, "path": str(path),
    }  # fmt: skip
    live.close()


def test_a_torn_end_is_an_interruption(sessions: Logs) -> None:
    path = store(sessions.root)
    with path.open("ab") as stream:
        stream.write(b"\0" * 9)
    assert json.loads(sessions.run("list", "--json")[1])["sessions"][0]["status"] == "interrupted"


def test_what_cannot_be_listed_is_told_and_hides_nothing(sessions: Logs) -> None:
    store(sessions.root)
    damage(store(sessions.root, session_id="empty"), lambda _: [])
    (sessions.root / "--srv-w--" / "old.jsonl").touch()
    code, out = sessions.run("list")
    assert (code, out.count("\n")) == (1, 2)
    assert "is empty" in sessions.err
    assert "older layout" in sessions.err


def test_no_root_is_no_session(sessions: Logs) -> None:
    assert sessions.run("list", "--json") == (0, '{\n  "sessions": []\n}\n')
    assert sessions.err == f"note: nothing is stored: there is no {sessions.root}\n"
    sessions.root.touch()
    assert sessions.run("list")[0] == 2


def test_what_is_older_goes_and_is_named(sessions: Logs) -> None:
    old = aged(store(sessions.root, session_id="old", cwd="/elsewhere"), 31)
    for beside in ("session.jsonl.900.cut", "session.jsonl.0123456789ab.tmp"):
        (old.parent / beside).touch()
    aged(store(sessions.root, session_id="young"), 29)
    before = everything(sessions.root)
    assert sessions.run("prune", "--older-than", "30d", "--dry-run") == (0, f"{old.parent}\n")
    assert sessions.err == "note: nothing was removed\n"
    assert everything(sessions.root) == before
    assert sessions.run("prune", "--older-than", "30d") == (0, f"{old.parent}\n")
    assert names(sessions.root) == ["--srv-w--", "--srv-w--/young", "--srv-w--/young/session.jsonl"]
    assert sessions.run("prune", "--older-than", "30d") == (0, "")


def test_the_newest_are_kept_whatever_their_age(sessions: Logs) -> None:
    for days in (3, 1, 2):
        aged(store(sessions.root, session_id=f"d{days}"), days)
    folder = sessions.root / "--srv-w--"
    assert sessions.run("prune", "--older-than", "1h", "--keep", "2") == (0, f"{folder / 'd3'}\n")
    assert sessions.run("prune", "--keep", "1") == (0, f"{folder / 'd2'}\n")
    assert sorted(os.listdir(folder)) == ["d1"]
    assert sessions.run("prune")[0] == 2
    for words in (("--keep", "-1"), ("--older-than", "30"), ("--older-than", "d")):
        with pytest.raises(SystemExit, match="2"):
            sessions.run("prune", *words)
    assert sorted(os.listdir(folder)) == ["d1"]


def test_a_session_that_a_process_has_open_stays(sessions: Logs) -> None:
    file = SessionStore(sessions.root).create(header())
    file.append(finished_session())
    aged(file.path, 100)
    assert sessions.run("prune", "--older-than", "0s") == (0, "")
    with pytest.raises(SessionBusyError):
        remove(file.path, file.path.stat().st_mtime_ns)
    file.append([Event("turn/start", len(finished_session()), 5, {"turn": 2})])
    file.close()


def test_a_session_that_went_on_meanwhile_stays(tmp_path: Path) -> None:
    path = aged(store(tmp_path), 100)
    seen_ns = path.stat().st_mtime_ns
    SessionStore(tmp_path).open("s1").file.close()
    with pytest.raises(SessionBusyError):
        remove(path, seen_ns)
    assert path.exists()


def test_of_two_that_remove_a_session_one_does(tmp_path: Path) -> None:
    path = store(tmp_path)
    written_ns = path.stat().st_mtime_ns
    remove(path, written_ns)
    with pytest.raises(SessionNotFoundError):
        remove(path, written_ns)


def test_a_folder_that_is_removed_while_a_log_is_made_in_it_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []

    def mkdir(self: Path, mode: int = 0o777) -> None:
        os.mkdir(self, mode)
        made.append(self)
        if len(made) == 2:
            for folder in reversed(made):  # as `prune` does with an empty project folder
                os.rmdir(folder)

    (tmp_path / "root").mkdir()
    monkeypatch.setattr(Path, "mkdir", mkdir)
    assert store(tmp_path / "root").exists()


@pytest.mark.parametrize("what", ["file", "folder", "link", "pipe", "log"])
def test_a_folder_that_holds_anything_else_stays_and_is_told(
    sessions: Logs, tmp_path: Path, what: str
) -> None:
    path = store(sessions.root)
    secret = tmp_path / "secret"
    secret.write_text("precious")
    match what:
        case "file":
            (path.parent / "notes.txt").touch()
        case "folder":
            (path.parent / "session.jsonl.12.cut").mkdir()
        case "link":
            (path.parent / "session.jsonl.12.cut").symlink_to(secret)
        case "pipe":
            os.mkfifo(path.parent / "session.jsonl.12.cut")
        case _:
            secret.write_bytes(path.read_bytes())
            path.unlink()
            path.symlink_to(secret)
    before = names(tmp_path)
    code, out = sessions.run("prune", "--older-than", "0s")
    assert (code, out) == (1, "")
    assert str(path.parent) in sessions.err
    assert names(tmp_path) == before


@pytest.mark.parametrize("which", ["project", "session"])
def test_nothing_is_removed_through_a_link(sessions: Logs, tmp_path: Path, which: str) -> None:
    path = store(tmp_path / "elsewhere")
    project = path.parent.parent
    if which == "project":
        sessions.root.mkdir()
        (sessions.root / project.name).symlink_to(project)
    else:
        (sessions.root / project.name).mkdir(parents=True)
        (sessions.root / project.name / "s1").symlink_to(path.parent)
    code, out = sessions.run("prune", "--older-than", "0s")
    assert (code, out) == (1, "")
    assert "cannot remove" in sessions.err
    assert path.exists()


@pytest.mark.parametrize("old", [b'"id":"s1"', b'"cwd":"/srv/w"', b'"type":"session"', b'"version":0'])
def test_a_log_that_is_not_of_its_folder_stays(sessions: Logs, old: bytes) -> None:
    path = store(sessions.root)
    damage(path, lambda lines: [lines[0].replace(old, old[:-1] + b"9" + old[-1:]), *lines[1:]])
    assert sessions.run("prune", "--older-than", "0s") == (1, "")
    assert path.exists()
    with pytest.raises(LogError):
        remove(path, path.stat().st_mtime_ns)
    assert path.exists()


def test_a_folder_within_a_root_is_no_root(sessions: Logs) -> None:
    path = store(sessions.root)
    for place in (path.parent.parent, path.parent):
        assert sessions.run("prune", "--older-than", "0s", "--session-root", str(place)) == (0, "")
    assert path.exists()


def test_a_root_that_is_none_loses_nothing(sessions: Logs, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "project" / "run").mkdir(parents=True)
    (home / "project" / "run" / "session.jsonl").write_text("not ours\n")
    (home / "session.jsonl").write_text("nor this\n")
    (home / "project" / "notes.jsonl").write_text("{}\n")
    before = everything(home)
    for root in (home, home / "project", home / "project" / "run", tmp_path / "missing"):
        assert sessions.run("prune", "--older-than", "0s", "--session-root", str(root)) == (0, "")
    assert everything(home) == before
    assert sessions.run("prune", "--older-than", "0s", "--session-root", "/", "--dry-run")[1] == ""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cordisd.errors import (
    LogRefusedError,
    LogWriteError,
    SessionBusyError,
    SessionExistsError,
    SessionNotFoundError,
)
from cordisd.events import Event
from cordisd.session.store import SessionStore
from log_samples import finished_session, header, plain
from stored_logs import everything_below, stored


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


def test_an_independent_reader_sees_the_same_session(tmp_path: Path) -> None:
    trajviz = pytest.importorskip("agent_trajviz")
    path = stored(SessionStore(tmp_path))
    trajectory = trajviz.load(path)
    assert trajectory.format == "dsh"
    assert [step["role"] for step in trajectory.steps] == ["user", "assistant", "assistant"]
    [call] = trajectory.steps[1]["tool_calls"]
    assert (call["tool_id"], call["input"], call["output"]) == ("c1", {"command": "echo hé"}, "hé")
    assert trajectory.steps[2]["text_preview"] == "hé, hé!"

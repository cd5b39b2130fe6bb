"""The part of a log that a fork takes, and how it gets into a log of its own."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from cordisd.errors import (
    InvalidParamsError,
    LogCorruptError,
    LogError,
    LogWriteError,
    SessionExistsError,
    SessionNotBegunError,
)
from cordisd.session.disk import DiskCalls
from cordisd.session.fork import Seed, read_seed
from cordisd.session.store import SessionStore
from log_samples import Writer, header, open_turn, plain, tool_turn


def parent(root: Path, writer: Writer) -> Path:
    file = SessionStore(root).create(header("parent"))
    for start in range(0, len(writer.events), 5):
        file.append(writer.events[start : start + 5])
    file.close()
    return file.path


def two_turns() -> Writer:
    writer = Writer()
    tool_turn(writer, 1)
    tool_turn(writer, 2)
    return writer


def begin(root: Path, seed: Seed, disk: DiskCalls | None = None, session_id: str = "child") -> Path:
    made = header(session_id, parent_session="parent", seed_length=seed.n_events)
    file = SessionStore(root, disk=disk).create(made)
    try:
        file.begin(seed.lines(), seed.n_events, seed.marks)
    finally:
        file.close()
    return file.path


def test_the_fork_holds_the_lines_of_its_parent_and_then_the_mark(tmp_path: Path) -> None:
    path = parent(tmp_path, two_turns())
    child = begin(tmp_path, read_seed(path, at_turn=None))
    own_header, events = SessionStore(tmp_path).read(child)
    assert (own_header.parent_session, own_header.seed_length) == ("parent", len(two_turns().events))
    assert plain(events[:-1]) == plain(two_turns().events)
    assert events[-1].type == "session/end-seed"
    assert b"\n".join(child.read_bytes().splitlines()[1:-1]) == b"\n".join(path.read_bytes().splitlines()[1:])


def test_a_log_that_goes_on_behind_its_last_turn_is_taken_whole(tmp_path: Path) -> None:
    writer = two_turns()
    writer.add("working-directory/change", {"cwd": "/x"}, ignorable=True)
    path = parent(tmp_path, writer)
    assert read_seed(path, at_turn=None).n_events == len(writer.events)
    assert read_seed(path, at_turn=2).n_events == len(writer.events) - 1
    assert read_seed(path, at_turn=None, settled=False).n_events == len(writer.events) - 1
    assert read_seed(path, at_turn=None, end=len(writer.events) - 1).n_events == len(writer.events) - 1


def test_an_open_turn_is_left_out(tmp_path: Path) -> None:
    writer = two_turns()
    n_ended = len(writer.events)
    open_turn(writer, 3, "and?")
    path = parent(tmp_path, writer)
    seed = read_seed(path, at_turn=None)
    assert seed.n_events == n_ended
    assert seed.events[-1].data["turn"] == 2
    with pytest.raises(InvalidParamsError, match=r"ended \(1 to 2 have\), not 3"):
        read_seed(path, at_turn=3)


def test_a_log_without_a_turn_that_ended_gives_nothing(tmp_path: Path) -> None:
    writer = Writer()
    open_turn(writer, 1, "first")
    with pytest.raises(SessionNotBegunError, match="no turn of it has ended"):
        read_seed(parent(tmp_path, writer), at_turn=None)


def test_a_damaged_end_is_left_out_and_damage_before_it_is_refused(tmp_path: Path) -> None:
    path = parent(tmp_path, two_turns())
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"type":"turn/st')
    assert read_seed(path, at_turn=None).end_byte == len(whole)
    lines = whole.splitlines(keepends=True)
    row = next(number for number, line in enumerate(lines) if b"-chunks" in line[:30])
    lines[row] = lines[row].replace(b'"dt":[', b'"dt":[,')
    path.write_bytes(b"".join(lines))
    with pytest.raises(LogCorruptError, match=f"line {row + 1} .*in its committed region"):
        read_seed(path, at_turn=None)


def test_a_turn_of_a_malformed_event_is_corrupt(tmp_path: Path) -> None:
    writer = two_turns()
    writer.add("agent/inbox/spliced", {"target": "elsewhere"})
    with pytest.raises(LogCorruptError, match="malformed"):
        read_seed(parent(tmp_path, writer), at_turn=None)


def test_a_full_disk_leaves_nothing_of_a_fork(tmp_path: Path) -> None:
    seed = read_seed(parent(tmp_path, two_turns()), at_turn=None)
    before = sorted(tmp_path.rglob("*"))
    room = [300]

    def write(fd: int, data: memoryview) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = min(room[0], len(data))
        room[0] -= taken
        return os.write(fd, data[:taken])

    with pytest.raises(LogWriteError, match="No space left"):
        begin(tmp_path, seed, DiskCalls(write=write))
    assert sorted(tmp_path.rglob("*")) == before
    begin(tmp_path, seed)


def test_a_parent_that_is_replaced_or_cut_meanwhile_makes_no_fork(tmp_path: Path) -> None:
    path = parent(tmp_path, two_turns())
    seed = read_seed(path, at_turn=None)
    os.truncate(path, seed.end_byte - 10)
    with pytest.raises(LogWriteError, match="became shorter"):
        begin(tmp_path, seed)
    path.rename(path.with_name("old"))
    path.write_bytes(b"another")
    with pytest.raises(LogWriteError, match="was replaced"):
        begin(tmp_path, seed)
    assert not list(tmp_path.glob("*/child*"))


def test_a_stored_id_is_no_id_for_a_fork(tmp_path: Path) -> None:
    path = parent(tmp_path, two_turns())
    seed = read_seed(path, at_turn=None)
    begin(tmp_path, seed)
    with pytest.raises(SessionExistsError):
        begin(tmp_path, seed)


def test_a_log_that_is_gone_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"gone\.jsonl: No such file"):
        read_seed(tmp_path / "gone.jsonl", at_turn=None)


def test_deltas_are_counted_and_not_kept(tmp_path: Path) -> None:
    seed = read_seed(parent(tmp_path, two_turns()), at_turn=None)
    assert len(seed.events) < seed.n_events == len(two_turns().events)
    kept = {event.seq for event in seed.events}
    missing = [event for event in two_turns().events if event.seq not in kept]
    assert {event.data["chunk"]["type"] for event in missing} <= {"text-delta", "tool-call-delta"}

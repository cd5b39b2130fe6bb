"""`cordisd log`: every condition of a log is told, mended where that loses nothing, and shown."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.conftest import Logs
from cordisd.errors import CordisError
from cordisd.events import Event
from cordisd.session.store import SessionStore
from log_samples import Writer, header, open_turn, plain
from stored_logs import Lines, damage, everything, stopped_in_a_call, store, two_turns


def test_a_sound_log_is_ok_however_it_is_named(logs: Logs) -> None:
    path = store(logs.root, two_turns())
    for place in (path, path.parent, path.parent.parent, logs.root):
        assert logs.verify(place) == (0, "ok: 88 events; 2 turns")
    code, out = logs.run("verify", "s1", str(path))
    assert (code, out.count("\n")) == (0, 1)


def test_a_log_that_a_process_writes_is_open_whatever_its_end_looks_like(logs: Logs) -> None:
    file = SessionStore(logs.root).create(header())
    file.append(stopped_in_a_call())
    with file.path.open("ab") as stream:
        stream.write(b'{"type":"tool/res')
    assert logs.verify() == (0, "open: 51 events; 2 turns")
    before = everything(logs.root)
    assert logs.run("repair", str(logs.root)) == (0, f"open        {file.path}: 51 events; 2 turns\n")
    assert everything(logs.root) == before
    file.close()


def test_what_an_interrupted_turn_lacks_is_told_and_added(logs: Logs) -> None:
    path = store(logs.root, stopped_in_a_call())
    lacks = "result of call a (outcome unknown), result of call b (not started), end of step 1, end of turn 2"
    assert logs.verify() == (1, f"interrupted: to add: {lacks}")
    before = path.read_bytes()
    assert logs.run("repair", "--dry-run", "s1") == (0, f"interrupted {path}: to add: {lacks}\n")
    assert path.read_bytes() == before
    assert logs.run("repair", "s1") == (0, f"mended      {path}: added: {lacks}\n")
    assert path.read_bytes().startswith(before)
    assert logs.verify() == (0, "ok: 55 events; 2 turns")
    after = everything(logs.root)
    assert logs.run("repair", "s1") == (0, f"ok          {path}: 55 events; 2 turns\n")
    assert everything(logs.root) == after


TAILS = {
    b'{"type":"turn/st': "line 90 is torn",
    b"\0" * 4096: "line 90 is 4096 NUL bytes, as a power cut leaves them",
    b"garbage\n": "unparsable event at line 90 (not JSON at column 1: Expecting value)",
    b'{"type\n': "unparsable event at line 90 (not JSON at column 7: Invalid control character)",
    b'{"type":"\xff"}\n': "unparsable event at line 90 (not UTF-8 at byte 10)",
    b'{"type":"turn/start","seq":88,"time":5}\n': "unparsable event at line 90 (event data must be an "
    "object)",
    b"[" * 100_000 + b"\n": "unparsable event at line 90 (nested too deeply)",
    Event("turn/start", 90, 5, {"turn": 3}).json + b"\n": "seq gap at line 90: expected 88, found 90",
    two_turns()[-1].json + b"\n": "repeated event 87 at line 90: expected 88",
    Event("turn/start", 40, 5, {"turn": 3}).json + b"\n": "second event 40 at line 90, of another writer: "
    "expected 88",
}


@pytest.mark.parametrize("tail", TAILS, ids=TAILS.values())
def test_a_damaged_tail_is_told_cut_and_kept_beside_the_log(logs: Logs, tail: bytes) -> None:
    path = store(logs.root, two_turns())
    good = path.read_bytes()
    path.write_bytes(good + tail)
    size = f"{len(tail):,} bytes"
    assert logs.verify() == (1, f"torn: {TAILS[tail]}; {size} to cut")
    kept = path.with_name(f"session.jsonl.{len(good)}.cut")
    assert logs.run("repair", "s1") == (
        0, f"mended      {path}: {TAILS[tail]}; {size} were cut, kept in {kept}\n"
    )  # fmt: skip
    assert (path.read_bytes(), kept.read_bytes()) == (good, tail)
    assert logs.verify() == (0, "ok: 88 events; 2 turns")


def test_a_repaired_log_is_what_a_resume_makes_of_it(tmp_path: Path, logs: Logs) -> None:
    repaired, resumed = (store(root, stopped_in_a_call()) for root in (logs.root, tmp_path / "resumed"))
    for path in (repaired, resumed):
        with path.open("ab") as stream:
            stream.write(b'{"type":')
    assert logs.run("repair", str(repaired))[0] == 0
    SessionStore(tmp_path / "resumed").open("s1").file.close()
    *lines, seed = resumed.read_bytes().splitlines(keepends=True)
    assert repaired.read_bytes() == b"".join(lines)
    assert json.loads(seed)["type"] == "session/end-seed"
    opened = SessionStore(logs.root).open("s1")
    opened.file.close()
    assert [event.type for event in opened.events[-2:]] == ["turn/end", "session/end-seed"]


DAMAGES: dict[str, tuple[Callable[[Lines], Lines], str]] = {
    "garbage": (
        lambda lines: [*lines[:4], b"5\n", *lines[5:]],
        "unparsable event at line 5 (an event must be an object with a type)",
    ),
    "NULs": (
        lambda lines: [*lines[:4], b"\0" * 64 + lines[4], *lines[5:]],
        "unparsable event at line 5 (not JSON at column 1: Expecting value)",
    ),
    "gap": (lambda lines: lines[:4] + lines[5:], "seq gap at line 5: expected 3, found 4"),
    "repeat": (lambda lines: lines[:5] + lines[2:], "repeated event 1 at line 6: expected 4"),
    "two writers": (
        lambda lines: [*lines[:5], lines[4].replace(b'"time":17', b'"time":18'), *lines[5:]],
        "second event 3 at line 6, of another writer: expected 4",
    ),
    "two logs": (
        lambda lines: lines + lines,
        "unparsable event at line 90 (a second header: two logs were put together)",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_among_committed_events_is_told_and_left_alone(tmp_path: Path, logs: Logs, name: str) -> None:
    change, what = DAMAGES[name]
    path = store(logs.root, two_turns())
    content = damage(path, change)
    n_sound = 88 if name == "two logs" else 4 if name in ("repeat", "two writers") else 3
    told = f"{what}, before the end of a turn; {n_sound} sound events"
    assert logs.verify() == (1, f"damaged: {told}")
    assert logs.run("repair", "s1") == (1, "")
    assert logs.err == f"cordisd: nothing was changed: damaged     {path}: {told}\n"
    assert everything(logs.root) == {str(path.relative_to(logs.root)): content}
    out = tmp_path / "copy.jsonl"
    assert logs.run("repair", "s1", "--out", str(out))[0] == 0
    whole = name in ("repeat", "two logs")
    copied = SessionStore(logs.root).read(out)[1]
    assert plain(copied) == plain(two_turns()[: 88 if whole else n_sound])
    assert path.read_bytes() == content
    assert logs.run("repair", "s1", "--out", str(out)) == (1, "")
    assert os.strerror(errno.EEXIST) in logs.err


def _replaced(old: bytes, new: bytes) -> Callable[[Lines], Lines]:
    return lambda lines: [line.replace(old, new) for line in lines]


UNUSABLE: dict[str, tuple[Callable[[Lines], Lines], str]] = {
    "newer": (_replaced(b'"version":0', b'"version":4'), "refused: session log format 4 is not supported"),
    "unknown event": (
        lambda lines: [*lines, b'{"type":"turn/strat","seq":88,"time":1,"data":{}}\n'],
        'refused: unknown event type "turn/strat" (did you mean "turn/start"?)',
    ),
    "empty": (lambda _: [], "damaged: corrupt session log: the file is empty"),
    "no header": (
        lambda lines: lines[1:],
        "damaged: corrupt session log: line 1: the first line is not a he",
    ),
    "torn header": (
        lambda lines: [lines[0][:9]],
        "damaged: corrupt session log: the file has a header line t",
    ),
    "only NULs": (
        lambda _: [b"\0" * 9],
        "damaged: corrupt session log: the file has a header line that is t",
    ),
    "wrong folder": (
        _replaced(b'"id":"s1"', b'"id":"s2"'),
        'damaged: the log of session "s2" must lie in a ',
    ),
    "foreign data": (
        _replaced(b'"inserted":[]', b'"inserted":5'),
        "damaged: corrupt session log: the data of",
    ),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_what_a_resume_refuses_is_told_and_left_alone(logs: Logs, name: str) -> None:
    change, what = UNUSABLE[name]
    path = store(logs.root, two_turns())
    damage(path, change)
    code, told = logs.verify()
    assert (code, told[: len(what)]) == (1, what)
    before = everything(logs.root)
    assert logs.run("repair", str(path)) == (1, "")
    assert everything(logs.root) == before
    with pytest.raises(CordisError):
        SessionStore(logs.root).open("s1")
    assert everything(logs.root) == before


def test_a_session_in_two_folders_is_told_of_each(logs: Logs) -> None:
    path = store(logs.root)
    twin = logs.root / "--other--" / "s1" / "session.jsonl"
    twin.parent.mkdir(parents=True)
    twin.write_bytes(path.read_bytes().replace(b'"/srv/w"', b'"/other"'))
    for place in (logs.root, path, twin.parent):
        code, out = logs.run("verify", str(place))
        assert code == 1
        assert out.count("damaged     ") == (2 if place == logs.root else 1)
        assert f"more than once, keep one of: {twin.parent}, {path.parent}" in out
    assert logs.run("repair", str(path)) == (1, "")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("--srv-w--/s1/session.jsonl.zstd", "the log is compressed"),
        ("--srv-w--/s1/session.v4.jsonl", "stored in another format"),
        ("--srv-w--/s1.jsonl", "where an older layout had it"),
    ],
)
def test_logs_of_other_formats_and_layouts_are_refused(logs: Logs, name: str, told: str) -> None:
    (logs.root / name).parent.mkdir(parents=True)
    (logs.root / name).touch()
    code, out = logs.verify()
    assert code == 1
    assert out.startswith("refused: ")
    assert told in out


def test_a_copy_anywhere_else_is_judged_by_what_it_holds(tmp_path: Path, logs: Logs) -> None:
    path = store(logs.root)
    for name in ("copy.jsonl", "artifacts/session.jsonl"):
        copy = tmp_path / name
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(path.read_bytes())
        assert logs.verify(copy) == (0, "ok: 44 events; 1 turn")


def test_all_logs_of_a_root_are_told_and_summed_up(logs: Logs) -> None:
    store(logs.root)
    store(logs.root, stopped_in_a_call(), "s2", "/elsewhere")
    damage(store(logs.root, session_id="s3"), lambda _: [])
    code, out = logs.run("verify", str(logs.root))
    assert code == 1
    assert [line.split()[0] for line in out.splitlines()] == ["interrupted", "ok", "damaged"]
    assert logs.err == "note: 3 logs: 1 interrupted, 1 ok, 1 damaged\n"
    code, out = logs.run("verify", "--json", str(logs.root))
    found = json.loads(out)["logs"]
    assert (code, logs.err) == (1, "")
    assert [(one["sessionId"], one["status"], one["events"], one["turns"]) for one in found] == [
        ("s2", "interrupted", 51, 2), ("s1", "ok", 44, 1), (None, "damaged", 0, 0)
    ]  # fmt: skip
    assert [one["type"] for one in found[0]["closers"]] == ["tool/result"] * 2 + ["step/end", "turn/end"]


def test_what_is_not_there_is_a_matter_of_usage(tmp_path: Path, logs: Logs) -> None:
    for action in ("verify", "repair", "show"):
        assert logs.run(action, "nope") == (2, "")
        assert f'no session "nope" is stored under {logs.root}' in logs.err
    assert logs.run("verify", str(tmp_path)) == (0, "")
    assert logs.err == f"note: no logs in {tmp_path}\n"
    assert logs.run("show", str(tmp_path)) == (2, "")
    store(logs.root)
    store(logs.root, session_id="s2")
    for words in (("show",), ("repair", "--out", str(tmp_path / "x"))):
        assert logs.run(*words, str(logs.root)) == (2, "")
        assert "one log must be named, not 2" in logs.err


def test_an_event_that_waits_is_counted(logs: Logs) -> None:
    writer = Writer()
    open_turn(writer, 1, "x")
    store(logs.root, writer.events[:1])
    assert logs.verify() == (0, "ok: 1 event; 0 turns; 1 message waiting")

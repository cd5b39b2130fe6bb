"""Session logs that cursor replay refuses, each with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordisd.events import Event, encode_json
from cursor_replays import answers, chunk_lines, fixture, line, load_error
from log_samples import finished_session, header


def test_no_file() -> None:
    assert "set file, or the variable DSH_SNAPSHOT_FILE" in load_error()
    assert "set file" in load_error(file="")


def test_a_missing_file(tmp_path: Path) -> None:
    assert load_error(file=str(tmp_path / "x")).startswith(f"{tmp_path}/x: cannot read the fixture: No such")


@pytest.mark.parametrize("name", ["child", "primary"])
def test_an_empty_file(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").touch()
    good = answers(tmp_path / "f.jsonl", "x")
    files = [good, str(tmp_path / "empty")] if name == "child" else [str(tmp_path / "empty"), good]
    text = load_error(file=files[0], childFiles=files[1:])
    assert text.startswith(f"{tmp_path}/empty:1: ")
    assert "is empty" in text


def test_a_newer_format(tmp_path: Path) -> None:
    file = answers(tmp_path / "f.jsonl", "x")
    Path(file).write_text(Path(file).read_text().replace('"version": 0', '"version": 4'))
    assert "f.jsonl:1: session log format 4 is not supported" in load_error(file=file)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ('{"type":"turn/st', "not JSON: Unterminated string starting at at column 9"),
        ("[]", "must be an object"),
        ('{"type":"turn/start","data":{"turn":1},"seq":2}', "has seq but not both of seq and time"),
        ('{"type":"turn/start","data":{"turn":1},"seq":2,"time":5}', "on every line, or on none"),
        ('{"type":"turn/strat","data":{}}', 'did you mean "turn/start"'),
        ('{"type":"text-chunks","data":{"turn":1}}', "the data of a text-chunks row"),
        ('{"type":"assistant/chunk","data":{}}', "must have a chunk object"),
        (
            chunk_lines({"type": "text-delta", "text": "{{fromRequest:[}}"})[0],
            "unterminated character set",
        ),
    ],
)
def test_a_bad_line(tmp_path: Path, bad: str, says: str) -> None:
    text = load_error(file=fixture(tmp_path / "f.jsonl", line("turn/start", {"turn": 1}), bad))
    assert text.startswith(f"{tmp_path}/f.jsonl:3: ")
    assert says in text


def test_a_gap_in_a_whole_log(tmp_path: Path) -> None:
    events = finished_session()
    del events[3]
    path = tmp_path / "f.jsonl"
    path.write_bytes(b"\n".join([encode_json(header().as_dict()), *(event.json for event in events)]))
    assert load_error(file=str(path)) == f"{path}:5: seq gap: expected 3, found 4"


def test_a_truncated_log(tmp_path: Path) -> None:
    events = finished_session()
    n_lines = next(at for at, event in enumerate(events) if _is_finish(event)) + 1
    path = tmp_path / "f.jsonl"
    path.write_bytes(b"\n".join([encode_json(header().as_dict()), *(e.json for e in events[: n_lines - 1])]))
    assert "has no finish chunk; re-record" in load_error(file=str(path))


def _is_finish(event: Event) -> bool:
    return event.type == "assistant/chunk" and event.data["chunk"]["type"] == "finish"

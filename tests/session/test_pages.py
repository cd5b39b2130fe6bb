"""Logs read a page at a time."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from cordisd.errors import LogCorruptError, LogError
from cordisd.events import Event
from cordisd.session import pages as module
from cordisd.session.fork import read_seed
from cordisd.session.metrics import read_metrics
from cordisd.session.pages import LogPages
from cordisd.session.store import SessionStore
from log_samples import Writer, header, plain, tool_turn


def sample(n_turns: int = 3) -> list[Event]:
    writer = Writer()
    for turn in range(1, n_turns + 1):
        tool_turn(writer, turn)
    return writer.events


def stored(root: Path, events: list[Event], batch: int = 7) -> Path:
    file = SessionStore(root).create(header())
    for start in range(0, len(events), batch):
        file.append(events[start : start + batch])
    file.close()
    return file.path


def decoded(events: list[bytes]) -> list[dict[str, Any]]:
    return [json.loads(event) for event in events]


@pytest.mark.parametrize("limit", [1, 2, 5, 1000])
def test_pages_put_together_are_the_events_as_they_were_sent(tmp_path: Path, limit: int) -> None:
    path, pages = stored(tmp_path, sample()), LogPages()
    found: list[bytes] = []
    next_seq = 0
    while (page := pages.read(path, next_seq, limit=limit)).events:
        assert len(page.events) <= limit
        found += page.events
        next_seq = page.next_seq
    assert found == [event.json for event in sample()]
    assert page.next_seq == len(sample())


def test_any_place_is_found_whatever_was_read_before(tmp_path: Path) -> None:
    path, pages, events = stored(tmp_path, sample()), LogPages(), sample()
    chance = random.Random(1)
    for _ in range(300):
        start, limit = chance.randrange(len(events) + 3), chance.randrange(1, 9)
        end = chance.choice([None, chance.randrange(len(events) + 1)])
        page = pages.read(path, start, limit=limit, end=end)
        expected = events[start : min(start + limit, len(events) if end is None else end)]
        assert page.events == [event.json for event in expected]
        assert page.next_seq == start + len(expected)


def test_what_is_appended_comes_with_the_next_page(tmp_path: Path) -> None:
    events, pages = sample(), LogPages()
    file = SessionStore(tmp_path).create(header())
    file.append(events[:10])
    assert pages.read(file.path, 0, limit=1000).next_seq == 10
    assert pages.read(file.path, 10, limit=1000).events == []
    file.append(events[10:])
    assert decoded(pages.read(file.path, 10, limit=1000).events) == plain(events[10:])
    file.close()


def test_a_page_is_found_without_reading_the_pages_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, pages = stored(tmp_path, sample()), LogPages()
    page = pages.read(path, 0, limit=40)
    content = path.read_bytes()
    mess = content.index(b'"step/start"')
    path.write_bytes(content[:mess] + b"x" * 5 + content[mess + 5 :])
    assert pages.read(path, page.next_seq, limit=2).events == [event.json for event in sample()[40:42]]


def test_a_log_that_was_cut_is_searched_anew(tmp_path: Path) -> None:
    path, pages, events = stored(tmp_path, sample()), LogPages(), sample()
    end = pages.read(path, 0, limit=10_000).next_seq
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))
    assert pages.read(path, end, limit=10).events == []
    assert pages.read(path, end - 1, limit=10).events == []
    path.write_bytes(b"".join(lines))
    assert pages.read(path, end - 1, limit=10).events == [events[-1].json]


def test_a_page_has_its_fill_at_so_many_bytes_but_one_event_always_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_PAGE_BYTES", 500)
    writer = Writer()
    for size in (100, 100, 100, 2000, 100, 600, 100):
        writer.add("todo/write", {"todos": [{"content": "x" * size, "status": "open"}]})
    path, pages, sizes, next_seq = stored(tmp_path, writer.events, batch=100), LogPages(), [], 0
    while (page := pages.read(path, next_seq, limit=100)).events:
        sizes.append(len(page.events))
        next_seq = page.next_seq
    assert sizes == [2, 1, 1, 1, 1, 1]
    monkeypatch.setattr(module, "MAX_FRAME_BYTES", 1000 + 4096)
    with pytest.raises(LogError, match="event 3 has 2"):
        pages.read(path, 3, limit=1)
    assert pages.read(path, 2, limit=5).next_seq == 3, "what comes before it is given out"


def test_a_torn_end_is_not_there_and_damage_in_the_middle_is_told(tmp_path: Path) -> None:
    path, pages, events = stored(tmp_path, sample()), LogPages(), sample()
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    assert pages.read(path, len(events) - 2, limit=9).events == [events[-2].json]
    lines = whole.splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:4], b"garbage\n", *lines[5:]]))
    assert pages.read(path, 0, limit=1000).next_seq == 3, "what is sound is given out"
    with pytest.raises(LogCorruptError, match=r"behind event 2, at byte \d+, in its committed region"):
        pages.read(path, 3, limit=1000)


def test_a_writer_that_orders_its_keys_otherwise_is_read_too(tmp_path: Path) -> None:
    path = stored(tmp_path, sample(), batch=1)
    first, *lines = path.read_bytes().splitlines()
    turned = [json.dumps(dict(reversed(json.loads(line).items()))).encode() for line in lines]
    path.write_bytes(b"\n".join([first, *turned, b""]))
    assert decoded(LogPages().read(path, 30, limit=4).events) == plain(sample()[30:34])


def test_a_pipe_in_the_place_of_a_log_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "session.jsonl")
    for read in (
        lambda path: LogPages().read(path, 0, limit=1),
        lambda path: read_seed(path, at_turn=None),
        read_metrics,
    ):
        with pytest.raises(LogError, match="Not a regular file"):
            read(tmp_path / "session.jsonl")

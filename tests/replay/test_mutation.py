"""Whatever changes in a request, one failure names the place."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cordisd.replay.player import Player
from cordisd.replay.recording import lines, read_recording
from recordings import changed, failure, play, recording


def leaves(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a value, inner ones too."""
    yield place
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield from leaves(one, (*place, key))


def mutations(value: Any) -> list[Any]:
    """Other values in the place of this one."""
    match value:
        case bool():
            return [not value, int(value), str(value)]
        case str():
            return [value + " ", value[:-1], None] if value else ["x"]
        case int() | float():
            return [value + 1, str(value)]
        case list():
            return [[*value, value[0]], value[1:], *([value[::-1]] if value[::-1] != value else [])]
        case dict():
            key = next(iter(value))
            return [{**value, "extra": 1}, {k: v for k, v in value.items() if k != key}]
    raise AssertionError(value)


def test_every_change_of_any_field_of_any_request_is_one_failure_that_names_it(tmp_path: Path) -> None:
    asked, n_tried = recording(), 0
    assert asyncio.run(play(Player([recording()]), asked)) == "answer 0 answer 1 answer 2 answer 3"
    for number, exchange in enumerate(asked.exchanges):
        for place in leaves(exchange.body):
            value = exchange.body
            for key in place:
                value = value[key]
            for new in mutations(value) if place else []:
                other = recording(path=str(tmp_path / "r.jsonl"))
                other.exchanges[number].body = changed(exchange.body, place, new)
                other.path.write_bytes(b"".join(lines(other)))  # its hashes are made anew
                message = failure(Player([read_recording(other.path)]), asked)
                first, _, diff = message.partition("\n")
                assert first.startswith(f"{other.path}: request {number + 1} of 4: "), (place, new, message)
                named = re.sub(r' "\w+"| \([^)]*\)', "", first.partition(" of 4: ")[2]).replace('"', "")
                way = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in place)[1:]
                top = re.match(r"(messages|tools)?(\[\d+\])?", way)
                assert top is not None
                assert named.startswith(way) or isinstance(value, (list, dict)), (way, first)
                assert named.startswith(top[0]) or place in (("tools",), ("messages",)) or len(place) == 1, (
                    first
                )
                assert re.search(r"^[-+][^-+]", diff, re.MULTILINE) or "order" in first, message
                n_tried += 1
    assert n_tried > 400

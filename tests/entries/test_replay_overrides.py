"""Overrides of cursor replay: other answers, failures and hangs in the place of recorded ones."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from cordisd.errors import CompositionError
from cursor_replays import (
    CHUNKS,
    answers,
    chunk_lines,
    fixture,
    load_error,
    play,
    played,
    replaying,
    said,
)
from log_samples import text_chunks


@pytest.fixture
def override(tmp_path: Path) -> Any:
    """Plays calls of a two-answer recording under the given overrides."""

    def run(overrides: object, *requests: dict[str, Any]) -> list[str]:
        path = tmp_path / "overrides.json"
        path.write_text(overrides if isinstance(overrides, str) else json.dumps(overrides))
        file = answers(tmp_path / "f.jsonl", "one", "two")
        return [said(chunks) for chunks in play(*requests, file=file, overrideFile=str(path))]

    return run


def test_a_missing_sidecar_is_ignored(tmp_path: Path) -> None:
    file = answers(tmp_path / "f.jsonl", "one")
    assert said(play(file=file, overrideFile=str(tmp_path / "none"))[0]) == "one"


def test_an_array_replaces_the_script(override: Any) -> None:
    entry = {"kind": "chunks", "chunks": text_chunks("new")}
    assert override([entry], {}, {})[0] == "new"
    assert "has only 1" in override([entry], {}, {})[1]


def test_patches_replace_and_append_single_calls(override: Any) -> None:
    def entry(text: str) -> dict[str, Any]:
        return {"kind": "chunks", "chunks": text_chunks(text)}

    patches = [{"at": 1, "entry": entry("2nd")}, {"at": 2, "entry": entry("3rd")}]
    assert override({"patches": patches}, {}, {}, {}) == ["one", "2nd", "3rd"]


def test_a_throw_streams_its_chunks_and_fails_with_its_code(override: Any, tmp_path: Path) -> None:
    entry = {"kind": "throw", "chunks": CHUNKS[:2], "message": "boom", "code": "SERVER"}
    assert override([entry], {}) == ["SERVER: boom"]
    [chunks] = play(file=str(tmp_path / "f.jsonl"), overrideFile=str(tmp_path / "overrides.json"))
    assert chunks[:-1] == CHUNKS[:2]


def test_a_hang_touches_its_file_and_blocks_until_cancelled(tmp_path: Path) -> None:
    (tmp_path / "o.json").write_text(json.dumps([{"kind": "hang", "readyFile": "{{cwd}}/ready"}]))

    async def run() -> None:
        config = {"file": answers(tmp_path / "f.jsonl", "x"), "overrideFile": str(tmp_path / "o.json")}
        async with replaying(**config) as registry:
            adapter = registry.get("deepseek-official")
            task = asyncio.create_task(played(adapter, cwd=str(tmp_path)))
            while not (tmp_path / "ready").exists():
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.02)
            assert not task.done()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(run())


def test_a_ready_file_that_cannot_be_touched_fails_the_call(override: Any, tmp_path: Path) -> None:
    file = f"{tmp_path}/nowhere/x"
    assert f"cannot touch the ready file {file}" in override([{"kind": "hang", "readyFile": file}])[0]


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        (r"id=(\d+)", "22"),
        (r"id=\d+", "id=22"),
        (r"id=(\d{2})", "22"),
        (r"\{k\}", "{k}"),
        (r"(?s)first.*id=1", "first id=1\nthen\nid=1"),
    ],
)
def test_from_request_takes_the_last_match_and_its_first_group(
    override: Any, expression: str, found: str
) -> None:
    messages = [
        {"role": "first id=1", "content": [{"type": "then", "text": 'id=1 "{k}"'}]},
        {"deep": [[{"x": "id=22"}]], "number": 33},
    ]
    entry = {"kind": "chunks", "chunks": text_chunks(f"<{{{{fromRequest:{expression}}}}}>")}
    assert override([entry], {"messages": messages}) == [f"<{found}>"]


def test_from_request_is_escaped_in_arguments(tmp_path: Path) -> None:
    delta = {"type": "tool-call-delta", "index": 0, "id": "c", "name": "bash"}
    chunks = [
        {**delta, "argumentsDelta": '{"n":{{fromRequest:n=(\\d+)}},"t":"{{fromRequest:t=(.*)}}"}'},
        {"type": "finish", "reason": {"kind": "tool-calls"}},
    ]
    (tmp_path / "o.json").write_text(json.dumps([{"kind": "chunks", "chunks": chunks}]))
    file = answers(tmp_path / "f.jsonl", "x")
    messages = [{"content": 'n=5 t="q" {{cwd}}'}]
    [[first, _]] = play({"messages": messages}, file=file, overrideFile=str(tmp_path / "o.json"))
    assert json.loads(first["argumentsDelta"]) == {"n": 5, "t": '"q" {{cwd}}'}


def test_from_request_without_a_match_fails_the_call(override: Any) -> None:
    entry = {"kind": "chunks", "chunks": text_chunks("{{fromRequest:nope}}")}
    assert override([entry], {"messages": [{"content": "yes"}]}) == [
        "UNKNOWN: llm-replay: {{fromRequest:nope}} matches nothing in the request"
    ]


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ("not json", "Expecting value"),
        ({"patch": []}, "array of entries"),
        ({"patches": [], "more": 1}, "array of entries"),
        ({"patches": [{"at": 0}]}, "patch 0 must have exactly at and entry"),
        ({"patches": [{"at": 3, "entry": {"kind": "hang"}}]}, "at 3 is beyond the script, which has 2"),
        ({"patches": [{"at": -1, "entry": {"kind": "hang"}}]}, "non-negative integer"),
        ({"patches": [{"at": True, "entry": {"kind": "hang"}}]}, "non-negative integer"),
        ({"patches": [{"at": 1, "entry": {"kind": "hang"}}] * 2}, "at 1 is patched already"),
        ([{"kind": "chunk", "chunks": []}], 'did you mean "chunks"'),
        ([{"kind": "hang", "file": "x"}], "readyFile (optional)"),
        ([{"kind": "hang", "readyFile": 5}], "readyFile must be a string"),
        ([{"kind": "throw", "chunks": [], "message": "m"}], "exactly chunks, code, kind, message"),
        ([{"kind": "throw", "chunks": CHUNKS, "message": "m", "code": "C"}], "must not have a finish"),
        ([{"kind": "chunks", "chunks": []}], "last chunk, and no other, must be a finish"),
        ([{"kind": "chunks", "chunks": [CHUNKS[-1]] * 2}], "last chunk, and no other, must be a finish"),
        ([{"kind": "chunks", "chunks": [{"type": "text"}]}], "chunk objects"),
        ([{"kind": "chunks", "chunks": text_chunks("{{fromRequest:(}}")}], "unterminated subpattern"),
        ([{"kind": "chunks", "chunks": text_chunks("{{fromRequest:x")}], "not closed"),
        ([[]], "entry 0 must be an object"),
    ],
)
def test_a_malformed_sidecar_is_refused_by_place(override: Any, overrides: object, says: str) -> None:
    with pytest.raises(CompositionError) as caught:
        override(overrides)
    assert "overrides.json: " in str(caught.value)
    assert says in str(caught.value)


def test_an_unfinished_call_can_be_patched(tmp_path: Path) -> None:
    file = fixture(tmp_path / "f.jsonl", *chunk_lines(*CHUNKS[:2]), *chunk_lines(*CHUNKS, step=2))
    assert load_error(file=file).startswith(f"{file}:2: this model call has no finish")
    patch = {"at": 0, "entry": {"kind": "chunks", "chunks": text_chunks("mended")}}
    (tmp_path / "o.json").write_text(json.dumps({"patches": [patch]}))
    result = play({}, {}, file=file, overrideFile=str(tmp_path / "o.json"))
    assert [said(chunks) for chunks in result] == ["mended", "SDK snapshot"]

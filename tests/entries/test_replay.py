"""Cursor replay: scripts, sessions, providers, pacing, and the published recordings."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from cordisd.entries.replay import MAX_BATCH, ReplayEntry
from cordisd.errors import CordisError, InvalidParamsError
from cordisd.events import encode_json
from cordisd.services.models import ModelInfo
from cordisd.session.store import SessionStore
from cursor_replays import CHUNKS, answers, chunk_lines, fixture, line, play, played, replaying, request, said
from log_samples import finished_session, header, text_chunks


def test_a_projected_fixture_plays_its_chunks_packed_rows_expanded(tmp_path: Path) -> None:
    row = line(
        "text-chunks", {"turn": 1, "step": 1, "index": 0, "dt": [0, 0], "texts": ["SDK", " snap", "shot"]}
    )
    first, *_, last, finish = CHUNKS
    path = fixture(
        tmp_path / "f.jsonl",
        line("turn/start", {"turn": 1}),
        *chunk_lines(first),
        row,
        *chunk_lines(last, finish),
        line("assistant/message", {"turn": 1}, sourceEventSeqs=[900], surfaceOp="append"),
    )
    assert play(file=path) == [CHUNKS]


@pytest.mark.parametrize("pack_chunks", [True, False])
def test_a_log_that_we_wrote_plays_as_it_is(tmp_path: Path, pack_chunks: bool) -> None:
    file = SessionStore(tmp_path, pack_chunks=pack_chunks).create(header())
    file.append(finished_session())
    file.close()
    expected = [event.data["chunk"] for event in finished_session() if event.type == "assistant/chunk"]
    first, second = play({}, {}, file=str(file.path))
    assert first + second == expected
    assert first[-1]["reason"] == {"kind": "tool-calls"}


def test_a_recorded_failure_is_one_call(tmp_path: Path) -> None:
    failure = {
        "type": "finish",
        "reason": {"kind": "error", "failure": {"message": "m", "code": "SERVER", "status": 500}},
    }
    path = fixture(tmp_path / "f.jsonl", *chunk_lines(failure), *chunk_lines(*CHUNKS))
    assert play({}, {}, file=path) == [[failure], CHUNKS]


def test_a_compaction_summary_plays_as_a_text_stream(tmp_path: Path) -> None:
    summary = {"llmStreamCall": True, "rawOutput": "so far"}
    path = fixture(tmp_path / "f.jsonl", line("compaction/summary", summary), *chunk_lines(*CHUNKS))
    assert [said(chunks) for chunks in play({}, {}, file=path)] == ["so far", "SDK snapshot"]


def test_sessions_bind_to_scripts_in_the_order_of_their_first_call(tmp_path: Path) -> None:
    root = answers(tmp_path / "root.jsonl", "root 1", "root 2", created_at=9)
    late = answers(tmp_path / "late.jsonl", "late", created_at=5)
    early = answers(tmp_path / "early.jsonl", "early b", created_at=3, id="b")
    first = answers(tmp_path / "first.jsonl", "early a", created_at=3, id="a")
    calls = [{"session": name} for name in ("x", "y", "x", "z", "w")]
    result = play(*calls, file=root, childFiles=[late, early, first])
    assert [said(chunks) for chunks in result] == ["root 1", "early a", "root 2", "early b", "late"]


def test_what_a_child_copied_from_its_parent_is_left_out(tmp_path: Path) -> None:
    root = answers(tmp_path / "root.jsonl", "root")
    n_seed = len(text_chunks("copied"))
    child = answers(tmp_path / "child.jsonl", "copied", "own", seed_length=n_seed)
    assert said(play({"session": "a"}, {"session": "b"}, file=root, childFiles=[child])[1]) == "own"


def test_an_exhausted_script_fails_with_the_published_text(tmp_path: Path) -> None:
    result = play({}, {}, file=answers(tmp_path / "f.jsonl", "only"))
    assert said(result[1]) == (
        "UNKNOWN: llm-replay: script exhausted — session requested model call #2 but its script has only 1; "
        "re-record the scenario"
    )


def test_an_unrecorded_session_fails_with_its_number(tmp_path: Path) -> None:
    result = play({"session": "a"}, {"session": "b"}, file=answers(tmp_path / "f.jsonl", "only"))
    assert said(result[1]).startswith(
        "UNKNOWN: llm-replay: a model call arrived from an unrecorded session (#2)"
    )


def test_the_variables_are_the_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSH_SNAPSHOT_FILE", answers(tmp_path / "f.jsonl", "recorded"))
    monkeypatch.setenv("DSH_SNAPSHOT_CHILD_FILES", answers(tmp_path / "g.jsonl", "child") + os.pathsep)
    overrides = tmp_path / "o.json"
    monkeypatch.setenv("DSH_SNAPSHOT_OVERRIDE", str(overrides))
    assert [said(c) for c in play({"session": "a"}, {"session": "b"})] == ["recorded", "child"]
    overrides.write_text(json.dumps([{"kind": "chunks", "chunks": text_chunks("scripted")}]))
    assert said(play()[0]) == "scripted"
    assert said(play(file=answers(tmp_path / "h.jsonl", "configured"), overrideFile="")[0]) == "configured"


def test_the_working_directory_is_filled_in_and_escaped_in_arguments(tmp_path: Path) -> None:
    arguments = '{"path":"{{cwd}}/note"}'
    block = {"type": "tool-call", "id": "c", "name": "bash", "arguments": arguments}
    chunks = [
        {"type": "text-delta", "index": 0, "text": "in {{cwd}}, {{other}}"},
        {"type": "tool-call-delta", "index": 1, "id": "c", "name": "bash", "argumentsDelta": arguments},
        {"type": "block-end", "index": 1, "block": block},
        {"type": "finish", "reason": {"kind": "tool-calls"}},
    ]
    path = fixture(tmp_path / "f.jsonl", *chunk_lines(*chunks))
    cwd = '/a "b"\\c'
    text, delta, end, _ = play({"cwd": cwd}, file=path)[0]
    assert text["text"] == f"in {cwd}, {{{{other}}}}"
    assert json.loads(delta["argumentsDelta"]) == {"path": f"{cwd}/note"}
    assert end["block"]["arguments"] == delta["argumentsDelta"]


def test_the_default_providers_are_the_official_and_the_recorded_ones(tmp_path: Path) -> None:
    recorded = {"header": {"config": {"provider": "my-vllm", "model": "q"}}, "reason": "initial"}
    path = fixture(tmp_path / "f.jsonl", line("request/header", recorded), *chunk_lines(*CHUNKS))

    async def run() -> None:
        async with replaying(file=path) as registry:
            assert registry.providers() == ["deepseek-official", "my-vllm"]
            assert registry.get("my-vllm").describe("anything") == ModelInfo()
            assert await played(registry.get("my-vllm")) == CHUNKS
        assert registry.providers() == []

    asyncio.run(run())


def test_a_catalog_says_what_its_models_are(tmp_path: Path) -> None:
    model = {
        "id": "m",
        "contextWindow": 1000,
        "defaultMaxTokens": 50,
        "reasoningEfforts": ["low", "high"],
        "defaultReasoningEffort": "high",
    }
    catalog = [{"id": "p", "models": [model], "retryPolicy": {"maxRetries": 2}}, {"id": "q"}]

    async def run() -> None:
        async with replaying(file=answers(tmp_path / "f.jsonl", "hi"), providers=catalog) as registry:
            assert registry.providers() == ["p", "q"]
            adapter = registry.get("p")
            assert adapter.describe("m") == ModelInfo(1000, 50, "high")
            assert adapter.retry_policy.max_retries == 2
            adapter.check_effort("m", "low")
            adapter.check_effort("unlisted", "max")
            with pytest.raises(InvalidParamsError, match="low, high"):
                adapter.check_effort("m", "hihg")
            assert said(await played(registry.get("q"))) == "hi"

    asyncio.run(run())


def test_a_provider_listed_twice_fails_the_mount(tmp_path: Path) -> None:
    with pytest.raises(CordisError, match="already has an adapter"):
        play(file=answers(tmp_path / "f.jsonl", "hi"), providers=[{"id": "p"}, {"id": "p"}])


def test_messages_are_encoded_as_they_are_logged(tmp_path: Path) -> None:
    async def run() -> None:
        async with replaying(file=answers(tmp_path / "f.jsonl", "hi")) as registry:
            message = {"role": "user", "content": [{"type": "text", "text": "é\ud83d"}]}
            encoded = registry.get("deepseek-official").encode_message(message)
            assert encoded == encode_json(message)

    asyncio.run(run())


def test_long_answers_come_in_batches_that_let_others_run(tmp_path: Path) -> None:
    path = answers(tmp_path / "f.jsonl", "x")
    overrides = tmp_path / "o.json"
    overrides.write_text(json.dumps([{"kind": "chunks", "chunks": text_chunks(*["a"] * 1000)}]))

    async def run() -> list[int]:
        async with replaying(file=path, overrideFile=str(overrides)) as registry:
            return [len(batch) async for batch in registry.get("deepseek-official").stream(request())]

    sizes = asyncio.run(run())
    assert sum(sizes) == 1003
    assert max(sizes) <= MAX_BATCH


def test_pacing_delays_every_chunk(tmp_path: Path) -> None:
    path = answers(tmp_path / "f.jsonl", "x")

    async def run() -> tuple[list[int], float]:
        async with replaying(file=path, paceMs=15) as registry:
            started = asyncio.get_running_loop().time()
            sizes = [len(batch) async for batch in registry.get("deepseek-official").stream(request())]
            return sizes, asyncio.get_running_loop().time() - started

    sizes, elapsed_s = asyncio.run(run())
    assert sizes == [1, 1, 1, 1]
    assert elapsed_s >= 0.058


@pytest.mark.parametrize("pace", [-1, 1.5, "5", True])
def test_a_pace_that_is_no_count_is_refused(pace: object) -> None:
    with pytest.raises(ValidationError, match="paceMs"):
        ReplayEntry.read_config({"paceMs": pace})


REFERENCE = Path("/work/shared/fixtures/reference-logs")


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="the reference logs are not here")
@pytest.mark.parametrize(
    "scenario", ["text-turn", "bash-tool", "persistent-tools", "subagent-spawn-in-process"]
)
def test_the_reference_recordings_play_what_their_clients_saw(scenario: str) -> None:
    folder = REFERENCE / scenario
    children = [str(path) for path in sorted(folder.glob("session.*.jsonl"))]
    seen: dict[str, list[dict[str, Any]]] = {}
    for text in (folder / "notifications.expected.jsonl").read_text().splitlines():
        notice = json.loads(text)
        event = notice["params"].get("event", {})
        if event.get("type") == "assistant/chunk":
            seen.setdefault(str(event["seq"]), []).append(event["data"]["chunk"])
    file = str(folder / "session.jsonl")
    n_calls = (folder / "session.jsonl").read_text().count('"type":"finish"')
    calls = play(*[{"cwd": "{{cwd}}"}] * n_calls, file=file, childFiles=children)
    everything = [chunk for chunks in calls for chunk in chunks]
    assert all(any(chunk in seen_at for seen_at in seen.values()) for chunk in everything)
    assert sum(map(len, seen.values())) >= len(everything) > 0
    final = json.loads((folder / "result.expected.json").read_text())["finalResponse"]
    assert said(calls[-1]) == final

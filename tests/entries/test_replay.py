from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from cordisd.entries.replay import MAX_BATCH, ReplayEntry
from cordisd.errors import CompositionError, CordisError, InvalidParamsError
from cordisd.events import Event, encode_json
from cordisd.kernel.scope import Scope
from cordisd.services.models import ModelAdapter, ModelInfo, ModelRegistry, ModelRequest, RequestConfig
from cordisd.session.header import SessionHeader
from cordisd.session.store import SessionStore
from log_samples import finished_session, header, text_chunks

CHUNKS = text_chunks("SDK", " snap", "shot")


@pytest.fixture(autouse=True)
def _no_snapshot_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FILE", "OVERRIDE", "CHILD_FILES"):
        monkeypatch.delenv(f"DSH_SNAPSHOT_{name}", raising=False)


def line(kind: str, data: dict[str, Any], **more: Any) -> str:
    return json.dumps({"type": kind, "data": data, **more})


def chunk_lines(*chunks: dict[str, Any], step: int = 1) -> list[str]:
    return [line("assistant/chunk", {"turn": 1, "step": step, "chunk": chunk}) for chunk in chunks]


def fixture(path: Path, *lines: str, **fields: Any) -> str:
    """A projected fixture with the given body; returns its path."""
    first = SessionHeader(**{"id": path.stem, "created_at": 1, "cwd": "{{cwd}}", **fields}).as_dict()
    path.write_text("\n".join([json.dumps(first), *lines, ""]))
    return str(path)


def answers(path: Path, *texts: str, **fields: Any) -> str:
    """A fixture in which the model gives these answers, one per step."""
    lines = [
        text for step, answer in enumerate(texts, 1) for text in chunk_lines(*text_chunks(answer), step=step)
    ]
    return fixture(path, *lines, **fields)


@asynccontextmanager
async def replaying(**config: Any) -> AsyncIterator[ModelRegistry]:
    """The registry with the replay mounted in it."""
    scope = Scope("host")
    registry = ModelRegistry()
    scope.provide(ModelRegistry, registry)
    try:
        async with ReplayEntry(ReplayEntry.read_config(config)).mount(scope):
            yield registry
    finally:
        await scope.close()


def request(session: str = "live", cwd: str = "/w", messages: Sequence[dict[str, Any]] = ()) -> ModelRequest:
    encoded = [encode_json(message) for message in messages]
    return ModelRequest(session, cwd, RequestConfig("deepseek-official", "m"), "", [], encoded)


async def played(adapter: ModelAdapter, **fields: Any) -> list[dict[str, Any]]:
    return [chunk async for batch in adapter.stream(request(**fields)) for chunk in batch]


def play(*requests: dict[str, Any], **config: Any) -> list[list[dict[str, Any]]]:
    """The chunks of these model calls, made one after the other."""

    async def run() -> list[list[dict[str, Any]]]:
        async with replaying(**config) as registry:
            adapter = registry.get("deepseek-official")
            return [await played(adapter, **fields) for fields in requests or ({},)]

    return asyncio.run(run())


def said(chunks: list[dict[str, Any]]) -> str:
    """The text of an answer, or the message of its failure."""
    reason = chunks[-1]["reason"]
    if reason["kind"] == "error":
        return f"{reason['failure']['code']}: {reason['failure']['message']}"
    return "".join(chunk["text"] for chunk in chunks if chunk["type"] == "text-delta")


def load_error(**config: Any) -> str:
    with pytest.raises(CompositionError) as caught:
        play(**config)
    return str(caught.value)


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


class TestOverrides:
    @pytest.fixture
    def override(self, tmp_path: Path) -> Any:
        """Plays calls of a two-answer recording under the given overrides."""

        def run(overrides: object, *requests: dict[str, Any]) -> list[str]:
            path = tmp_path / "overrides.json"
            path.write_text(overrides if isinstance(overrides, str) else json.dumps(overrides))
            file = answers(tmp_path / "f.jsonl", "one", "two")
            return [said(chunks) for chunks in play(*requests, file=file, overrideFile=str(path))]

        return run

    def test_a_missing_sidecar_is_ignored(self, tmp_path: Path) -> None:
        file = answers(tmp_path / "f.jsonl", "one")
        assert said(play(file=file, overrideFile=str(tmp_path / "none"))[0]) == "one"

    def test_an_array_replaces_the_script(self, override: Any) -> None:
        entry = {"kind": "chunks", "chunks": text_chunks("new")}
        assert override([entry], {}, {})[0] == "new"
        assert "has only 1" in override([entry], {}, {})[1]

    def test_patches_replace_and_append_single_calls(self, override: Any) -> None:
        def entry(text: str) -> dict[str, Any]:
            return {"kind": "chunks", "chunks": text_chunks(text)}

        patches = [{"at": 1, "entry": entry("2nd")}, {"at": 2, "entry": entry("3rd")}]
        assert override({"patches": patches}, {}, {}, {}) == ["one", "2nd", "3rd"]

    def test_a_throw_streams_its_chunks_and_fails_with_its_code(self, override: Any, tmp_path: Path) -> None:
        entry = {"kind": "throw", "chunks": CHUNKS[:2], "message": "boom", "code": "SERVER"}
        assert override([entry], {}) == ["SERVER: boom"]
        [chunks] = play(file=str(tmp_path / "f.jsonl"), overrideFile=str(tmp_path / "overrides.json"))
        assert chunks[:-1] == CHUNKS[:2]

    def test_a_hang_touches_its_file_and_blocks_until_cancelled(self, tmp_path: Path) -> None:
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

    def test_a_ready_file_that_cannot_be_touched_fails_the_call(self, override: Any) -> None:
        assert (
            "cannot touch the ready file /nowhere/x"
            in override([{"kind": "hang", "readyFile": "/nowhere/x"}])[0]
        )

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
        self, override: Any, expression: str, found: str
    ) -> None:
        messages = [
            {"role": "first id=1", "content": [{"type": "then", "text": 'id=1 "{k}"'}]},
            {"deep": [[{"x": "id=22"}]], "number": 33},
        ]
        entry = {"kind": "chunks", "chunks": text_chunks(f"<{{{{fromRequest:{expression}}}}}>")}
        assert override([entry], {"messages": messages}) == [f"<{found}>"]

    def test_from_request_is_escaped_in_arguments(self, tmp_path: Path) -> None:
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

    def test_from_request_without_a_match_fails_the_call(self, override: Any) -> None:
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
    def test_a_malformed_sidecar_is_refused_by_place(
        self, override: Any, overrides: object, says: str
    ) -> None:
        with pytest.raises(CompositionError) as caught:
            override(overrides)
        assert "overrides.json: " in str(caught.value)
        assert says in str(caught.value)

    def test_an_unfinished_call_can_be_patched(self, tmp_path: Path) -> None:
        file = fixture(tmp_path / "f.jsonl", *chunk_lines(*CHUNKS[:2]), *chunk_lines(*CHUNKS, step=2))
        assert load_error(file=file).startswith(f"{file}:2: this model call has no finish")
        patch = {"at": 0, "entry": {"kind": "chunks", "chunks": text_chunks("mended")}}
        (tmp_path / "o.json").write_text(json.dumps({"patches": [patch]}))
        result = play({}, {}, file=file, overrideFile=str(tmp_path / "o.json"))
        assert [said(chunks) for chunks in result] == ["mended", "SDK snapshot"]


class TestBadFixtures:
    def test_no_file(self) -> None:
        assert "set file, or the variable DSH_SNAPSHOT_FILE" in load_error()
        assert "set file" in load_error(file="")

    def test_a_missing_file(self, tmp_path: Path) -> None:
        assert load_error(file=str(tmp_path / "x")).startswith(
            f"{tmp_path}/x: cannot read the fixture: No such"
        )

    @pytest.mark.parametrize("name", ["child", "primary"])
    def test_an_empty_file(self, tmp_path: Path, name: str) -> None:
        (tmp_path / "empty").touch()
        good = answers(tmp_path / "f.jsonl", "x")
        files = [good, str(tmp_path / "empty")] if name == "child" else [str(tmp_path / "empty"), good]
        text = load_error(file=files[0], childFiles=files[1:])
        assert text.startswith(f"{tmp_path}/empty:1: ")
        assert "is empty" in text

    def test_a_newer_format(self, tmp_path: Path) -> None:
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
    def test_a_bad_line(self, tmp_path: Path, bad: str, says: str) -> None:
        text = load_error(file=fixture(tmp_path / "f.jsonl", line("turn/start", {"turn": 1}), bad))
        assert text.startswith(f"{tmp_path}/f.jsonl:3: ")
        assert says in text

    def test_a_gap_in_a_whole_log(self, tmp_path: Path) -> None:
        events = finished_session()
        del events[3]
        path = tmp_path / "f.jsonl"
        path.write_bytes(b"\n".join([encode_json(header().as_dict()), *(event.json for event in events)]))
        assert load_error(file=str(path)) == f"{path}:5: seq gap: expected 3, found 4"

    def test_a_truncated_log(self, tmp_path: Path) -> None:
        events = finished_session()
        n_lines = next(at for at, event in enumerate(events) if _is_finish(event)) + 1
        path = tmp_path / "f.jsonl"
        path.write_bytes(
            b"\n".join([encode_json(header().as_dict()), *(e.json for e in events[: n_lines - 1])])
        )
        assert "has no finish chunk; re-record" in load_error(file=str(path))


def _is_finish(event: Event) -> bool:
    return event.type == "assistant/chunk" and event.data["chunk"]["type"] == "finish"


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

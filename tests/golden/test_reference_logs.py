"""Sessions that the reference recorded replay here with the same notifications (where they are at hand)."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from daemon import Daemon

LOGS = Path(__file__).parents[3] / "shared" / "fixtures" / "reference-logs"
pytestmark = pytest.mark.skipif(not LOGS.is_dir(), reason="../shared/fixtures is not here")

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
OURS = {"turn/end": ["stopReason"], "request/header": ["sha256", "cause"], "tool/result": ["meta"]}
"""Fields that we add to published events; published readers skip them."""


def normalised(frame: dict[str, Any]) -> dict[str, Any]:
    """A notification without ids, times, header content and the wording of tool results."""
    text = UUID.sub("ID", json.dumps({"method": frame["method"], "params": frame["params"]}))
    params = json.loads(text.replace("{{sessionId}}", "ID"))["params"]
    params["sessionId"] = "ID"
    event = params.get("event")
    if event is None:
        return {"method": frame["method"], "params": params}
    event["time"] = 0
    for name in OURS.get(event["type"], ()):
        event["data"].pop(name, None)
    if event["type"] == "request/header":
        event["data"]["header"].update(system="…", tools="…")
    if event["type"] == "tool/result":
        [block] = event["data"]["message"]["content"]
        block["content"] = ["wording"]
    return {"method": frame["method"], "params": params}


@pytest.mark.parametrize("scenario", ["text-turn", "bash-tool", "persistent-tools"])
def test_a_recorded_session_gives_the_recorded_notifications(scenario: str, tmp_path: Path) -> None:
    work = tmp_path / "w"
    work.mkdir()
    patch = tmp_path / "replay.yml"
    patch.write_text(
        "- {id: model, disabled: true}\n- insert:\n  - {id: replay, name: replay, "
        f"config: {{file: {LOGS / scenario / 'session.jsonl'}}}}}\n"
    )
    lines = (LOGS / scenario / "notifications.expected.jsonl").read_text().replace("{{cwd}}", str(work))
    expected = [normalised(json.loads(line)) for line in lines.splitlines()]
    prompt = expected[0]["params"]["event"]["data"]["inserted"][0]["content"]
    argv = [sys.executable, "-m", "cordisd", "serve", "--stdio", "minimal", "--patch", str(patch)]
    with Daemon(work, argv=argv) as daemon:
        daemon.initialize()
        start = len(daemon.frames)
        daemon.request("session/prompt", {"sessionId": "s", "contentBlocks": prompt})
        daemon.wait_idle("s", start)
        seen = [frame for frame in daemon.frames[start:] if "method" in frame]
    got = [normalised(frame) for frame in seen if frame["method"] != "session.completed"]
    assert [json.dumps(frame) for frame in got] == [json.dumps(frame) for frame in expected]
    answer = json.loads((LOGS / scenario / "result.expected.json").read_text())["finalResponse"]
    last = [frame for frame in got if frame["params"].get("event", {}).get("type") == "assistant/message"][-1]
    texts = [
        block["text"]
        for block in last["params"]["event"]["data"]["message"]["content"]
        if block["type"] == "text"
    ]
    assert "".join(texts) == answer


def test_the_published_composition_loads_and_runs(tmp_path: Path) -> None:
    from cordisd.mock import MockModelThread, call, text

    composition = LOGS.parents[1] / "bench" / "reference.cordis.yml"
    script = [call("c1", "bash", {"command": "echo hi"}), text("end")]
    with MockModelThread(script) as mock:
        with Daemon(tmp_path, model_url=mock.url, composition=composition) as daemon:
            daemon.initialize()
            events = daemon.run("s", "x")
        results = [event for event in events if event["type"] == "tool/result"]
        assert results[0]["data"]["message"]["content"][0]["content"][0]["text"] == "hi"
        first = mock.requests[0].json
        assert first["messages"][0] == {"role": "system", "content": "Published names."}
        assert [tool["function"]["name"] for tool in first["tools"]] == ["bash", "str_replace_editor"]
        assert set(first) == {"model", "messages", "stream", "stream_options", "tools"}

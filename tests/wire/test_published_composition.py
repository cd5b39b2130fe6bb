"""A composition in the published entry names, with an overlay that replays, serves real turns unchanged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cordisd.shipped import shipped_recording
from daemon import Daemon

REFERENCE = Path("/work/shared/fixtures/reference-logs/persistent-tools/session.jsonl")

PUBLISHED = """
- id: sdk-jsonrpc-server
  name: '@deepseek-ai/dsh-sdk-jsonrpc-server'
  config: {maxTokensAsSuccess: false}
- id: llm-deepseek
  name: '@deepseek-ai/dsh-llm-deepseek'
  config:
    apiKeyEnv: DEEPSEEK_API_KEY
    streamIdleTimeoutMs: 172800000
    models:
      - id: !!js process.env.DSH_MODEL ?? 'deepseek-v4-flash'
        contextWindow: !!js Number(process.env.DSH_CONTEXT_WINDOW ?? 1000000)
- {id: sandbox, name: '@deepseek-ai/dsh-sandbox-local'}
- id: sandbox-policy
  name: '@deepseek-ai/dsh-sandbox-policy'
  config: {mode: danger-full-access, workspaceRoot: !!js process.env.DSH_CWD ?? process.cwd()}
- {id: subprocess, name: '@deepseek-ai/dsh-subprocess-local'}
- {id: pty, name: '@deepseek-ai/dsh-terminal', inject: [subprocess]}
- {id: terminal-bash, name: '@deepseek-ai/dsh-terminal-bash', config: {timeoutMs: 300000, cols: 160}}
- {id: fs-local, name: '@deepseek-ai/dsh-fs-local', config: {cwd: !!js process.env.DSH_CWD ?? process.cwd()}}
- id: agent-spine
  name: '@deepseek-ai/dsh-agent-spine-demo'
  config:
    includeHarnessIdentity: false
    includeRuntimeContext: false
    persona: !!js process.env.DSH_SYSTEM_PROMPT ?? 'You work in a published composition.'
    workspaceContext: false
    skills: {enabled: false}
    toolBash: false
    toolJobs: false
- {id: persistent-bash, name: '@deepseek-ai/dsh-tool-bash-persistent', config: {timeoutMs: 300000}}
- {id: editor, name: '@deepseek-ai/dsh-tool-str-replace-editor', config: {maxOutputChars: 16000}}
- id: sessions
  name: '@deepseek-ai/dsh-session-persistence-jsonl'
  config: {root: !!js process.env.DSH_SESSION_ROOT ?? './.sessions', compression: none}
"""
OVERLAY = """
- id: live
  name: '@deepseek-ai/cordis-plugin-include'
  config:
    path: published.cordis.yml
    patches:
      - {id: llm-deepseek, name: '@deepseek-ai/dsh-llm-deepseek', disabled: true}
      - insert:
          - id: llm-replay
            name: '@deepseek-ai/dsh-llm-replay'
            config: {providers: [{id: deepseek-official, models: [{id: deepseek-v4-flash}]}]}
"""


def results(rows: list[dict[str, Any]]) -> list[tuple[str, bool]]:
    """Text and failure of each tool result in a log."""
    blocks = [row["data"]["message"]["content"][0] for row in rows if row["type"] == "tool/result"]
    return [(block["content"][0]["text"], block["isError"]) for block in blocks]


@pytest.mark.parametrize("recording", [shipped_recording("demo"), REFERENCE], ids=["demo", "reference"])
def test_recorded_turns_run_with_real_tools_in_the_published_composition(
    recording: Path, tmp_path: Path
) -> None:
    if not recording.exists():
        pytest.skip("the reference logs are not here")
    (tmp_path / "published.cordis.yml").write_text(PUBLISHED)
    (tmp_path / "snapshot.cordis.yml").write_text(OVERLAY)
    (tmp_path / "w").mkdir()
    recorded = [json.loads(line) for line in recording.read_text().splitlines()]
    prompts = [row["data"] for row in recorded if row["type"] == "user/message"]
    composition = tmp_path / "snapshot.cordis.yml"
    environment = {"DSH_SNAPSHOT_FILE": str(recording), "DEEPSEEK_API_KEY": ""}
    with Daemon(tmp_path / "w", composition=composition, **environment) as daemon:
        daemon.initialize()
        for prompt in prompts:
            events = daemon.run("s", prompt["content"][0]["text"].replace("{{cwd}}", str(daemon.cwd)))
            assert events[-1]["data"]["reason"] == {"kind": "completed"}
        log = daemon.log("s")
        expected = [(text.replace("{{cwd}}", str(daemon.cwd)), bad) for text, bad in results(recorded)]
        assert len(expected) > 2
        assert [bad for _, bad in results(log)] == [bad for _, bad in expected]
        if recording == REFERENCE:
            assert [text for text, _ in results(log)][:2] == [text for text, _ in expected][:2]
            assert (daemon.cwd / "note.txt").read_text() == "target:\n\tnew\n"
        [header] = [row["data"]["header"] for row in log if row["type"] == "request/header"]
        assert header["system"] == "You work in a published composition."
        assert [tool["name"] for tool in header["tools"]] == ["bash", "str_replace_editor"]
        assert header["config"] == {"provider": "deepseek-official", "model": "deepseek-v4-flash"}
        assert daemon.end() == 0
        assert daemon.stderr == b""

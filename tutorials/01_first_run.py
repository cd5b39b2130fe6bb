"""A first rollout from Python, without a key: the model's side is a recording, the tools are real.

    python tutorials/01_first_run.py

Every claim below is checked; the script fails if one is not true.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from cordisd.shipped import shipped, shipped_recording
from cordisd_sdk import Client

TASK = "Write durations.py, with checks, and make the checks pass."


def main() -> None:
    composition, recording = shipped("demo"), shipped_recording("demo")
    assert composition is not None and recording is not None, "the demo ships with the package"
    with tempfile.TemporaryDirectory() as folder:
        workspace, logs = Path(folder, "workspace"), Path(folder, "logs")
        workspace.mkdir()

        # A client owns a daemon. The demo composition is `minimal` with its model replaced by a replay.
        with Client(
            composition=composition,
            cwd=workspace,
            session_root=logs,
            env={"DSH_SNAPSHOT_FILE": str(recording)},
        ) as client:
            session = client.session("first")

            # Events arrive while the rollout runs. `run` does the same and returns only the outcome.
            prompt = session.prompt(TASK)
            for event in prompt:
                if event["type"] == "tool/call":
                    print("calls", event["data"]["name"], event["data"]["arguments"][:70])
            result = prompt.result()
            print(result.final_response)

            assert result.stop_reason == "completed"
            assert [event["seq"] for event in result.events] == list(range(len(result.events)))

            # The tools ran for real: what the model created is on disk.
            assert (workspace / "durations.py").is_file()

        # The log outlives the daemon: a header, then every event, runs of deltas packed into one line.
        [log] = logs.glob("*/first/session.jsonl")
        header, *lines = [json.loads(line) for line in log.read_text().splitlines()]
        assert header["id"] == "first"
        assert lines[-1]["type"] == "turn/end"
        assert lines[-1] == result.events[-1]
        print("log:", len(lines), "lines, the last one:", lines[-1]["data"]["reason"]["kind"])


if __name__ == "__main__":
    main()

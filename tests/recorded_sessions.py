"""Makes recordings: a session of the daemon with the mock, recorded."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cordisd.mock import Answer, MockModelThread, RawReply, call, text
from cordisd_sdk import Client

PROMPTS = ("make f in {{cwd}}", "say bye")
SCRIPT = (
    call("c1", "bash", {"command": "pwd; echo hi > f; ls"}),
    call("c2", "bash", {"command": "cat f"}),
    text("done in ", "X"),
    text("bye"),
)


def record(
    folder: Path,
    session: str,
    *,
    script: Sequence[Answer | RawReply] = SCRIPT,
    prompts: Sequence[str] = PROMPTS,
    **options: Any,
) -> Path:
    """The recording `folder`/`session`.jsonl of these prompts. `options` are those of a client."""
    work = folder / "made" / session
    work.mkdir(parents=True)
    config = {"folder": str(folder), "composition": options.get("composition")}
    patch = folder / "made" / f"{session}.yml"
    patch.write_text(json.dumps([{"insert": [{"id": "rec", "name": "recorder", "config": config}]}]))
    steering = [name for name in os.environ if name.startswith(("DSH_", "CORDISD_", "XDG_"))]
    with MockModelThread(script) as mock:
        options |= {"cwd": work, "patches": [patch], "base_url": mock.url, "env": dict.fromkeys(steering)}
        options["env"]["DSH_SESSION_ROOT"] = str(folder / "made" / "logs")
        with Client(**options) as client:
            for prompt in prompts:
                client.session(session).run(prompt.replace("{{cwd}}", str(work)))
            client.session(session).close()
    return folder / f"{session}.jsonl"

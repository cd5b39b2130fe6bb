"""Daemons that record and play, and a conversation that has a bit of everything."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cordisd.mock import DONE, Answer, Call, Cut, RawReply, delta, error, error_object, event, stream
from cordisd.mock.sse import json_body
from daemon import Daemon

KEY = "test-key-0123456789"
NOWHERE = "http://127.0.0.1:9"
ROWS = """
- id: model
  name: openai
  config:
    provider: deepseek-official
    apiKeyEnv: DEEPSEEK_API_KEY
    baseUrl: !!js process.env.DEEPSEEK_BASE_URL
    parameters: {temperature: 0.5}
    retryPolicy: {maxRetries: 9, backoff: {initialDelayMs: 1, maxDelayMs: 5000}}
- id: persona
  name: persona
  config:
    text: !!js process.env.DSH_SYSTEM_PROMPT ?? 'You work.'
    complete: true
    includeRuntimeContext: false
- {id: bash, name: bash}
- {id: editor, name: str-replace-editor}
- {id: sessions, name: sessions-jsonl}
"""


def composition(folder: Path, name: str, *rows: tuple[str, dict[str, Any]], base: str = ROWS) -> Path:
    """A composition file with these entries besides the usual ones."""
    path = folder / f"{name}.cordis.yml"
    more = [
        {"id": f"own-{number}", "name": entry, "config": config}
        for number, (entry, config) in enumerate(rows)
    ]
    path.write_text(base + "".join(f"- {json.dumps(row)}\n" for row in more))
    return path


def daemon(cwd: Path, path: Path, url: str = NOWHERE, **environment: str) -> Daemon:
    """A daemon of that composition, in a folder that is made now."""
    cwd.mkdir(exist_ok=True, parents=True)
    argv = [sys.executable, "-m", "cordisd", "serve", "--stdio", str(path)]
    started = Daemon(cwd, model_url=url, argv=argv, **environment)
    started.initialize()
    return started


def end_of(events: list[dict[str, Any]]) -> dict[str, Any]:
    """What the log says of the end of a turn."""
    [data] = [one["data"] for one in events if one["type"] == "turn/end"]
    return dict(data)


def failure_of(events: list[dict[str, Any]]) -> tuple[str, str]:
    """Code and message of a turn that has failed."""
    found = end_of(events)["reason"]["error"]
    return found["code"], found["message"]


def in_pieces(words: str, size: int, **more: Any) -> Answer:
    """A text answer in pieces of so many characters."""
    pieces = [words[at : at + size] for at in range(0, len(words), size)]
    return Answer(text=pieces, **more)


def conversation(cwd: Path) -> tuple[list[str], list[Any]]:
    """Prompts, and what the model answers to each request."""
    here = str(cwd)
    arguments = json.dumps({"command": f"cd {here}\nsh {here}/say.sh; pwd"})
    create = {"command": "create", "path": f"{here}/say.sh", "file_text": f"echo {here} {{{{cwd}}}} é\n"}
    bad = b"data: " + json.dumps({"choices": [{"delta": {"content": f"{here} _"}}]}).encode().replace(
        b"_", b"\xff"
    )
    long = "a title that is cut before there is any path in it, "
    prompts = [f"{long}{here} and {{{{cwd}}}}, which is text. é", "second: \U0001f600", "third \ud83d"]
    answers = [
        Answer(
            reasoning=["I th", "ink of ", here[:4], here[4:], "/x"],
            calls=[
                Call(
                    "bash",
                    ['{"command": "chmod +x ', "missing || true; ls ", here[:-2], here[-2:], '"}'],
                    "c1",
                ),
                Call("str_replace_editor", [json.dumps(create)], "c2"),
            ],
        ),
        error(429, "slow down", retry_after="0"),
        error(500, f"broken in {here}"),
        RawReply([delta({"content": "half of it"}), Cut("rst")]),
        RawReply([delta({"content": "x"}), event(error_object(503, "busy"))]),
        in_pieces("some text to be cut", 4, faults={"cut-fin": 0.7}),
        Answer(calls=[Call("bash", [arguments[at : at + 3] for at in range(0, len(arguments), 3)], "c3")]),
        in_pieces(
            f"é{here}/ä done in {here}\n{here}. {{{{cwd}}}}",
            2,
            faults={"split-characters": None, "pace": 0.002, "comments": None},
        ),
        RawReply([bad + b"\n\n", b": keep", b"alive\n\n", DONE]),
        json_body(
            {
                "choices": [
                    {
                        "index": 0,
                        "finish_reason": "tool_calls",
                        "message": {
                            "role": "assistant",
                            "content": f"in {here}",
                            "tool_calls": [
                                {
                                    "id": "c4",
                                    "type": "function",
                                    "function": {"name": "nope", "arguments": "{}"},
                                },
                                {
                                    "id": "c5",
                                    "type": "function",
                                    "function": {"name": "bash", "arguments": "{"},
                                },
                            ],
                        },
                    }
                ]
            }
        ),
        stream(delta({"content": "b\ud800"}), delta({"content": "ye"})),
    ]
    return prompts, answers


def hold(session: Daemon, prompts: Sequence[str], session_id: str = "s") -> list[list[dict[str, Any]]]:
    """The events of each turn; the session is closed afterwards."""
    turns = [session.run(session_id, prompt) for prompt in prompts]
    session.request("session/close", {"sessionId": session_id})
    return turns


def masked(value: Any, cwd: Path) -> Any:
    """Events without what is another each time: ids, times and the directory."""
    free = {"id", "time", "time0", "createdAt", "dt", "messageId", "retryId", "delayMs", "seqs"}
    match value:
        case dict():
            return {key: None if key in free else masked(inner, cwd) for key, inner in value.items()}
        case list():
            return [masked(inner, cwd) for inner in value]
        case str():
            return value.replace(str(cwd), "CWD")
    return value

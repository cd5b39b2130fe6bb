"""Runs in a subprocess with a published client on its path: drives our daemon, prints what it saw."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

from deepseek_harness import DeepSeekHarness  # type: ignore[import-not-found]


def harness(version: str, command: str, work: str, url: str) -> DeepSeekHarness:
    """The client, launched the way its version launches a runtime of the user's own."""
    common = {"cwd": work, "base_url": url, "api_key": "test-key-0123456789"}
    if version == "0.1.1rc1":
        return DeepSeekHarness(runtime_bin=command, session_root=f"{work}-sessions", **common)
    return DeepSeekHarness(dsh_bin=command, dsh_home=f"{work}-home", profile="sdk-minimal", **common)


def brief(result: object) -> dict[str, object]:
    return {
        "final": result.final_response,  # type: ignore[attr-defined]
        "finish": result.finish_reason,  # type: ignore[attr-defined]
        "kinds": [event["type"] for event in result.events],  # type: ignore[attr-defined]
        "seqs": [event["seq"] for event in result.events],  # type: ignore[attr-defined]
        "results": [
            event["data"]["message"]["content"][0]["content"][0]["text"]
            for event in result.events  # type: ignore[attr-defined]
            if event["type"] == "tool/result"
        ],
    }


def converse(client: DeepSeekHarness) -> dict[str, object]:
    """A text turn, a tool turn, three queued prompts, an error and a good turn after it."""
    seen: dict[str, object] = {}
    with client:
        session = client.start_session("talk")
        seen["text"] = brief(session.run("text"))
        seen["tools"] = brief(session.run("tools"))
        queued: dict[str, object] = {}
        threads = []
        for number in range(3):
            work = lambda n=number: queued.update({str(n): brief(session.run(f"queued {n}"))})  # noqa: E731
            threads.append(threading.Thread(target=work))
            threads[-1].start()
            time.sleep(0.05)
        for thread in threads:
            thread.join(30)
        seen["queued"] = queued
        seen["error"] = brief(session.run("error"))
        seen["after"] = brief(session.run("text"))
        seen["streamed"] = sum(kind == "assistant/chunk" for kind in seen["text"]["kinds"])  # type: ignore[index]
        if hasattr(session, "set_working_directory"):
            (Path(client.config.cwd) / "sub").mkdir()
            seen["moved"] = session.set_working_directory("sub")
            seen["directory"] = session.get_working_directory()
        process = client.client._proc
    seen["exit"] = process.returncode
    return seen


def resume(client: DeepSeekHarness) -> dict[str, object]:
    """Go on with the session of another process."""
    with client:
        return {"after": brief(client.resume_session("talk").run("text"))}


def reach_limits(client: DeepSeekHarness) -> dict[str, object]:
    """A turn that a limit ends, one that the limit of the session does not let begin, and another session."""
    with client:
        session = client.start_session("limited")
        seen = {name: brief(session.run("tools")) for name in ("stopped", "second", "refused")}
        return {**seen, "other": brief(client.start_session("other").run("text"))}


def close_mid_command(client: DeepSeekHarness) -> dict[str, object]:
    """Close while a command runs: how long it took, and how the daemon ended."""
    client.start()
    running = threading.Event()
    session = client.start_session("busy")

    def note(notification: object) -> None:
        event = notification.payload.get("event") or {}  # type: ignore[attr-defined]
        if event.get("type") == "tool/call":
            running.set()

    def ask() -> None:
        try:
            session.run("sleep", on_notification=note)
        except Exception:
            pass  # the client says that its runtime is gone; what matters is how it went

    thread = threading.Thread(target=ask)
    thread.start()
    assert running.wait(20)
    time.sleep(0.3)
    process = client.client._proc
    began = time.monotonic()
    client.close()
    took = time.monotonic() - began
    thread.join(10)
    return {"took_s": took, "exit": process.returncode, "pid": process.pid}


if __name__ == "__main__":
    version, scenario, command, work, url = sys.argv[1:]
    done = globals()[scenario](harness(version, command, work, url))
    print(json.dumps(done))

"""A daemon that misbehaves on purpose, run as `python fake_daemon.py SCENARIO`: what the real one never does.

Otherwise it speaks like a published daemon: no `session.completed`, so it also tests how the SDK gets by
without.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

Frame = dict[str, Any]


def command(scenario: str, *arguments: str) -> list[str]:
    """The command line that runs a scenario."""
    return [sys.executable, "-P", __file__, scenario, *arguments]


def write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


def send(frame: Frame) -> None:
    write(json.dumps({"jsonrpc": "2.0", **frame}).encode() + b"\n")


def event(session: str, seq: int, kind: str, data: Frame) -> None:
    record = {"type": kind, "seq": seq, "time": 1, "data": data}
    send({"method": "session.event", "params": {"sessionId": session, "event": record}})


def status(session: str, word: str) -> None:
    send({"method": "session.status", "params": {"sessionId": session, "status": word}})


def splice(session: str, start: int, inserted: list[str], removed: int = 0, **more: Any) -> None:
    data: Frame = {
        "target": "next-turn",
        "start": start,
        "inserted": [{"id": name} for name in inserted],
        **more,
    }
    event(session, 0, "agent/inbox/spliced", data | ({"removedCount": removed} if removed else {}))


def turn(session: str, number: int, text: str, kind: str = "completed") -> None:
    """The events from the claim of the first prompt in the queue to the end of its turn."""
    event(session, 0, "turn/start", {"turn": number})
    splice(session, 0, [], removed=1)
    event(session, 0, "assistant/message", {"message": {"content": [{"type": "text", "text": text}]}})
    event(session, 0, "turn/end", {"turn": number, "reason": {"kind": kind}})


def noise() -> None:
    """Lines that are no frames before and between the frames, bad UTF-8 and a flood on stderr."""
    write(b"Welcome to the wrapper!\n\n[1,2]\n\xff\xfe not text\nnull\n")
    os.write(2, b"warn \xff\n" + b"x" * 200_000 + b"\n")

    def prompt(request: Frame, session: str) -> None:
        splice(session, 0, ["m1"])
        write(b"   \r\nstill talking\n")
        status(session, "running")
        send({"id": request["id"], "result": {"messageId": "m1"}})
        turn(session, 1, "heard you")
        status(session, "idle")

    serve(prompt)


def queue() -> None:
    """Three prompts whose turns run back to back once the third has been accepted; the second one fails."""
    waiting: list[str] = []

    def prompt(request: Frame, session: str) -> None:
        name = f"m{len(waiting)}"
        splice(session, len(waiting), [name])
        waiting.append(name)
        send({"id": request["id"], "result": {"messageId": name}})
        if len(waiting) == 3:
            status(session, "running")
            for number, kind in ((1, "completed"), (2, "error"), (3, "completed")):
                turn(session, number, f"answer {number}", kind)
            status(session, "idle")

    serve(prompt)


def park() -> None:
    """A published daemon leaves the second prompt in its queue when the first one fails."""
    waiting: list[str] = []

    def prompt(request: Frame, session: str) -> None:
        name = f"m{len(waiting)}"
        splice(session, len(waiting), [name])
        waiting.append(name)
        send({"id": request["id"], "result": {"messageId": name}})
        if len(waiting) == 2:
            turn(session, 1, "no", "error")
            status(session, "idle")

    serve(prompt)


def die() -> None:
    """Killed in the middle of a turn, after some last words."""

    def prompt(request: Frame, session: str) -> None:
        splice(session, 0, ["m1"])
        send({"id": request["id"], "result": {"messageId": "m1"}})
        event(session, 1, "turn/start", {"turn": 1})
        splice(session, 0, [], removed=1)
        for number in range(500):
            print(f"last word {number}", file=sys.stderr)
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGKILL)

    serve(prompt)


def orphan() -> None:
    """Exits and leaves a child that holds all its pipes open; with `escape` it is in a session of its own."""

    def prompt(request: Frame, session: str) -> None:
        reader, writer = os.pipe()
        if os.fork() == 0:
            if sys.argv[2:] == ["escape"]:
                os.setsid()
            os.write(writer, b"!")
            time.sleep(60)
            os._exit(0)
        os.read(reader, 1)
        os._exit(7)

    serve(prompt)


def broken() -> None:
    """A frame that was cut: `{` and then no JSON."""

    def prompt(request: Frame, session: str) -> None:
        write(b'{"jsonrpc":"2.0","method":"session.event","params":{"sess\n')

    serve(prompt)


def bad_text() -> None:
    """A frame with a byte that is not UTF-8."""
    serve(lambda request, session: write(b'{"jsonrpc":"2.0","method":"x\xff","params":{}}\n'))


def shapeless() -> None:
    """An event without its fields."""

    def prompt(request: Frame, session: str) -> None:
        send({"id": request["id"], "result": {"messageId": "m1"}})
        splice(session, 0, ["m1"])
        send({"method": "session.event", "params": {"sessionId": session}})

    serve(prompt)


def babble() -> None:
    """More lines of noise than anyone needs."""
    serve(lambda request, session: write(b"bla\n" * 1500))


def big() -> None:
    """One event of as many bytes as the first argument says; then a second one."""

    def prompt(request: Frame, session: str) -> None:
        splice(session, 0, ["m1"])
        send({"id": request["id"], "result": {"messageId": "m1"}})
        turn(session, 1, "x" * int(sys.argv[2]))
        status(session, "idle")

    serve(prompt)


def deaf() -> None:
    """Answers `initialize`, then reads nothing any more."""

    def prompt(request: Frame, session: str) -> None:
        time.sleep(60)

    serve(prompt)


def odd_answers() -> None:
    """Answers that are not answers; a request of its own; an answer to nobody."""

    def other(request: Frame) -> None:
        if request.get("method") == "list":
            send({"id": request["id"], "result": [1]})
        elif request.get("method") == "codeless":
            send({"id": request["id"], "error": "no"})
        elif request.get("method") == "refused":
            send(
                {"id": request["id"], "error": {"code": -32601, "message": "unknown", "data": {"near": "x"}}}
            )
        elif request.get("method") == "ask-back":
            send({"id": "q1", "method": "client/question", "params": {}})
            asked.append(request["id"])
        elif request.get("id") == "q1":
            send({"id": 999, "result": {}})
            send({"id": asked.pop(), "result": {"told": request["error"]["code"]}})

    asked: list[Any] = []
    serve(lambda request, session: None, other)


def many() -> None:
    """A turn of as many events as the first argument says, written in large pieces."""

    def prompt(request: Frame, session: str) -> None:
        splice(session, 0, ["m1"])
        send({"id": request["id"], "result": {"messageId": "m1"}})
        event(session, 1, "turn/start", {"turn": 1})
        splice(session, 0, [], removed=1)
        chunk = {"turn": 1, "step": 1, "chunk": {"type": "text-delta", "index": 0, "text": "word "}}
        lines = [
            json.dumps(
                {
                    "jsonrpc": "2.0",
                    "method": "session.event",
                    "params": {
                        "sessionId": session,
                        "event": {"type": "assistant/chunk", "seq": n, "time": 1, "data": chunk},
                    },
                }
            )
            for n in range(int(sys.argv[2]))
        ]
        write("\n".join([*lines, ""]).encode())
        event(session, 2, "turn/end", {"turn": 1, "reason": {"kind": "completed"}})
        status(session, "idle")

    serve(prompt)


def subagent() -> None:
    """A turn that delegates to a child session."""

    def prompt(request: Frame, session: str) -> None:
        splice(session, 0, ["m1"])
        send({"id": request["id"], "result": {"messageId": "m1"}})
        event(session, 1, "turn/start", {"turn": 1})
        splice(session, 0, [], removed=1)
        send(
            {"method": "subagent.started", "params": {"parentSessionId": session, "childSessionId": "child"}}
        )
        turn("child", 1, "done below")
        status("child", "idle")
        send(
            {"method": "subagent.finished", "params": {"parentSessionId": session, "childSessionId": "child"}}
        )
        event(session, 5, "assistant/message", {"message": {"content": [{"type": "text", "text": "done"}]}})
        event(session, 6, "turn/end", {"turn": 1, "reason": {"kind": "completed"}})
        status(session, "idle")

    serve(prompt)


def serve(
    prompt: Callable[[Frame, str], None], other: Callable[[Frame], None] = lambda request: None
) -> None:
    for line in sys.stdin.buffer:
        request = json.loads(line)
        method = request.get("method")
        if method == "initialize":
            send({"id": request["id"], "result": {"serverInfo": {"name": "fake", "version": "0"}}})
        elif method == "shutdown":
            send({"id": request["id"], "result": {}})
            return
        elif method == "session/prompt":
            prompt(request, request["params"]["sessionId"])
        else:
            other(request)


if __name__ == "__main__":
    globals()[sys.argv[1]]()

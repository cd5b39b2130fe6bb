"""Lines written to a daemon, and every line that it answers them with."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from daemon import Daemon
from measure import PATIENCE_S

PING = '{"jsonrpc":"2.0","id":%s,"method":"rpc.ping"}'


def exchange(daemon: Daemon, *lines: str | bytes, n: int | None = None) -> list[Any]:
    """Everything that the daemon writes to the lines, sent in one piece: `n` frames, by default one for each.

    A ping after them and one when the `n` have come would find what is more. A frame is one line of ASCII.
    """
    found: list[Any] = []
    _send(daemon, *lines, PING % '"end"')
    _read(daemon, found, lambda ended: ended and len(found) >= (len(lines) if n is None else n))
    _send(daemon, PING % '"end"')
    _read(daemon, found, lambda ended: ended)
    return found


def _send(daemon: Daemon, *lines: str | bytes) -> None:
    encoded = [line.encode() if isinstance(line, str) else line for line in lines]
    daemon.send_raw(b"".join(line + b"\n" for line in encoded))


def _read(daemon: Daemon, found: list[Any], is_enough: Callable[[bool], bool]) -> None:
    ended = False
    while not is_enough(ended):
        line = daemon.next_line(PATIENCE_S)
        assert line.isascii() and line.endswith(b"\n")
        frame = json.loads(line)
        if isinstance(frame, dict) and frame.get("id") == "end":
            ended = True
        else:
            found.append(frame)


def codes(answers: list[Any]) -> list[tuple[object, object]]:
    """The id of each answer, and its error's code; None for a result."""
    for answer in answers:
        assert answer["jsonrpc"] == "2.0"
        assert answer.keys() == {"jsonrpc", "id", "result" if "result" in answer else "error"}
        if "error" in answer:
            assert type(answer["error"]["code"]) is int and type(answer["error"]["message"]) is str
    return [(answer["id"], answer.get("error", {}).get("code")) for answer in answers]


def request(id: object, method: str = "rpc.ping", **more: object) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, **more})

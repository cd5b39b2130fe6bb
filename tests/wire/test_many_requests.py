"""A client may ask for much at once: all of it is answered, and what is not read yet waits outside."""

from __future__ import annotations

import json
from pathlib import Path

from daemon import Daemon


def test_thousands_of_requests_in_one_write_are_each_answered_once(tmp_path: Path) -> None:
    asked = {f"ping {n}": ("rpc.ping", {}) for n in range(5_000)}
    asked |= {f"create {n}": ("session/create", {"sessionId": f"s{n}"}) for n in range(200)}
    with Daemon(tmp_path) as daemon:
        daemon.initialize()
        frames = [
            {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            for number, (method, params) in asked.items()
        ]
        daemon.send_raw(b"".join(json.dumps(frame).encode() + b"\n" for frame in frames))
        daemon.wait(lambda: len(daemon.frames) > len(asked))
        answers = [frame["id"] for frame in daemon.frames if isinstance(frame.get("id"), str)]
        assert sorted(answers) == sorted(asked)
        assert len(daemon.request("session/list")["sessions"]) == 200

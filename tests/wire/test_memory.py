"""What a daemon keeps in memory of sessions that are closed: nothing."""

from __future__ import annotations

import sys
from pathlib import Path

from cordisd.mock import MockModelThread, call, text
from daemon import Daemon, module_path

TESTS = Path(__file__).parents[1]


def test_the_history_of_a_closed_session_is_freed_at_once(tmp_path: Path) -> None:
    (tmp_path / "patch.yml").write_text("- insert: [{id: count, name: 'memory_entries:CounterEntry'}]\n")
    argv = [sys.executable, "-m", "cordisd", "serve", "--stdio", "minimal"]
    argv += ["--patch", str(tmp_path / "patch.yml")]
    script = [reply for n in range(3) for reply in (call(f"c{n}", "histories", {}), text("done"))]
    work = tmp_path / "w"
    work.mkdir()
    with MockModelThread(script) as mock:
        with Daemon(work, model_url=mock.url, argv=argv, PYTHONPATH=module_path(TESTS)) as daemon:
            daemon.initialize()
            for name in ("one", "two", "three"):
                daemon.run(name, "go")
                daemon.request("session/close", {"sessionId": name})
        told = [request.json["messages"][-1]["content"] for request in mock.requests[1::2]]
        assert told == ["1", "1", "1"]

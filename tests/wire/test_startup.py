"""What is loaded, and what is on disk, when `initialize` has been answered."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from daemon import Daemon, clean_environment
from measure import PATIENCE_S

HEAVY = (
    *("aiohttp", "jsonschema", "rich", "ray", "difflib", "cordisd.rpc.dispatch", "cordisd.shapes"),
    *("cordisd.rpc.listen", "ctypes", "cordisd.agent.live", "cordisd.agent.limits"),
    *("ptyprocess", "pexpect", "pyte", "re2", "wcwidth"),
)

PROBE = """
import atexit, os, sys
from cordisd.rpc import peer

initialize = peer.initialize

async def note(host, params):
    answer = await initialize(host, params)
    os.write(2, ("\\n".join(sorted(sys.modules)) + "\\n").encode())
    return answer

peer.initialize = note
from cordisd.cli.main import main
sys.exit(main(["serve", "--stdio"]))
"""


def test_nothing_heavy_is_loaded_when_initialize_is_answered(tmp_path: Path) -> None:
    frame = (
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":'
        b'{"cwd":".","provider":"deepseek-official","model":"m"}}\n'
    )
    ended = subprocess.run(
        [sys.executable, "-c", PROBE],
        cwd=tmp_path,
        env=clean_environment(DSH_SESSION_ROOT=str(tmp_path / "logs")),
        input=frame,
        capture_output=True,
        timeout=PATIENCE_S,
    )
    assert b"serverInfo" in ended.stdout, ended.stderr
    loaded = ended.stderr.decode().split()
    assert "cordisd.rpc.peer" in loaded
    roots = {name for name in loaded if name in HEAVY or name.split(".")[0] in HEAVY}
    assert roots == set()


def test_no_file_appears_before_the_first_event(tmp_path: Path) -> None:
    with Daemon(tmp_path) as daemon:
        daemon.initialize()
        daemon.request("session/create", {"sessionId": "s"})
        assert not daemon.sessions.exists()
        assert list(tmp_path.iterdir()) == []

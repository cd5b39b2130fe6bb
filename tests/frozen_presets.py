"""Frozen presets in folders of a test's own, and daemons that look for presets there."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from cordisd.agent.fingerprint import Hashes
from cordisd.agent.preset import AGENT_FILE
from cordisd.agent.profile import LOCK_FILE, write_lock
from cordisd.shipped import presets_folder
from daemon import Daemon

SHIPPED = (presets_folder() / "rl-minimal-v1" / AGENT_FILE).read_text()


def freeze(root: Path, profile_id: str, text: str = SHIPPED) -> Path:
    """The agent file of the shipped frozen profile (or `text`) under another id; not locked."""
    folder = root / profile_id
    folder.mkdir(parents=True)
    path = folder / AGENT_FILE
    path.write_text(text.replace("id: rl-minimal-v1", f"id: {profile_id}"))
    return path


def lock(daemon: Daemon, root: Path, profile_id: str) -> None:
    """Lock the profile as the daemon resolves it now."""
    found = daemon.request("profile/get", {"preset": profile_id})
    write_lock(root / LOCK_FILE, profile_id, Hashes(*(found[name] for name in Hashes._fields)))


def host_daemon(work: Path, root: Path, url: str, rows: str = "", **environment: str) -> Daemon:
    """A daemon of the shipped host composition with the presets of `root` and more `rows`, in `work`."""
    work.mkdir(exist_ok=True)
    patch = work.parent / f"{work.name}.patch.yml"
    patch.write_text(
        f"- {{id: presets, config: {{roots: [{{path: '{root}'}}], includeUserRoot: false}}}}\n"
        f"- insert:\n  - {{name: section, config: {{name: filler, text: ''}}}}\n{rows}"
    )
    argv = [sys.executable, "-m", "cordisd", "serve", "--stdio", "host", "--patch", str(patch)]
    path = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return Daemon(work, model_url=url, argv=argv, PYTHONPATH=os.pathsep.join(path), **environment)


def refused(daemon: Daemon, method: str, params: object) -> tuple[int, str | None, str]:
    """Code, name and message of a request that must be refused."""
    answer = daemon.ask(method, params)
    assert "error" in answer, answer
    error = answer["error"]
    return error["code"], (error.get("data") or {}).get("code"), error["message"]

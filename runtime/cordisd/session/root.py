"""Where session logs go when nobody says: never into the workspace."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def default_root(env: Mapping[str, str] = os.environ) -> Path:
    """`DSH_SESSION_ROOT`, else `cordisd/sessions` in the XDG state folder; absolute."""
    if env.get("DSH_SESSION_ROOT"):
        return Path(env["DSH_SESSION_ROOT"]).absolute()
    state = env.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(state, "cordisd", "sessions").absolute()

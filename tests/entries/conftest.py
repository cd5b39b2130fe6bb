"""What the tests of entries share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_snapshot_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FILE", "OVERRIDE", "CHILD_FILES"):
        monkeypatch.delenv(f"DSH_SNAPSHOT_{name}", raising=False)

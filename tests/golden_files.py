"""Golden files: compared byte for byte, and written only by `--update-golden`."""

from __future__ import annotations

import difflib
import json
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"
UPDATE = "pytest tests/golden/test_presets.py --update-golden"


def check(name: str, data: bytes, *, update: bool) -> None:
    """Fail, with a diff, unless the file of that name holds exactly `data`; `update` writes it first."""
    path = GOLDEN / name
    if update:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    kept = path.read_bytes() if path.exists() else b""
    if kept != data:
        pytest.fail(_difference(path, kept, data), pytrace=False)


def _difference(path: Path, kept: bytes, found: bytes) -> str:
    lines = difflib.unified_diff(_lines(kept), _lines(found), f"{path} (golden)", "now", lineterm="")
    at = next((at for at, pair in enumerate(zip(kept, found, strict=False)) if pair[0] != pair[1]), None)
    where = f"byte {at}" if at is not None else f"their end ({len(kept)} bytes, now {len(found)})"
    advice = f"They differ at {where}. If that is meant (a released profile never changes), run"
    return "\n".join([*lines, advice, UPDATE])


def _lines(data: bytes) -> list[str]:
    """The lines of a text; those of the indented form, if it is a line of JSON."""
    try:
        return json.dumps(json.loads(data), indent=2, ensure_ascii=False).splitlines()
    except ValueError:
        return data.decode("utf-8", "backslashreplace").splitlines()

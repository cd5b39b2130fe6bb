"""Where a shell can be launched, for tests: below another root, in other namespaces, as another user."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
NAMESPACES = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")


def open_to_all(place: Path) -> None:
    """Let every user in: the folders of pytest are private."""
    place.chmod(0o777)
    for parent in place.parents:
        if parent.stat().st_uid == os.geteuid() and not parent.stat().st_mode & 0o001:
            parent.chmod(0o711)


def can_unshare() -> bool:
    return subprocess.run([*NAMESPACES, "true"], capture_output=True, check=False).returncode == 0


@pytest.fixture
def image(tmp_path: Path) -> Iterator[Path]:
    """A root directory of its own that holds bash and what bash needs."""
    root = tmp_path / "image"
    for name in ("bin", "dev", "proc", "tmp", "work"):
        (root / name).mkdir(parents=True)
    for program in ("/bin/bash", "/bin/sleep"):
        shutil.copy(program, root / "bin")
        for word in subprocess.run(["ldd", program], capture_output=True, text=True).stdout.split():
            if word.startswith("/") and not (root / word[1:]).exists():
                (root / word[1:]).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(word, root / word[1:])
    mounted = []
    try:
        for name in ("dev", "proc"):
            mount = ["mount", "--bind", f"/{name}", str(root / name)]
            if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
                pytest.skip("cannot mount")
            mounted.append(root / name)
        yield root
    finally:
        for place in mounted:
            subprocess.run(["umount", str(place)], check=True)

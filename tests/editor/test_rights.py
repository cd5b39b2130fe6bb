"""What an unprivileged daemon can and cannot do, in processes that really are unprivileged."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from measure import PATIENCE_S

SCRIPT = Path(__file__).with_name("run_command.py")
NOBODY = 65534
PRIVILEGED = os.geteuid() == 0
needs_root = pytest.mark.skipif(not PRIVILEGED, reason="files of another owner can only be made by root")


def start(prefix: list[str], command: str, path: Path, **arguments: object) -> str:
    request = json.dumps({"command": command, "path": str(path), **arguments})
    done = subprocess.run(
        [*prefix, sys.executable, str(SCRIPT), request],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def as_nobody(open_folder: Path):
    """Runs a command without any privilege."""
    prefix: list[str] = []
    if PRIVILEGED:
        if shutil.which("setpriv") is None:
            pytest.skip("no setpriv to drop privileges with")
        prefix = [
            "setpriv",
            f"--reuid={NOBODY}",
            f"--regid={NOBODY}",
            "--clear-groups",
            "--bounding-set=-all",
        ]
        reachable = [*prefix, sys.executable, "-c", "import cordisd.editor.local"]
        if subprocess.run(reachable, capture_output=True, check=False).returncode != 0:
            pytest.skip("the Python environment is not readable without privileges")

    def call(command: str, path: Path, **arguments: object) -> str:
        return start(prefix, command, path, **arguments)

    return call


def give(path: Path) -> None:
    if PRIVILEGED:
        os.chown(path, NOBODY, NOBODY)


def test_a_writable_file_in_a_folder_that_is_not_is_overwritten(as_nobody, open_folder: Path) -> None:
    path = open_folder / "a"
    path.write_text("old\n")
    give(path)
    open_folder.chmod(0o555)
    inode = path.stat().st_ino
    assert "edited successfully" in as_nobody("str_replace", path, old_str="old", new_str="newer")
    assert path.read_text() == "newer\n"
    assert path.stat().st_ino == inode
    open_folder.chmod(0o755)


@needs_root
def test_the_file_of_another_owner_keeps_its_owner(as_nobody, open_folder: Path) -> None:
    give(open_folder)
    path = open_folder / "a"
    path.write_text("old\n")
    path.chmod(0o666)
    assert "edited successfully" in as_nobody("str_replace", path, old_str="old", new_str="newer")
    assert path.stat().st_uid == 0
    assert path.read_text() == "newer\n"
    assert os.listdir(open_folder) == ["a"]


@needs_root
def test_the_unwritable_file_of_another_owner_is_refused(as_nobody, open_folder: Path) -> None:
    give(open_folder)
    path = open_folder / "a"
    path.write_text("old\n")
    assert "permission denied" in as_nobody("str_replace", path, old_str="old", new_str="newer")
    assert path.read_text() == "old\n"
    assert os.listdir(open_folder) == ["a"]


def test_ones_own_read_only_file_is_edited_and_mentioned(as_nobody, open_folder: Path) -> None:
    give(open_folder)
    path = open_folder / "a"
    path.write_text("old\n")
    path.chmod(0o444)
    give(path)
    assert "marked read-only" in as_nobody("str_replace", path, old_str="old", new_str="newer")
    assert path.read_text() == "newer\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o444


def test_a_setuid_file_that_must_be_overwritten_keeps_its_mode(as_nobody, open_folder: Path) -> None:
    give(open_folder)
    path = open_folder / "a"
    path.write_text("old\n")
    os.link(path, open_folder / "b")
    give(path)
    path.chmod(0o4755)
    assert "edited successfully" in as_nobody("str_replace", path, old_str="old", new_str="newer")
    assert stat.S_IMODE(path.stat().st_mode) == 0o4755
    assert (open_folder / "b").read_text() == "newer\n"


def test_an_unreadable_file_is_refused(as_nobody, open_folder: Path) -> None:
    path = open_folder / "a"
    path.write_text("x")
    path.chmod(0)
    give(path)
    assert "permission denied" in as_nobody("view", path)
    assert "permission denied" in as_nobody("insert", path, insert_line=0, new_str="x")


def test_a_folder_that_is_not_writable_takes_no_new_file(as_nobody, open_folder: Path) -> None:
    open_folder.chmod(0o555)
    assert "permission denied" in as_nobody("create", open_folder / "a", file_text="x")
    assert "permission denied" in as_nobody("create", open_folder / "sub" / "a", file_text="x")
    assert os.listdir(open_folder) == []


def test_an_unreadable_child_is_one_row_of_the_listing(as_nobody, open_folder: Path) -> None:
    (open_folder / "locked").mkdir(mode=0o700)
    (open_folder / "open").touch()
    if not PRIVILEGED:
        (open_folder / "locked").chmod(0)
    shown = as_nobody("view", open_folder).splitlines()
    assert f"?\t{open_folder}/locked\t(directory cannot be read: permission denied)" in shown
    assert f"f\t{open_folder}/open" in shown


def test_an_unreadable_directory_is_an_error(as_nobody, open_folder: Path) -> None:
    locked = open_folder / "locked"
    locked.mkdir(mode=0o700)
    if not PRIVILEGED:
        locked.chmod(0)
    assert "permission denied" in as_nobody("view", locked)
    assert "permission denied" in as_nobody("view", locked / "x")


@pytest.mark.parametrize("n_names", [1, 2])
def test_a_file_size_limit_leaves_the_old_content(open_folder: Path, n_names: int) -> None:
    path = open_folder / "a"
    path.write_text("old" * 3000)
    for n in range(1, n_names):
        os.link(path, open_folder / f"b{n}")
    answer = start([], "insert", path, insert_line=0, new_str="x" * 9000, file_size_limit=12_000)
    assert "larger than allowed" in answer
    assert path.read_text() == "old" * 3000
    assert len(os.listdir(open_folder)) == n_names


@needs_root
@pytest.mark.parametrize("n_names", [1, 2])
def test_a_disk_that_is_really_full_leaves_the_old_content(open_folder: Path, n_names: int) -> None:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(open_folder)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip("no right to mount a small file system")
    try:
        path = open_folder / "a"
        path.write_text("old" * 10_000)
        for n in range(1, n_names):
            os.link(path, open_folder / f"b{n}")
        assert "no space is left" in start([], "insert", path, insert_line=0, new_str="x" * 60_000)
        assert "no space is left" in start([], "create", open_folder / "d" / "n", file_text="x" * 60_000)
        assert path.read_text() == "old" * 10_000
        assert len(os.listdir(open_folder)) == n_names
    finally:
        subprocess.run(["umount", str(open_folder)], check=True)

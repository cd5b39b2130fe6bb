"""Full disks, and changes of a file by others in the middle of an edit, through the daemon."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from editor_calls import EditorDaemon, EditorSession, editor_host, stages_a_file

pytest_plugins = ["editor_fixtures"]

OLD = "old\n" * 10_000


class SmallDisk:
    """A file system of 100 KB that only the daemon sees at `inside`; this process reaches it by `outside`."""

    def __init__(self, session: EditorSession, inside: Path, outside: Path) -> None:
        self.session = session
        self.inside = inside
        self.outside = outside


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    inside = tmp_path / "disk"
    inside.mkdir()
    mount = f"mount -t tmpfs -o size=100k tmpfs '{inside}'"
    alone = ["unshare", "-m", "sh", "-c"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*alone, mount], capture_output=True, check=False).returncode
    ):
        pytest.skip("no right to mount a small file system in a namespace")
    (tmp_path / "host").mkdir()
    with editor_host(tmp_path / "host", prefix=[*alone, f'{mount} && exec "$@"', "sh"]) as host:
        outside = Path(f"/proc/{host.daemon.process.pid}/root{inside}")
        yield SmallDisk(host.session(inside), inside, outside)


@pytest.mark.parametrize("n_names", [1, 2])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(small_disk: SmallDisk, n_names: int) -> None:
    path = small_disk.inside / "a"
    (small_disk.outside / "a").write_text(OLD)
    if n_names == 2:
        os.link(small_disk.outside / "a", small_disk.outside / "b")
    names = sorted(os.listdir(small_disk.outside))
    session = small_disk.session
    full = f"Cannot edit {path}: no space is left on the disk."
    assert session.refused("insert", path, insert_line=0, new_str="x" * 80_000) == full
    new = small_disk.inside / "d" / "n"
    assert session.refused("create", new, file_text="x" * 80_000) == (
        f"Cannot create {new}: no space is left on the disk."
    )
    assert (small_disk.outside / "a").read_text() == OLD
    assert sorted(os.listdir(small_disk.outside)) == names
    told = session("insert", path, insert_line=0, new_str="fits")
    assert told.startswith(f"The file {path} has been edited successfully.")
    assert (small_disk.outside / "a").read_text() == "fits\n" + OLD


def stop_while_staged(pid: int, folder: Path, timeout_s: float = 10) -> bool:
    """Stop the process `pid` while it stages a file in `folder`; False if it was never caught at that."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if stages_a_file(pid, folder):
            os.kill(pid, signal.SIGSTOP)
            while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
                time.sleep(0.001)
            if stages_a_file(pid, folder):
                return True
            os.kill(pid, signal.SIGCONT)
            return False
    return False


def test_a_change_by_another_program_between_reading_and_writing_wins(
    editor_daemon: EditorDaemon, editor: EditorSession, tmp_path: Path
) -> None:
    path = tmp_path / "a"
    pid = editor_daemon.daemon.process.pid
    for attempt in range(10):
        path.write_bytes(b"old\n" + b"0123456789\n" * 850_000)
        change = partial(change_meanwhile, pid, path, f"theirs {attempt}\n")
        [answer] = editor.in_one_step(
            {"command": "str_replace", "path": str(path), "old_str": "old", "new_str": "ours"},
            meanwhile=change,
        )
        if path.read_text()[:6] == "theirs":
            assert answer == (
                f"Error: {path} was changed by another program during the edit, so nothing was written. "
                f"View it again."
            )
            assert path.read_text() == f"theirs {attempt}\n"
            assert os.listdir(tmp_path) == ["a"]
            return
    pytest.fail("the edit was never caught between reading and writing")


def change_meanwhile(pid: int, path: Path, content: str) -> None:
    if stop_while_staged(pid, path.parent):
        path.write_text(content)
        os.kill(pid, signal.SIGCONT)


def test_an_old_view_does_not_matter_but_the_text_does(editor: EditorSession, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("one\ntwo\n")
    assert editor("view", path).endswith("     1  one\n     2  two\n")
    path.write_text("zero\none\ntwo\n")
    assert editor("str_replace", path, old_str="two", new_str="2") == (
        f"The file {path} has been edited successfully.\n"
        f"Lines 1-3 are now:\n     1  zero\n     2  one\n     3  2"
    )
    path.write_text("elsewhere\n")
    assert "No match" in editor.refused("str_replace", path, old_str="two", new_str="2")
    assert path.read_text() == "elsewhere\n"


@pytest.mark.parametrize("names", [("a", "a"), ("a", "link"), ("a", "hard")])
@pytest.mark.parametrize("n_bytes", [0, 1_000_000])
def test_edits_of_one_file_by_two_sessions_are_all_kept(
    editor_daemon: EditorDaemon, tmp_path: Path, names: tuple[str, str], n_bytes: int
) -> None:
    path = tmp_path / "a"
    path.write_text("x" * n_bytes)
    if "link" in names:
        (tmp_path / "link").symlink_to(path)
    if "hard" in names:
        os.link(path, tmp_path / "hard")
    lines = [[f"{session} {n}" for n in range(6)] for session in ("one", "other")]
    calls = [
        [
            {"command": "insert", "path": f"{tmp_path}/{name}", "insert_line": 0, "new_str": line}
            for line in own
        ]
        for name, own in zip(names, lines, strict=True)
    ]
    one, other = (editor_daemon.session(tmp_path) for _ in names)
    told: list[str] = []
    told += one.in_one_step(*calls[0], meanwhile=lambda: told.extend(other.in_one_step(*calls[1])))
    assert [answer.partition("\n")[0] for answer in told if "Error" in answer] == []
    written = path.read_text().splitlines()[:12]
    for own in lines:
        assert [line for line in written if line in own] == own[::-1]

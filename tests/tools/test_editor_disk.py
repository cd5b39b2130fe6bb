"""Full disks, and changes of a file by others in the middle of an edit, through the daemon."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from editor_calls import EditorDaemon, EditorSession, editor_host, stages_a_file
from measure import PATIENCE_S

pytest_plugins = ["editor_fixtures"]

OLD = "old\n" * 10_000


class Disk(NamedTuple):
    """A file system that only a daemon sees at `inside`; this process reaches it by `outside`."""

    session: EditorSession
    inside: Path
    outside: Path


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[[str], Disk]]:
    """Starts a daemon in a mount namespace of its own, in which a command has mounted something at `disk`."""
    inside = tmp_path / "disk"
    inside.mkdir()

    def start(mount: str) -> Disk:
        alone = ["unshare", "-m", "sh", "-c"]
        if (
            not shutil.which("unshare")
            or subprocess.run([*alone, mount], cwd=tmp_path, check=False).returncode
        ):
            pytest.skip(f"no right to mount in a namespace of its own: {mount}")
        (tmp_path / "host").mkdir()
        prefix = [*alone, f'(cd {tmp_path} && {mount}) && exec "$@"', "sh"]
        host = stack.enter_context(editor_host(tmp_path / "host", prefix=prefix))
        outside = Path(f"/proc/{host.daemon.process.pid}/root{inside}")
        return Disk(host.session(inside), inside, outside)

    with ExitStack() as stack:
        yield start


@pytest.mark.parametrize("n_names", [1, 2])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(
    mounted: Callable[[str], Disk], n_names: int
) -> None:
    small_disk = mounted("mount -t tmpfs -o size=100k tmpfs disk")
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


@pytest.mark.parametrize("n_names", [1, 2])
def test_a_file_in_the_lower_layer_of_an_overlay_is_edited_at_the_first_try(
    mounted: Callable[[str], Disk], tmp_path: Path, n_names: int
) -> None:
    for name in ("lower", "upper", "work"):
        (tmp_path / name).mkdir()
    lower = tmp_path / "lower" / "a"
    lower.write_text("old\n")
    lower.chmod(0o755)
    if n_names == 2:
        os.link(lower, lower.with_name("b"))
    disk = mounted("mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work overlay disk")
    path = disk.inside / "a"
    assert disk.session("str_replace", path, old_str="old", new_str="newer") == (
        f"The file {path} has been edited successfully.\nLines 1-1 are now:\n     1  newer"
    )
    assert disk.session("create", disk.inside / "c", file_text="new\n").startswith("New file created")
    assert (disk.outside / "a").read_text() == "newer\n"
    assert (disk.outside / "a").stat().st_mode & 0o7777 == 0o755
    assert sorted(os.listdir(tmp_path / "upper")) == ["a", "c"]
    assert lower.read_text() == "old\n"


def stop_while_staged(pid: int, path: Path) -> bool:
    """Stop the process `pid` while it stages the next content of `path`; False if it could not be caught."""
    before = path.stat().st_ino
    end = time.monotonic() + PATIENCE_S
    while path.stat().st_ino == before:
        assert time.monotonic() < end, "there is no edit"
        if stages_a_file(pid, path.parent):
            os.kill(pid, signal.SIGSTOP)
            while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
                time.sleep(0.001)
            if stages_a_file(pid, path.parent) and path.stat().st_ino == before:
                return True
            os.kill(pid, signal.SIGCONT)
            return False
    return False


def test_a_change_by_another_program_between_reading_and_writing_wins(
    editor_daemon: EditorDaemon, editor: EditorSession, tmp_path: Path
) -> None:
    path = tmp_path / "a"
    pid = editor_daemon.daemon.process.pid
    for attempt in range(30):
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
    if stop_while_staged(pid, path):
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


@pytest.mark.parametrize("n_names", [1, 2])
def test_a_cancelled_edit_is_whole_or_not_there_and_the_next_one_works(
    editor_daemon: EditorDaemon, editor: EditorSession, tmp_path: Path, n_names: int
) -> None:
    path = tmp_path / "a"
    old = "old\n" + "0123456789\n" * 850_000
    path.write_text(old)
    if n_names == 2:
        os.link(path, tmp_path / "b")
    before = path.stat().st_mtime_ns
    pid = editor_daemon.daemon.process.pid
    editor_daemon.cancel_while(
        editor.name,
        lambda: stages_a_file(pid, tmp_path) or path.stat().st_mtime_ns != before,
        {"command": "str_replace", "path": str(path), "old_str": "old", "new_str": "new and longer"},
    )
    told = editor("insert", path, insert_line=0, new_str="after")
    assert told.startswith(f"The file {path} has been edited successfully.")
    assert path.read_text() in ("after\n" + old, "after\n" + old.replace("old", "new and longer"))
    assert len(os.listdir(tmp_path)) == n_names

"""An edit changes the content of a file and nothing else of it."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
from pathlib import Path

import pytest

from cordisd.editor import publish
from cordisd.editor.overwrite import overwrite

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="changing owners needs root")


def edit(run, path: Path) -> None:
    run("str_replace", path, old_str="old", new_str="newer")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a"
    path.write_text("old\n")
    return path


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755, 0o640, 0o4755, 0o2755, 0o1644, 0o777])
def test_the_mode_stays(run, path: Path, mode: int) -> None:
    path.chmod(mode)
    edit(run, path)
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert path.read_text() == "newer\n"


def test_a_read_only_file_is_edited_and_mentioned(run, path: Path) -> None:
    path.chmod(0o444)
    assert "marked read-only" in run("str_replace", path, old_str="old", new_str="newer")
    assert stat.S_IMODE(path.stat().st_mode) == 0o444
    assert path.read_text() == "newer\n"


@as_root
@pytest.mark.parametrize("mode", [0o644, 0o6755])
def test_owner_and_group_stay(run, path: Path, mode: int) -> None:
    os.chown(path, 1234, 2345)
    path.chmod(mode)
    edit(run, path)
    status = path.stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (1234, 2345, mode)


@as_root
def test_hard_linked_setuid_files_keep_their_mode(run, path: Path) -> None:
    os.chown(path, 1234, 2345)
    os.link(path, path.with_name("b"))
    path.chmod(0o6755)
    edit(run, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o6755


def test_hard_links_stay(run, path: Path) -> None:
    other = path.with_name("b")
    os.link(path, other)
    edit(run, path)
    assert other.read_text() == "newer\n"
    assert path.stat().st_ino == other.stat().st_ino


@pytest.mark.parametrize(("old", "new"), [("old", "o"), ("old", "old and longer"), ("old\n", "")])
def test_a_file_with_two_names_becomes_shorter_and_longer(run, path: Path, old: str, new: str) -> None:
    os.link(path, path.with_name("b"))
    path.write_text("begin old\nend")
    run("str_replace", path, old_str=old, new_str=new)
    assert path.with_name("b").read_text() == "begin old\nend".replace(old, new)


def test_symbolic_links_stay_and_their_target_is_edited(run, path: Path) -> None:
    folder = path.parent / "folder"
    folder.mkdir()
    (folder / "link").symlink_to("../second")
    (path.parent / "second").symlink_to(path)
    edit(run, folder / "link")
    assert os.readlink(folder / "link") == "../second"
    assert os.readlink(path.parent / "second") == str(path)
    assert path.read_text() == "newer\n"
    assert os.listdir(folder) == ["link"]


def test_extended_attributes_stay(run, path: Path) -> None:
    try:
        os.setxattr(path, "user.note", b"kept")
    except OSError:
        pytest.skip("this file system has no extended attributes")
    edit(run, path)
    assert os.getxattr(path, "user.note") == b"kept"


def test_an_edit_replaces_the_file_at_once(run, path: Path) -> None:
    with path.open() as reader:
        edit(run, path)
        assert reader.read() == "old\n"
    assert os.listdir(path.parent) == ["a"]


def test_a_change_by_another_program_meanwhile_wins(path: Path) -> None:
    before = path.stat()
    path.write_text("theirs")
    with pytest.raises(Exception, match="changed by another program"):
        publish.replace_file(str(path), before, b"old\n", b"ours\n")
    assert path.read_text() == "theirs"
    assert os.listdir(path.parent) == ["a"]


def test_a_change_of_a_hard_linked_file_meanwhile_wins(path: Path) -> None:
    os.link(path, path.with_name("b"))
    before = path.stat()
    path.write_text("theirs")
    with pytest.raises(Exception, match="changed by another program"):
        publish.replace_file(str(path), before, b"old\n", b"ours\n")
    assert path.read_text() == "theirs"


def test_a_file_that_becomes_a_directory_meanwhile_stays_one(path: Path) -> None:
    before = path.stat()
    path.unlink()
    path.mkdir()
    with pytest.raises(Exception, match="changed by another program"):
        publish.replace_file(str(path), before, b"old\n", b"ours\n")
    assert path.is_dir()


@pytest.mark.parametrize("reason", [errno.EACCES, errno.EPERM, errno.EBUSY, errno.EXDEV])
def test_where_renaming_is_impossible_the_file_is_overwritten(
    run, path: Path, monkeypatch, reason: int
) -> None:
    def refuse_rename(source: str, target: str) -> None:
        raise OSError(reason, "no")

    monkeypatch.setattr(os, "rename", refuse_rename)
    inode = path.stat().st_ino
    edit(run, path)
    assert path.read_text() == "newer\n"
    assert path.stat().st_ino == inode
    assert os.listdir(path.parent) == ["a"]


def test_an_owner_that_cannot_be_kept_means_overwriting(run, path: Path, monkeypatch) -> None:
    def refuse_mode(descriptor: int, mode: int) -> None:
        raise PermissionError(errno.EPERM, "no")

    monkeypatch.setattr(os, "fchmod", refuse_mode)
    inode = path.stat().st_ino
    edit(run, path)
    assert path.stat().st_ino == inode
    assert path.read_text() == "newer\n"


def test_a_full_disk_leaves_the_old_file_and_no_other(refuse, path: Path, monkeypatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "fsync", full)
    assert "no space is left" in refuse("str_replace", path, old_str="old", new_str="newer")
    assert path.read_text() == "old\n"
    assert os.listdir(path.parent) == ["a"]


def test_a_full_disk_leaves_an_overwritten_file_old(path: Path, monkeypatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "fsync", full)
    with path.open("r+b") as file, pytest.raises(OSError, match="no space"):
        overwrite(file.fileno(), b"old\n", b"new and longer\n")
    assert path.read_text() == "old\n"


def test_a_file_that_is_not_what_was_read_is_not_overwritten(path: Path) -> None:
    path.write_text("theirs\n")
    with path.open("r+b") as file, pytest.raises(OSError) as caught:
        overwrite(file.fileno(), b"old\n", b"new\n")
    assert caught.value.errno == errno.ESTALE
    assert path.read_text() == "theirs\n"


def test_a_disk_that_fails_for_good_is_told_of(refuse, path: Path, monkeypatch) -> None:
    real_write = os.pwrite

    def failing(descriptor: int, content: bytes, offset: int) -> int:
        if offset or path.read_text() != "old\n":
            raise OSError(errno.EIO, "no")
        return real_write(descriptor, content[:2], offset)

    monkeypatch.setattr(os, "pwrite", failing)
    with path.open("r+b") as file, pytest.raises(OSError) as caught:
        overwrite(file.fileno(), b"old\n", b"new\n")
    assert caught.value.errno == errno.EUCLEAN
    monkeypatch.undo()
    path.write_text("old\n")
    os.link(path, path.with_name("b"))
    script = path.with_name("failed.py")
    script.write_text(f"print({errno.EUCLEAN})\n")
    monkeypatch.setattr(publish.overwrite, "__file__", str(script))
    assert "is damaged" in refuse("str_replace", path, old_str="old", new_str="new")


def test_the_death_of_the_writing_process_leaves_the_old_file(refuse, path: Path, monkeypatch) -> None:
    os.link(path, path.with_name("b"))
    script = path.with_name("half.py")
    script.write_text("import os, sys\nos.pwrite(int(sys.argv[1]), b'ne', 0)\nos.kill(os.getpid(), 9)\n")
    monkeypatch.setattr(publish.overwrite, "__file__", str(script))
    assert "was killed. The file has its old content" in refuse(
        "str_replace", path, old_str="old", new_str="new"
    )
    assert path.read_text() == "old\n"


def test_without_processes_a_hard_linked_file_stays_old_and_says_so(refuse, path: Path, monkeypatch) -> None:
    os.link(path, path.with_name("b"))

    def no_process(*arguments: object, **options: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "no more processes")

    monkeypatch.setattr(subprocess, "Popen", no_process)
    assert "no process could be started" in refuse("str_replace", path, old_str="old", new_str="new")
    assert path.read_text() == "old\n"


@pytest.mark.parametrize("reason", [errno.ENOTSUP, errno.EISDIR])
def test_a_file_system_without_unnamed_files_is_served(run, path: Path, monkeypatch, reason: int) -> None:
    real_open = os.open

    def no_unnamed(name: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(reason, "no")
        return real_open(name, flags, mode)

    monkeypatch.setattr(os, "open", no_unnamed)
    edit(run, path)
    run("create", path.with_name("b"), file_text="b")
    assert path.read_text() == "newer\n"
    assert path.with_name("b").read_text() == "b"
    assert sorted(os.listdir(path.parent)) == ["a", "b"]


def test_a_file_system_without_fsync_is_served(run, path: Path, monkeypatch) -> None:
    def no_fsync(descriptor: int) -> None:
        raise OSError(errno.EINVAL, "not here")

    monkeypatch.setattr(os, "fsync", no_fsync)
    edit(run, path)
    assert path.read_text() == "newer\n"

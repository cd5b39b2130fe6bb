from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from cordisd.editor import publish


@pytest.mark.parametrize("text", ["", "a\n", "a", "a\r\nb\r\n", "\ufeffa", "日本\n", "x" * 1_000_000])
def test_the_new_file_has_exactly_the_text(run, tmp_path: Path, text: str) -> None:
    path = tmp_path / "a"
    assert run("create", path, file_text=text) == f"New file created successfully at: {path}"
    assert path.read_bytes() == text.encode()
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664), (0, 0o666)])
def test_the_umask_gives_the_mode(run, tmp_path: Path, umask, mask: int, mode: int) -> None:
    umask(mask)
    run("create", tmp_path / "sub" / "a", file_text="a")
    umask(0o022)
    assert stat.S_IMODE((tmp_path / "sub" / "a").stat().st_mode) == mode
    assert stat.S_IMODE((tmp_path / "sub").stat().st_mode) == 0o777 & ~mask


def test_missing_parents_are_made(run, tmp_path: Path) -> None:
    run("create", tmp_path / "a" / "b" / "c", file_text="x")
    assert (tmp_path / "a" / "b" / "c").read_text() == "x"


def test_nothing_existing_is_overwritten(refuse, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "folder").mkdir()
    (tmp_path / "dangling").symlink_to("nowhere")
    for name, kind in (("file", "a file"), ("folder", "a directory"), ("dangling", "a symbolic link")):
        text = refuse("create", tmp_path / name, file_text="new")
        assert f"already exists ({kind})" in text
    assert (tmp_path / "file").read_text() == "old"
    assert not (tmp_path / "nowhere").exists()


def test_a_trailing_slash_names_a_directory(refuse, tmp_path: Path) -> None:
    assert "slash" in refuse("create", f"{tmp_path}/new/", file_text="x")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [({}, "`file_text` is required"), ({"file_text": "a\0b"}, "NUL"), ({"file_text": "a\udc00"}, "U+DC00")],
)
def test_text_that_no_text_file_holds_is_refused(refuse, tmp_path: Path, arguments, words: str) -> None:
    assert words in refuse("create", tmp_path / "sub" / "a", **arguments)
    assert os.listdir(tmp_path) == []


def test_a_path_through_a_file_names_it(refuse, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    assert f"{tmp_path}/f is not a directory" in refuse("create", tmp_path / "f" / "x", file_text="")
    assert f"{tmp_path}/f is not a directory" in refuse("create", tmp_path / "f" / "x" / "y", file_text="")


def test_the_longest_name_works(run, tmp_path: Path) -> None:
    path = tmp_path / ("n" * 255)
    run("create", path, file_text="a")
    run("str_replace", path, old_str="a", new_str="b")
    assert path.read_text() == "b"


def test_a_failed_create_leaves_no_parents(refuse, tmp_path: Path) -> None:
    assert "too long" in refuse("create", tmp_path / "a" / "b" / ("n" * 256), file_text="x")
    assert os.listdir(tmp_path) == []


def test_a_name_with_a_newline_works(run, tmp_path: Path) -> None:
    run("create", tmp_path / "a\nb", file_text="x")
    assert (tmp_path / "a\nb").read_text() == "x"


def test_a_full_disk_leaves_nothing(refuse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, content: bytes, offset: int) -> int:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "pwrite", full)
    assert "no space is left" in refuse("create", tmp_path / "a" / "b", file_text="x")
    assert os.listdir(tmp_path) == []


def test_a_file_system_without_hard_links_is_served(run, refuse, tmp_path: Path, monkeypatch) -> None:
    def no_links(*arguments: object, **options: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", no_links)
    run("create", tmp_path / "a", file_text="x")
    assert (tmp_path / "a").read_text() == "x"
    assert os.listdir(tmp_path) == ["a"]
    with pytest.raises(FileExistsError):
        publish.create_file(str(tmp_path / "a"), b"y")
    assert (tmp_path / "a").read_text() == "x"


def test_a_file_that_appears_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("theirs")
    with pytest.raises(FileExistsError):
        publish.create_file(str(path), b"ours")
    assert path.read_text() == "theirs"
    assert os.listdir(tmp_path) == ["a"]

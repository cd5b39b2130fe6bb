from __future__ import annotations

import os
from pathlib import Path

import pytest

from cordisd.editor import listing


def rows(text: str) -> list[str]:
    return text.splitlines()[1:]


def test_two_levels_are_listed_sorted_with_their_kinds(run, tmp_path: Path) -> None:
    (tmp_path / "b" / "c" / "too-deep").mkdir(parents=True)
    (tmp_path / "b-x").touch()
    (tmp_path / "a").touch()
    (tmp_path / "b" / "f").touch()
    assert rows(run("view", tmp_path)) == [
        f"d\t{tmp_path}",
        f"f\t{tmp_path}/a",
        f"d\t{tmp_path}/b",
        f"f\t{tmp_path}/b-x",
        f"d\t{tmp_path}/b/c",
        f"f\t{tmp_path}/b/f",
    ]


def test_hidden_items_and_caches_are_left_out_at_both_levels(run, tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "src"):
        for name in (".git", "node_modules", "__pycache__"):
            (folder / name / "x").mkdir(parents=True)
    (tmp_path / "src" / ".env").touch()
    assert rows(run("view", tmp_path)) == [f"d\t{tmp_path}", f"d\t{tmp_path}/src"]


def test_a_trailing_slash_changes_nothing(run, tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    assert rows(run("view", f"{tmp_path}/")) == rows(run("view", tmp_path))


def test_links_to_directories_are_not_entered(run, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "up").symlink_to(tmp_path)
    (tmp_path / "here").symlink_to(".")
    assert rows(run("view", tmp_path)) == [
        f"d\t{tmp_path}",
        f"d\t{tmp_path}/here",
        f"d\t{tmp_path}/sub",
        f"d\t{tmp_path}/sub/up",
    ]


def test_bad_entries_are_rows_with_a_reason(run, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "ok").symlink_to("/etc/hostname")
    os.mkfifo(tmp_path / "pipe")
    assert rows(run("view", tmp_path)) == [
        f"d\t{tmp_path}",
        f"?\t{tmp_path}/dangling\t(link target does not exist)",
        f"?\t{tmp_path}/loop\t(its symbolic links form a loop)",
        f"f\t{tmp_path}/ok",
        f"?\t{tmp_path}/pipe\t(named pipe)",
    ]


def test_names_with_control_characters_stay_on_one_row(run, tmp_path: Path) -> None:
    (tmp_path / "a\nb\t\x1b[31m").touch()
    (tmp_path / "é 日本").touch()
    os.close(os.open(os.fsencode(tmp_path) + b"/z\xff", os.O_CREAT))
    text = run("view", tmp_path)
    assert rows(text) == [
        f"d\t{tmp_path}",
        f"f\t{tmp_path}/a\\nb\\t\\x1b[31m",
        f"f\t{tmp_path}/z\\xff",
        f"f\t{tmp_path}/é 日本",
    ]
    text.encode()


def test_the_first_level_comes_first_when_not_all_fits(run, tmp_path: Path) -> None:
    for n in range(20):
        (tmp_path / "a").mkdir(exist_ok=True)
        (tmp_path / "a" / f"inner{n:02}").touch()
    (tmp_path / "b").touch()
    shown = rows(run("view", tmp_path, max_output=6 * (len(str(tmp_path)) + 12)))
    assert f"f\t{tmp_path}/b" in shown
    n_inner = sum("inner" in row for row in shown)
    assert 0 < n_inner < 20
    assert shown[-1].startswith(f"[{20 - n_inner} entries are not shown")


def test_a_huge_directory_says_how_many_entries_are_omitted(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "MAX_ROWS", 10)
    for n in range(25):
        (tmp_path / f"f{n:02}").touch()
    shown = rows(run("view", tmp_path))
    assert shown[1:11] == [f"f\t{tmp_path}/f{n:02}" for n in range(10)]
    assert shown[11].startswith("[15 entries are not shown")


def test_entries_of_the_second_level_beyond_the_limit_are_counted(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "MAX_ROWS", 10)
    for folder in "ab":
        (tmp_path / folder).mkdir()
        for n in range(8):
            (tmp_path / folder / str(n)).touch()
    shown = rows(run("view", tmp_path))
    assert len(shown) == 1 + 10 + 1
    assert shown[-1].startswith("[8 entries are not shown")


def test_the_scan_gives_up_in_bounded_time(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "_MAX_SCANNED", 5)
    for n in range(9):
        (tmp_path / str(n)).touch()
    shown = rows(run("view", tmp_path))
    assert len(shown) == 7
    assert shown[-1].startswith("[More entries are not shown")


def test_a_range_on_a_directory_is_refused(refuse, tmp_path: Path) -> None:
    assert "directory" in refuse("view", tmp_path, view_range=[1, 2])

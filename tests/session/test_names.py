from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordisd.errors import InvalidParamsError
from cordisd.session.names import encode_segment, project_key


@pytest.mark.parametrize(
    ("cwd", "folder"),
    [
        ("/srv/w/ws", "--srv-w-ws--"),
        ("/", "--root--"),
        ("C:\\work\\agent", "--C-work-agent--"),
        ("/é/~a", "--~00E9-~007Ea--"),
        ("/a/b-c", "--a-b-c--"),
        ("/a-b/c", "--a-b-c--"),
        ("/a//b/", "--a-b---"),
        ("/\U0001f600", "--~D83D~DE00--"),
        ("/\ud83d", "--~D83D--"),
        (None, "_no-cwd"),
    ],
)
def test_a_working_directory_has_the_published_project_folder(cwd: str | None, folder: str) -> None:
    assert project_key(cwd) == folder


def test_a_long_working_directory_is_cut_to_what_a_file_name_may_be() -> None:
    assert project_key("/" + "x" * 400) == f"--{'x' * 251}--"


@pytest.mark.parametrize(
    ("session_id", "folder"),
    [
        ("a-b_c.D9", "a-b_c.D9"),
        ("a~b", "a~007Eb"),
        (".", "~002E"),
        ("..", "~002E~002E"),
        ("...", "..."),
        ("a/b", "a~002Fb"),
        ("\U0001f600", "~D83D~DE00"),
        ("\ud83d", "~D83D"),
    ],
)
def test_a_session_id_has_the_published_folder(session_id: str, folder: str) -> None:
    assert encode_segment(session_id) == folder


@pytest.mark.parametrize("session_id", ["", "x" * 256, "é" * 52])
def test_an_id_that_cannot_be_a_folder_is_refused(session_id: str) -> None:
    with pytest.raises(InvalidParamsError, match=r"empty|at most 255"):
        encode_segment(session_id)


def test_an_empty_working_directory_is_refused() -> None:
    with pytest.raises(InvalidParamsError, match="cwd must not be empty"):
        project_key("")


@given(st.text(st.characters(), min_size=1, max_size=20), st.text(st.characters(), min_size=1, max_size=20))
def test_different_ids_have_different_safe_folders(one: str, other: str) -> None:
    folders = encode_segment(one), encode_segment(other)
    assert (folders[0] == folders[1]) == (one == other)
    assert not {".", ".."} & set(folders)
    assert "/" not in folders[0]
    assert "\0" not in folders[0]

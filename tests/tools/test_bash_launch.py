"""How bash's configuration launches the shell, through the daemon: within limits, as a user, elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cordisd.shell.report import RESET_NOTICE
from launches import NAMESPACES, can_unshare, needs_root, open_to_all
from processes import with_environment
from tools.conftest import Bench, Told

KEPT = "[Everything that it had started was ended. The shell is still running, its state kept.]"
EXPIRED = "[The command did not finish in 2 s and was stopped; its output until then follows.]"
DIED = "(which must keep its terminal and descriptors) died at its start; it printed:"

Run = Callable[..., Told]
Start = Callable[..., Bench]


def edit(command: str, path: Path | str, **arguments: object) -> dict[str, Any]:
    """A call of the editor."""
    return {"command": command, "path": str(path), **arguments}


def of_user(uid: int) -> list[int]:
    """The processes of a user, on the whole machine."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if place.stat().st_uid == uid:
                found.append(int(place.name))
        except OSError:
            continue  # it ended while we looked
    return found


def test_limits_bind_what_commands_start_and_stay_for_the_next(bash_kept: Run, tmp_path: Path) -> None:
    told = bash_kept(
        "ulimit -n; ulimit -Hn; ulimit -f; ulimit -Hf",
        "head -c 2000000 /dev/zero > big",
        "sh -c 'ulimit -n'",
        rlimits={"nofile": 300, "fsize": 1_048_576},
    )
    assert told.texts == ["300\n300\n1024\n1024", "File size limit exceeded\n[exit code: 153]", "300"]
    assert (tmp_path / "place" / "big").stat().st_size == 1_048_576


@pytest.mark.alone
@needs_root
def test_a_fork_bomb_within_a_limit_ends_with_its_call_and_leaves_nothing(
    bash_own_bench: Start, tmp_path: Path
) -> None:
    uid = 100_000_000 + os.getpid()  # of nobody else, because the kernel counts processes by user
    open_to_all(tmp_path)
    bench = bash_own_bench(user=uid, rlimits={"nproc": 40}, timeoutMs=2_000)
    steps = ("x=1", ":(){ :|:& }; :; while true; do true; done", "echo ok $x; id -u; echo $HOME")
    session = bench.begin(*steps, folder=tmp_path)
    bench.wait([session], 60)
    _, bomb, after = bench.told(session).texts
    assert "fork: " in bomb and "Resource temporarily unavailable" in bomb
    assert bomb.startswith(EXPIRED) and bomb.endswith(KEPT)
    last_words = after.removesuffix(f"ok 1\n{uid}\n/")  # printed while it was being ended
    assert last_words != after
    assert not last_words or last_words.endswith("\n[end of background output]\n")
    bench.close(session)
    assert of_user(uid) == []


@needs_root
def test_another_user_has_its_own_rights_in_bash_in_the_editor_and_over_copies(
    bash_own_bench: Start, tmp_path: Path
) -> None:
    open_to_all(tmp_path)
    made, copies = tmp_path / "made", tmp_path / "copies"
    mark = str(os.getpid())
    bench = bash_own_bench(user="nobody", timeoutMs=2_000, spillDir=str(copies), env={"BENCH_MARK": mark})
    session = bench.begin(
        "x=1; id -un; id -Gn; echo $HOME $USER; cat /etc/shadow",
        edit("create", made, file_text="one\n"),
        edit("view", "/etc/shadow"),
        edit("str_replace", "/etc/passwd", old_str="root:x:0:0", new_str="root::0:0"),
        "sleep 100",
        "seq 20000 | tee long",
        f"c=$(echo {copies}/*); wc -c < $c/1.txt; "
        "for try in 'echo >> $c/1.txt' 'rm -f $c/1.txt' 'touch $c/x'; "
        "do (eval $try) 2> /dev/null; echo $?; done",
        "(kill -9 $PPID) 2> /dev/null || cat /proc/$PPID/environ",
        f"echo $x; stat -c %U {made}; (setsid sleep 999 &); (nohup sleep 999 > log 2>&1 &)",
        edit("str_replace", made, old_str="one", new_str="1"),
        folder=tmp_path,
    )
    bench.wait([session])
    told = bench.told(session)
    [folder] = copies.iterdir()
    assert told.texts[:5] == [
        "nobody\nnogroup\n/nonexistent nobody\ncat: /etc/shadow: Permission denied\n[exit code: 1]",
        f"New file created successfully at: {made}",
        "Error: Cannot view /etc/shadow: permission denied.",
        "Error: Cannot edit /etc/passwd: permission denied.",
        f"{EXPIRED}\n{KEPT}",
    ]
    assert f"; the whole output is in {folder}/1.txt ...]" in told.texts[5]
    whole = (tmp_path / "long").read_bytes()
    assert (folder / "1.txt").read_bytes() == whole
    assert told.texts[6:-1] == [
        f"{len(whole)}\n1\n1\n1",
        f"cat: /proc/{bench.guardian}/environ: Permission denied\n[exit code: 1]",
        "1\nnobody",
    ]
    assert (made.owner(), made.read_text()) == ("nobody", "1\n")
    assert len(with_environment(f"BENCH_MARK={mark}")) >= 3, "the shell and two that slept"
    bench.close(session)
    assert not with_environment(f"BENCH_MARK={mark}")
    assert list(copies.iterdir()) == []


@needs_root
def test_bash_and_editor_see_the_same_private_mount(bash_calls: Run, tmp_path: Path) -> None:
    if not can_unshare():
        pytest.skip("cannot make namespaces")
    place = tmp_path / "m"
    place.mkdir()
    told = bash_calls(
        "mount -t tmpfs none m; echo inside > m/a; x=1",
        edit("str_replace", place / "a", old_str="inside", new_str="edited"),
        edit("create", place / "b", file_text="new\n"),
        "cat m/a m/b; sleep 100",
        "echo $x; exit 3",
        edit("view", place / "a"),
        "echo [$x]; ls m",
        argv=list(NAMESPACES),
        timeoutMs=2_000,
    )
    assert told.texts == [
        "",
        f"The file {place}/a has been edited successfully.\nLines 1-1 are now:\n     1  edited",
        f"New file created successfully at: {place}/b",
        f"{EXPIRED}\nedited\nnew\n{KEPT}",
        f"1\nexit\n[shell exited: code 3]\n{RESET_NOTICE}",
        f"Error: The path {place}/a does not exist. Give the path of an existing file or directory.",
        "[]",
    ]
    assert list(place.iterdir()) == []


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["false"], f"bash behind false {DIED} (nothing)"),
        (["env", "echo"], f"bash behind env {DIED} bash --noprofile --norc --noediting +o history +H -i"),
        (
            ["/no/launcher"],
            "cannot start a shell: The command was not found or was not executable: /no/launcher.",
        ),
    ],
)
def test_a_launcher_that_launches_nothing_is_an_error_and_the_session_goes_on(
    bash_calls: Run, tmp_path: Path, argv: list[str], why: str
) -> None:
    told = bash_calls("echo hi", edit("view", tmp_path), "echo hi", argv=argv)
    assert told.texts == [f"Error: {why}"] * 3
    assert told.failed == [True] * 3

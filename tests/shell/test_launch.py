"""A shell within limits, as another user, or behind a launcher: what holds without holds with them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from cordisd.errors import ShellError
from cordisd.shell.bash import Bash
from cordisd.shell.launch import Launch, find_user
from cordisd.shell.report import RESET_NOTICE
from launches import NAMESPACES, can_unshare, image, needs_root, open_to_all
from measure import SOON_S

__all__ = ["image"]

KEPT = "[Everything that it had started was ended. The shell is still running, its state kept.]"


@needs_root
@pytest.mark.parametrize("way", ["user", "limits", "namespaces"])
def test_state_timeouts_redirections_and_death_work_as_ever(drive, tmp_path, way: str):
    if way == "namespaces" and not can_unshare():
        pytest.skip("cannot make namespaces")
    open_to_all(tmp_path)
    launch = {
        "user": lambda: Launch(user=find_user("nobody")),
        "limits": lambda: Launch(rlimits={"nofile": 256, "core": 0}),
        "namespaces": lambda: Launch(NAMESPACES),
    }[way]()

    async def body(bash: Bash) -> None:
        assert (await bash.run("x=1; pwd; (exit 3)")).text == f"{tmp_path}\n[exit code: 3]"
        assert (await bash.run("echo $? $x; echo out >/dev/stdout; echo err >/dev/stderr")).text == (
            "3 1\nout\nerr"
        )
        assert (await bash.run("echo before; sleep 100; echo after")).text.split("\n")[1:] == ["before", KEPT]
        assert (await bash.run("while :; do :; done")).text.endswith(KEPT)
        assert "terminal again" in (await bash.run("exec >/dev/null 2>&1")).text
        assert (await bash.run("echo back $x")).text == "back 1"
        assert (await bash.run("exit 4")).text == f"exit\n[shell exited: code 4]\n{RESET_NOTICE}"
        assert (await bash.run("echo [$x]")).text == "[]"

    drive(body, launch=launch, timeout_s=1)


@needs_root
def test_another_user_has_that_users_rights_and_nothing_of_it_is_left(drive, tmp_path):
    open_to_all(tmp_path)
    n = 27_000_000 + os.getpid()

    async def body(bash: Bash) -> None:
        told = (await bash.run("id -un; id -Gn; cat /etc/shadow 2>&1 >/dev/null; kill -9 $PPID")).text
        assert told.split("\n")[:2] == ["nobody", "nogroup"]
        assert told.count("ermitted") + told.count("denied") == 2
        await bash.run(f"(setsid sleep {n} &) ; nohup sleep {n} & sleep 0.1")

    drive(body, launch=Launch(user=find_user("nobody")))
    assert not any(b"%d" % n in _command(pid) for pid in os.listdir("/proc") if pid.isdigit())


def _command(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_limits_bind_what_the_shell_starts(drive, tmp_path):
    async def body(bash: Bash) -> None:
        assert (await bash.run("ulimit -n; ulimit -Hn; ulimit -c")).text == "300\n300\n0"
        text = (await bash.run("head -c 2000000 /dev/zero > big")).text
        assert "exit code: 153" in text or "too large" in text  # 153 is SIGXFSZ
        assert (tmp_path / "big").stat().st_size == 1_048_576

    drive(body, launch=Launch(rlimits={"nofile": 300, "core": 0, "fsize": 1_048_576}))


@pytest.mark.alone
@needs_root
def test_a_fork_bomb_within_a_limit_ends_with_its_call(drive):
    uid = 200_000_000 + os.getpid()  # of nobody else, because the kernel counts processes by user

    async def body(bash: Bash) -> None:
        started = time.monotonic()
        text = (await bash.run(":(){ :|:& }; :; wait")).text
        assert time.monotonic() - started < 30
        assert "fork" in text or "esource" in text

    drive(body, launch=Launch(user=find_user(uid), rlimits={"nproc": 40}), timeout_s=1)
    running = [pid for pid in os.listdir("/proc") if pid.isdigit() and _owner(pid) == uid]
    assert running == []


def _owner(pid: str) -> int:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return -1


@needs_root
def test_in_another_root_the_shell_finds_its_place_and_its_terminal(drive, image):
    async def body(bash: Bash) -> None:
        bash.move("/work")
        assert (await bash.run("pwd; exec >/dev/null; x=1")).text.startswith(
            "/work\n[The command had redirected"
        )
        assert (await bash.run("echo $x; cd /tmp")).text == "1"
        assert (await bash.run("sleep 100")).text.endswith(KEPT)
        assert (await bash.run("pwd")).text == "/tmp"
        bash.move("/nowhere")
        assert (await bash.run("echo a")).text.startswith("[The shell could not enter /nowhere")

    drive(body, launch=Launch(("chroot", str(image))), timeout_s=1)


@pytest.mark.parametrize("argv", [("env", "true"), ("/nonexistent/launcher",), ("false",)])
def test_a_launcher_that_launches_nothing_is_an_error_that_says_so(drive, argv: tuple[str, ...]):
    async def body(bash: Bash) -> None:
        started = time.monotonic()
        with pytest.raises(ShellError, match=r"which must keep its terminal|not found"):
            await bash.run("echo hi")
        assert time.monotonic() - started < SOON_S

    drive(body, check=False, launch=Launch(argv))


def test_an_unknown_user_is_an_error_that_names_it():
    with pytest.raises(ShellError, match='no user "nosuchuser"'):
        find_user("nosuchuser")


def test_a_launcher_that_redirects_and_starts_helpers_changes_no_result(drive, tmp_path):
    async def body(bash: Bash) -> None:
        assert (await bash.run("echo hi; echo err >&2")).text == "hi\nerr"
        bash.move("/usr")
        assert (await bash.run("pwd")).text == "/usr"
        assert (await bash.run("sleep 100")).text.endswith(KEPT)
        nowhere = tmp_path / "nowhere"
        bash.move(str(nowhere))
        assert (await bash.run("true")).text == f"[The shell could not enter {nowhere}; it is still in /usr.]"

    drive(body, launch=Launch(("sh", "-c", 'sleep 1000 & exec "$@" >/dev/null 2>&1', "sh")), timeout_s=1)


@needs_root
def test_a_link_is_followed_where_the_shell_is(drive, image):
    (image / "work" / "link").symlink_to("/tmp/inside")
    (image / "tmp" / "inside").mkdir()

    async def body(bash: Bash) -> None:
        bash.move("/work/link")
        assert (await bash.run("pwd; pwd -P")).text == "/work/link\n/tmp/inside"
        bash.move("/nowhere")
        assert "still in /tmp/inside.]" in (await bash.run("true")).text

    drive(body, launch=Launch(("chroot", str(image))))

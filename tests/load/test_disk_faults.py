"""Whatever the disk does to a log: its session ends, the client is told why, and all others go on."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bad_disk import TESTS, composition
from cordisd.mock import MockModelThread, Received, Reply, call, text
from cordisd.session.condition import examine
from cordisd.session.file import FsyncPolicy
from cordisd.session.layout import locate
from cordisd.session.store import SessionStore
from cordisd.session.survey import survey
from daemon import Daemon, module_path
from measure import PATIENCE_S

pytestmark = pytest.mark.load

UNTIL_GO = "until [ -e go ]; do sleep 0.01; done"
LOST = "LOG_WRITE_FAILED"


def reply(request: Received) -> Reply:
    """A prompt is run as a command, once; then there is an answer."""
    last = request.json["messages"][-1]
    if last["role"] == "user" and last["content"].startswith("$ "):
        return call(f"c{len(request.json['messages'])}", "bash", {"command": last["content"][2:]})
    return text("done")


def blocks(session: str, prompt: str = "more") -> dict[str, object]:
    return {"sessionId": session, "contentBlocks": [{"type": "text", "text": prompt}]}


def waiting(daemon: Daemon, *sessions: str) -> dict[str, list[str]]:
    """Each session runs a command that waits for the file `go`, and has one more prompt; their ids."""
    (daemon.cwd / "go").unlink(missing_ok=True)
    start = len(daemon.frames)
    prompts = {one: [daemon.prompt(one, f"$ {UNTIL_GO}"), daemon.prompt(one, "next")] for one in sessions}
    daemon.wait(lambda: all(called(daemon, one, start) for one in sessions), PATIENCE_S)
    return prompts


def called(daemon: Daemon, session: str, start: int) -> bool:
    return any(event["type"] == "tool/call" for event in daemon.events(session, start))


def go_on(daemon: Daemon, *sessions: str) -> None:
    """Let the commands end, and wait until the sessions are idle."""
    start = len(daemon.frames)
    (daemon.cwd / "go").touch()
    for one in sessions:
        daemon.wait_idle(one, start, timeout_s=PATIENCE_S)


def outcomes(daemon: Daemon, session: str) -> dict[str, str]:
    """How each prompt ended that has ended, by its id."""
    told = [frame["params"] for frame in daemon.frames if frame.get("method") == "session.completed"]
    return {one["messageId"]: one["stopReason"] for one in told if one["sessionId"] == session}


def assert_ended(daemon: Daemon, session: str, prompts: list[str], why: str) -> None:
    """The session has ended because its log cannot be written, and everybody who asks is told why."""
    end = daemon.events(session)[-1]
    assert end["type"] == "turn/end"
    assert end["data"]["reason"]["error"]["code"] == LOST
    assert why in end["data"]["reason"]["error"]["message"]
    assert [outcomes(daemon, session)[one] for one in prompts] == ["error"] * len(prompts)
    for method in ("session/prompt", "session/steer"):
        code, message = daemon.refused(method, blocks(session))
        assert code == -32011
        assert why in message


def assert_kept(daemon: Daemon, session: str, prompts: list[str], root: Path | None = None) -> None:
    """The log is sound and holds what was acknowledged, and what the client saw but for how it was closed."""
    path = locate(root or daemon.sessions, session)
    stored = [event.as_dict() for event in SessionStore(path).read(path)[1]]
    seen = daemon.events(session)
    n_same = sum(event in stored for event in seen)
    assert stored == seen[:n_same]
    assert {event["type"] for event in seen[n_same:]} <= {"tool/result", "step/end", "turn/end"}
    inserted = [one["id"] for event in stored for one in event["data"].get("inserted", [])]
    assert set(prompts) <= set(inserted)
    assert examine(survey(path)[0]).status == "open"


def conditions(root: Path) -> dict[str, str]:
    """What `cordisd log verify` says of each log."""
    return {found.path.parent.name: examine(found).status for found in survey(root)}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "w"
    folder.mkdir()
    return folder


def test_a_disk_that_refuses_one_session_ends_that_one_and_no_other(tmp_path: Path, work: Path) -> None:
    control = tmp_path / "bad-disk"
    on_bad_disk = {"argv": composition(tmp_path), "BAD_DISK": str(control), "PYTHONPATH": module_path(TESTS)}
    faults = {"EIO": "write", "ENOSPC": "write", "EDQUOT": "write", "EROFS": "write", "fsync": "fsync"}
    errors = {name: "EIO" if name == "fsync" else name for name in faults}
    with MockModelThread(reply) as mock, Daemon(work, model_url=mock.url, **on_bad_disk) as daemon:
        daemon.initialize()
        prompts = waiting(daemon, *faults, "good")
        control.write_text(json.dumps({name: {call: errors[name]} for name, call in faults.items()}))
        go_on(daemon, *faults, "good")
        assert list(outcomes(daemon, "good").values()) == ["completed"] * 2
        for name in faults:
            assert_ended(daemon, name, prompts[name], f"({errors[name]})")
            assert_kept(daemon, name, prompts[name])
        control.unlink()
        daemon.run("good", "$ echo still here")
        for name in faults:  # once its owner lets go of it, a session goes on where its log ended
            daemon.request("session/close", {"sessionId": name})
            daemon.request("session/resume", {"sessionId": name})
            daemon.run(name, "again")
            said = [one["content"] for one in mock.requests[-1].json["messages"] if one["role"] == "user"]
            assert said == [f"$ {UNTIL_GO}", "next", "again"]
        assert daemon.end() == 0
        assert b"Traceback" not in daemon.stderr
    assert conditions(daemon.sessions) == dict.fromkeys([*faults, "good"], "ok")


@pytest.mark.parametrize(("policy", "n_syncs"), [("step", 3), ("turn", 1), ("never", 0)])
def test_the_disk_is_waited_for_as_often_as_was_asked(
    tmp_path: Path, work: Path, policy: FsyncPolicy, n_syncs: int
) -> None:
    calls = tmp_path / "bad-disk.calls"
    argv = composition(tmp_path, policy)
    environment = {"BAD_DISK": str(tmp_path / "bad-disk"), "PYTHONPATH": module_path(TESTS)}
    with (
        MockModelThread(reply) as mock,
        Daemon(work, model_url=mock.url, argv=argv, **environment) as daemon,
    ):
        daemon.initialize()
        for number in (1, 2):
            calls.write_text("")
            daemon.run("s", "$ true")
            assert calls.read_text().splitlines().count("s fsync") == n_syncs, number
        assert daemon.end() == 0


def test_a_log_that_may_not_grow_ends_its_session_and_no_other(work: Path) -> None:
    with MockModelThread(reply) as mock, Daemon(work, model_url=mock.url) as daemon:
        daemon.initialize()
        prompts = waiting(daemon, "good")
        daemon.run("big", "$ seq 9000")
        size = locate(daemon.sessions, "big").stat().st_size
        resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (size + 700, size + 700))
        start = len(daemon.frames)
        prompts["big"] = [daemon.prompt("big", "$ seq 9000")]
        daemon.wait_idle("big", start)
        assert_ended(daemon, "big", prompts["big"], "File too large (EFBIG)")
        assert_kept(daemon, "big", prompts["big"])
        go_on(daemon, "good")
        assert list(outcomes(daemon, "good").values()) == ["completed"] * 2
        assert daemon.end() == 0
    assert conditions(daemon.sessions) == {"big": "interrupted", "good": "ok"}


def test_sessions_whose_logs_or_folders_vanish_or_change_end_and_no_other(work: Path) -> None:
    names = ["file", "folder", "emptied", "appended", "good"]
    with MockModelThread(reply) as mock, Daemon(work, model_url=mock.url) as daemon:
        daemon.initialize()
        prompts = waiting(daemon, *names)
        paths = {name: locate(daemon.sessions, name) for name in names}
        paths["file"].unlink()
        shutil.rmtree(paths["folder"].parent)
        os.truncate(paths["emptied"], 0)
        with paths["appended"].open("ab") as stream:
            stream.write(b"x")
        go_on(daemon, *names)
        for name in names[:2]:
            assert_ended(daemon, name, prompts[name], "the file was removed while the session ran")
        for name in names[2:4]:
            assert_ended(daemon, name, prompts[name], "another process has changed it")
        assert list(outcomes(daemon, "good").values()) == ["completed"] * 2
        assert daemon.end() == 0
    assert conditions(daemon.sessions) == {"emptied": "damaged", "appended": "torn", "good": "ok"}


def test_a_root_that_vanishes_ends_the_sessions_in_it_and_new_ones_make_it_anew(work: Path) -> None:
    with MockModelThread(reply) as mock, Daemon(work, model_url=mock.url) as daemon:
        daemon.initialize()
        prompts = waiting(daemon, "a", "b")
        shutil.rmtree(daemon.sessions)
        go_on(daemon, "a", "b")
        for name in ("a", "b"):
            assert_ended(daemon, name, prompts[name], "the file was removed while the session ran")
            daemon.request("session/close", {"sessionId": name})
        daemon.run("c", "$ true")
        assert daemon.end() == 0
    assert conditions(daemon.sessions) == {"c": "ok"}


def mounted(script: str, root: Path, *options: str) -> list[str]:
    """The command of a daemon in its own mount namespace, where `script` has mounted something on `root`."""
    namespace = ["unshare", "-m", "--propagation", "private", "--", "sh", "-c"]
    root.mkdir()
    if subprocess.run([*namespace, script, str(root)], capture_output=True).returncode != 0:
        pytest.skip("mount namespaces are not permitted here")
    serve = [sys.executable, "-m", "cordisd", "serve", "--stdio", "minimal", *options]
    return [*namespace, f'{script} && exec "$@"', str(root), *serve]


def inside(daemon: Daemon, *command: str) -> None:
    """Run a command where the daemon's mounts are seen."""
    subprocess.run(["nsenter", "-t", str(daemon.process.pid), "-m", *command], check=True)


def test_a_full_disk_ends_who_writes_and_a_session_begun_with_room_again_goes_on(work: Path) -> None:
    root = work.parent / "w-sessions"
    argv = mounted('mount -t tmpfs -o size=128k tmpfs "$0" && head -c 40000 /dev/zero > "$0/ballast"', root)
    with MockModelThread(reply) as mock, Daemon(work, model_url=mock.url, argv=argv) as daemon:
        seen_root = Path(f"/proc/{daemon.process.pid}/root{root}")
        daemon.initialize()
        daemon.run("idle", "hello")
        prompts = [daemon.prompt("full", f"$ seq {number}000") for number in range(4, 9)]
        daemon.wait_idle("full", timeout_s=PATIENCE_S)
        assert_ended(daemon, "full", prompts[-1:], "No space left on device (ENOSPC)")
        assert_kept(daemon, "full", prompts, seen_root)
        (seen_root / "ballast").unlink()
        daemon.run("idle", "more")
        daemon.run("new", "$ true")
        assert {*outcomes(daemon, "idle").values(), *outcomes(daemon, "new").values()} == {"completed"}
        daemon.request("session/close", {"sessionId": "full"})
        daemon.request("session/resume", {"sessionId": "full"})
        daemon.run("full", "again")
        for name in ("idle", "new", "full"):
            daemon.request("session/close", {"sessionId": name})
        assert conditions(seen_root) == {"idle": "ok", "new": "ok", "full": "ok"}
        assert daemon.end() == 0


def test_a_root_that_turns_read_only_takes_no_session_until_it_is_writable_again(work: Path) -> None:
    root = work.parent / "w-sessions"
    argv = mounted('mount -t tmpfs tmpfs "$0"', root)
    with MockModelThread(reply) as mock, Daemon(work, model_url=mock.url, argv=argv) as daemon:
        daemon.initialize()
        daemon.run("old", "$ true")
        daemon.request("session/close", {"sessionId": "old"})
        inside(daemon, "mount", "-o", "remount,ro", str(root))
        code, message = daemon.refused("session/prompt", blocks("new"))
        assert (code, "Read-only file system (EROFS)" in message) == (-32011, True)
        code, message = daemon.refused("session/resume", {"sessionId": "old"})
        assert (code, "Read-only file system (EROFS)" in message) == (-32010, True)
        inside(daemon, "mount", "-o", "remount,rw", str(root))
        daemon.request("session/close", {"sessionId": "new"})
        daemon.run("new", "$ true")
        daemon.request("session/resume", {"sessionId": "old"})
        daemon.run("old", "$ true")
        assert daemon.end() == 0
        assert b"Traceback" not in daemon.stderr

"""Notifications, requests without an id, are served and never answered."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon import Daemon
from exchanges import PING, codes, exchange, request
from measure import PATIENCE_S, SOON_S


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("notifications")) as daemon:
        daemon.initialize()
        yield daemon


def notification(method: str, **more: object) -> str:
    return json.dumps({"jsonrpc": "2.0", "method": method, **more})


def creation(session: object) -> str:
    return notification("session/create", params={"sessionId": session})


def wait_for_sessions(daemon: Daemon, *names: str) -> None:
    """Wait until the daemon has all these sessions; meanwhile it must say nothing of its own."""
    end_s = time.monotonic() + PATIENCE_S
    while True:
        [answer] = exchange(daemon, request(1, "session/list"))
        if {*names} <= {one["sessionId"] for one in answer["result"]["sessions"]}:
            return
        assert time.monotonic() < end_s, answer


def test_a_notification_is_served_and_not_answered(served: Daemon) -> None:
    assert exchange(served, creation("told"), n=0) == []
    wait_for_sessions(served, "told")


def test_a_notification_that_fails_is_a_line_on_stderr_and_nothing_else(tmp_path: Path) -> None:
    with Daemon(tmp_path) as daemon:
        daemon.initialize()
        failing = [notification("nope"), creation(5), notification("session/get", params=["s"])]
        assert exchange(daemon, *failing, notification("rpc.ping"), n=0) == []
        daemon.end()
        told = [line for line in daemon.stderr.decode().splitlines() if "notification" in line]
        assert len(told) == len(failing)
        for line, word in zip(sorted(told), ("nope", "session/create", "session/get"), strict=True):
            assert word in line and "Traceback" not in line


@pytest.mark.parametrize("method", ["rpc.ping", "shutdown", "nope"])
def test_a_null_id_is_no_notification_and_is_refused(method: str, served: Daemon) -> None:
    frame = request(None, method)
    assert codes(exchange(served, frame)) == [(None, -32600)]
    [answers] = exchange(served, f"[{frame}]")
    assert codes(answers) == [(None, -32600)]


def test_what_is_neither_a_request_nor_a_notification_is_refused_without_an_id(served: Daemon) -> None:
    frames = ['{"jsonrpc":"2.0"}', '{"method":"rpc.ping"}', '{"jsonrpc":"2.0","method":null}']
    assert codes(exchange(served, *frames)) == [(None, -32600)] * 3


def test_a_batch_of_notifications_is_served_and_has_no_answer_at_all(served: Daemon) -> None:
    batch = [creation("one of two"), notification("nope"), creation("two of two")]
    assert exchange(served, f"[{','.join(batch)}]", n=0) == []
    wait_for_sessions(served, "one of two", "two of two")


def test_in_a_mixed_batch_only_the_requests_are_answered(served: Daemon) -> None:
    [answers] = exchange(served, f"[{creation('mixed')},{PING % 1},{notification('nope')},{PING % 2}]")
    assert codes(answers) == [(1, None), (2, None)]
    wait_for_sessions(served, "mixed")


def test_initialize_may_be_told(tmp_path: Path) -> None:
    params = {"cwd": str(tmp_path), "provider": "deepseek-official", "model": "m"}
    with Daemon(tmp_path) as daemon:
        told = notification("initialize", params=params)
        assert codes(exchange(daemon, told, request(1, "session/create"), n=1)) == [(1, None)]


@pytest.mark.parametrize("line", [notification("shutdown"), f"[{notification('shutdown')}]"])
def test_a_shutdown_that_is_told_ends_the_daemon_with_a_trace(line: str, tmp_path: Path) -> None:
    with Daemon(tmp_path) as daemon:
        daemon.initialize()
        daemon.send_raw(line.encode() + b"\n")
        assert daemon.process.wait(SOON_S) == 0
        daemon.end()
        assert b"shutdown" in daemon.stderr
        assert all("id" in frame for frame in daemon.frames)

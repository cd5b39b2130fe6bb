"""Sessions that end, and begin again, while their reader is behind."""

from __future__ import annotations

import re
import time
from pathlib import Path

from cordisd.mock import MockModelThread, RawReply, delta, text
from cordisd.session.layout import is_locked
from daemon import Daemon, blocks
from measure import PATIENCE_S

FLOOD = RawReply([delta({"content": "x" * 50_000})] * 240 + [delta({}, "stop")])
"""More than a transport holds for its reader, which is 8 MiB."""


def wait_for_the_end_in_the_log(daemon: Daemon, turn: int = 1, *, closed: bool = False) -> None:
    """Wait until the end of that turn of session `s` is on disk, whoever reads what the daemon says.

    `closed`: and until the daemon has let go of the log.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        for path in daemon.sessions.glob("*/s/session.jsonl"):
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - 400))
                has_ended = re.search(rb'"turn/end".*"turn":%d,' % turn, file.read())
                if has_ended and not (closed and is_locked(path)):
                    return
        assert time.monotonic() < deadline
        time.sleep(0.05)


def assert_answered_before_the_end_was_told(daemon: Daemon, number: int) -> None:
    """What a feed holds back comes after the answer: so the reader was behind when that was given."""
    answer = daemon.answer(number)
    assert answer is not None and answer["result"] == {}
    [first_end, *_] = [
        n
        for n, frame in enumerate(daemon.frames)
        if frame.get("method") == "session.event" and frame["params"]["event"]["type"] == "turn/end"
    ]
    assert daemon.frames.index(answer) < first_end


def test_a_session_closed_while_its_reader_is_behind_is_still_told_to_the_end(tmp_path: Path) -> None:
    with MockModelThread([FLOOD]) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        daemon.pause_reading()
        daemon.initialize()
        daemon.send("session/prompt", {"sessionId": "s", "contentBlocks": blocks("flood")})
        wait_for_the_end_in_the_log(daemon)
        closing = daemon.send("session/close", {"sessionId": "s"})
        wait_for_the_end_in_the_log(daemon, closed=True)
        daemon.wait(lambda: any(f.get("method") == "session.completed" for f in daemon.frames), PATIENCE_S)
        assert_answered_before_the_end_was_told(daemon, closing)
        events = daemon.events("s")
        assert [event["seq"] for event in events] == list(range(len(events)))
        assert events[-1]["type"] == "turn/end"
        daemon.end()


def test_a_session_resumed_while_its_reader_is_behind_is_told_in_order_and_once(tmp_path: Path) -> None:
    with MockModelThread([FLOOD, text("after")]) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        daemon.pause_reading()
        daemon.initialize()
        daemon.send("session/prompt", {"sessionId": "s", "contentBlocks": blocks("flood")})
        wait_for_the_end_in_the_log(daemon)
        daemon.send("session/close", {"sessionId": "s"})
        resuming = daemon.send("session/resume", {"sessionId": "s"})
        daemon.send("session/prompt", {"sessionId": "s", "contentBlocks": blocks("more")})
        wait_for_the_end_in_the_log(daemon, 2)
        daemon.wait(
            lambda: sum(f.get("method") == "session.completed" for f in daemon.frames) == 2,
            timeout_s=PATIENCE_S,
        )
        assert_answered_before_the_end_was_told(daemon, resuming)
        seqs = [event["seq"] for event in daemon.events("s")]
        assert seqs == sorted(set(seqs))
        assert len(seqs) == seqs[-1], "all but the end of the seed, which is never sent"
        daemon.end()

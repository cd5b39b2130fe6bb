"""`cordisd log show`: a session as a person reads it, as lines, as JSON; whole or as far as it is sound."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Logs
from cordisd.cli.transcript import Transcript
from cordisd.events import Event
from cordisd.session.store import SessionStore
from log_samples import (
    Writer,
    call_block,
    finished_session,
    header,
    open_turn,
    plain,
    result_data,
    text_chunks,
)
from stored_logs import damage, stopped_in_a_call, store, two_turns


def told(*events: tuple[str, dict[str, Any]], colour: bool = False) -> list[str]:
    """The lines of a transcript of `events`."""
    transcript = Transcript(colour=colour)
    lines = [
        line
        for number, (kind, data) in enumerate(events)
        for line in transcript.tell(Event(kind, number, 1000 * number, data))
    ]
    return [*lines, *transcript.end()]


def message(*blocks: dict[str, Any], **marks: Any) -> tuple[str, dict[str, Any]]:
    return "assistant/message", {"message": {"content": list(blocks)}, **marks}


def test_a_session_is_told_from_its_prompt_to_its_end(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    store(logs.root, two_turns())
    code, out = logs.run("show", "s1")
    assert (code, logs.err) == (0, "")
    assert "\x1b" not in out
    first, blank, *lines = out.rstrip("\n").split("\n")
    assert first.startswith("session s1 · /srv/w · no preset · 2023-11-")
    assert blank == ""
    assert [line for line in lines[: lines.index("")] if not line.startswith("turn 1 · ")] == [
        "user:",
        "  Say hé \u2028 twice",
        "$ echo hé",
        "  hé",
        "assistant:",
        "  hé, hé!",
        "turn 1 completed: 2 steps · 10 tokens in, 6 out · 0.0 s",
    ]
    code, only = logs.run("show", "s1", "--turn", "2")
    assert only.rstrip("\n").split("\n") == [first, *lines[lines.index("") :]]
    assert logs.run("show", "s1", "--turn", "3")[0] == 1
    assert logs.err == "cordisd: there is no turn 3; the last one is 2\n"


def test_json_is_each_event_with_packed_rows_expanded(logs: Logs) -> None:
    file = SessionStore(logs.root).create(header())
    file.append(finished_session())
    assert b'"text-chunks"' in file.path.read_bytes()
    _, out = logs.run("show", "s1", "--json")
    assert [json.loads(line) for line in out.splitlines()] == plain(finished_session())
    file.close()


def test_events_are_short_lines(logs: Logs) -> None:
    store(logs.root)
    lines = logs.run("show", "s1", "--events")[1].splitlines()
    assert len(lines) == len(finished_session())
    assert [line.split()[3] for line in lines] == [event.type for event in finished_session()]
    assert max(map(len, lines)) <= 200


def test_a_damaged_log_is_shown_as_far_as_it_is_sound(logs: Logs) -> None:
    path = store(logs.root, two_turns())
    damage(path, lambda lines: [*lines[:60], b"garbage\n", *lines[61:]])
    code, out = logs.run("show", "s1")
    assert code == 1
    assert "turn 1 completed" in out
    assert out.splitlines()[-1] == "turn 2 has no end here"
    assert logs.err.startswith("cordisd: the log is sound up to here only: unparsable event at line 61 ")
    assert logs.run("show", "s1", "--json")[1].count("\n") == 59
    damage(path, lambda lines: [*lines[:30], b'{"type":"new","seq":29,"time":1,"data":{}}\n'])
    code, out = logs.run("show", "s1", "--json")
    assert (code, out.count("\n")) == (1, 29)
    assert 'unknown event type "new"' in logs.err
    damage(path, lambda _: [])
    assert logs.run("show", "s1") == (1, "")
    assert "the file is empty" in logs.err


def test_the_torn_line_of_a_log_that_is_being_written_is_no_damage(logs: Logs) -> None:
    file = SessionStore(logs.root).create(header())
    file.append(stopped_in_a_call())
    with file.path.open("ab") as stream:
        stream.write(b"{")
    code, out = logs.run("show", "s1")
    assert (code, logs.err) == (0, "")
    assert out.splitlines()[-2:] == ["bash {}", "turn 2 has no end here"]
    file.close()


def test_what_was_streamed_and_never_became_a_message_is_told(logs: Logs) -> None:
    writer = Writer()
    open_turn(writer, 1, "x")
    writer.chunks(1, 1, *text_chunks("half a ", "word")[:-2])
    store(logs.root, writer.events)
    assert logs.run("show", "s1")[1].splitlines()[-3:] == [
        "assistant, cut off:",
        "  half a word",
        "turn 1 has no end here",
    ]


def test_calls_are_told_in_full_and_named_again_where_results_come_later() -> None:
    command = json.dumps({"command": "cat <<X\n1\nX"})
    edit = json.dumps({"command": "str_replace", "path": "/a", "old_str": "1\n", "new_str": "2\n3"})
    blocks = (call_block("c1", command), {**call_block("c2", edit), "name": "str_replace_editor"})
    calls = [
        ("tool/call", {"callId": b["id"], "name": b["name"], "arguments": b["arguments"]}) for b in blocks
    ]
    assert told(message(*blocks), *calls, ("tool/result", result_data("c1", "1")))[-7:] == [
        "- 1".rjust(5),
        "+ 2".rjust(5),
        "+ 3".rjust(5),
        "$ cat <<X",
        "  1",
        "  X",
        "  1",
    ]


def test_retries_errors_and_odd_ends_are_told_with_their_cause() -> None:
    failure = {"message": "over\nloaded", "code": "SERVER"}
    reason = {"kind": "error", "error": failure}
    assert told(
        ("turn/start", {"turn": 1}),
        ("step/start", {}),
        ("llm/retry", {"failure": failure}),
        message({"type": "text", "text": "so far"}, interrupted=True),
        ("turn/end", {"turn": 1, "reason": reason, "stopReason": "error"}),
        ("turn/end", {"turn": 2, "reason": {"kind": "aborted", "reason": {"kind": "user"}}}),
    )[2:] == [
        "request failed, retried: over loaded",
        "assistant, cut off:",
        "  so far",
        "turn 1 error (over loaded): 1 step · 0 tokens in, 0 out · 4.0 s",
        "turn 2 aborted (user): 1 step · 0 tokens in, 0 out · 5.0 s",
    ]


def test_what_was_made_of_a_session_is_told() -> None:
    assert told(
        ("working-directory/change", {"cwd": "/srv"}),
        ("session/outcome", {"class": "solved", "reward": 0.5}),
        ("session/outcome", {"class": "dropped"}),
    ) == ["working directory: /srv", "outcome: solved, reward 0.5", "outcome: dropped"]


def test_an_event_of_another_shape_is_named_and_the_rest_told() -> None:
    assert told(("user/message", {"content": 5}), message({"type": "text", "text": "x"})) == [
        "event 0 (user/message) is not as its type says",
        "assistant:",
        "  x",
    ]


def test_nothing_that_was_said_steers_the_terminal() -> None:
    evil = {"type": "text", "text": "a\x1b[2J\x9b\rb"}
    assert told(message(evil)) == ["assistant:", "  a[2Jb"]
    assert told(message(evil), colour=True) == ["\x1b[1massistant:\x1b[0m", "  a[2Jb"]


def test_a_reader_that_has_seen_enough_is_no_error(logs: Logs, tmp_path: Path) -> None:
    writer = Writer()
    open_turn(writer, 1, "x\n" * 200_000)
    path = store(logs.root, writer.events)
    argv = [sys.executable, "-m", "cordisd", "log", "show", str(path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as shown:
        assert shown.stdout is not None
        assert shown.stderr is not None
        assert shown.stdout.readline().startswith(b"session s1")
        shown.stdout.close()
        assert shown.stderr.read() == b""

"""The file of a recording: what it keeps, and what is refused when it is loaded."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordisd.errors import CompositionError
from cordisd.replay.recording import lines, read_recording
from cordisd.replay.turns import Answer, Chunk, Exchange, Recording, Turn
from cordisd.services.traffic import ToolOutcome

TOOLS = [{"type": "function", "function": {"name": "bash", "description": "runs"}}]


def body(*said: str) -> dict[str, Any]:
    roles = ("system", "user", "assistant", "tool")
    messages = [{"role": roles[n % 4], "content": text} for n, text in enumerate(said)]
    return {"model": "m", "tools": TOOLS, "messages": messages}


def sample() -> Recording:
    """Two turns, four requests, one of each kind of line and answer."""
    header = {
        "type": "recording",
        "version": 1,
        "session": "s",
        "composition": None,
        "agent": {},
        "masks": {},
    }
    whole = Answer(
        200, {"content-type": "text/event-stream"}, 3, [Chunk(4, b"data: \xe2"), Chunk(5, b"\x82\xac")]
    )
    failure = Answer(failure={"message": "Connection refused", "code": "TRANSPORT"}, end_ms=2)
    broken = Answer(
        200, {}, 1, [Chunk(2, "é\ud800".encode("utf-8", "surrogatepass"))], {"message": "", "code": "X"}
    )
    one = Exchange(body("s", "u"), whole, [ToolOutcome("c1", "bash", "out\ud800", False)])
    turns = [
        Turn(
            1,
            [{"type": "text", "text": "hi\u2028"}],
            [one, Exchange(body("s", "u", "a", "t"), failure)],
            "error",
        ),
        Turn(
            2,
            [],
            [Exchange(body("s", "u", "a", "t"), broken), Exchange(body("s"), Answer(was_left=True))],
            "x",
        ),
    ]
    return Recording(Path("unset"), header, turns)


def write(path: Path, rows: list[bytes]) -> Path:
    path.write_bytes(b"".join(rows))
    return path


def refusal(path: Path, rows: list[bytes]) -> str:
    with pytest.raises(CompositionError) as caught:
        read_recording(write(path, rows))
    [problem] = caught.value.problems
    assert problem.where.partition(":")[0] == str(path)
    return str(problem).removeprefix(str(path))


def with_end(rows: list[bytes]) -> list[bytes]:
    """The lines with an end line that fits them."""
    end = json.loads(rows[-1]) | {"sha256": hashlib.sha256(b"".join(rows[:-1])).hexdigest()}
    return [*rows[:-1], json.dumps(end).encode() + b"\n"]


def test_what_is_written_is_read_and_written_the_same(tmp_path: Path) -> None:
    recording = sample()
    path = write(tmp_path / "r.jsonl", list(lines(recording)))
    read = read_recording(path)
    assert read.turns == recording.turns
    assert b"".join(lines(read)) == path.read_bytes()
    assert [len(json.loads(row).get("messages", [])) for row in lines(read) if b'"request"' in row] == [
        2,
        2,
        0,
        0,
    ]


def test_a_recording_cut_off_anywhere_is_refused_with_file_and_line(tmp_path: Path) -> None:
    rows = list(lines(sample()))
    content = b"".join(rows)
    random.seed(5)
    ends = {sum(map(len, rows[:n])) for n in range(len(rows))}
    for size in sorted(ends | {random.randrange(len(content)) for _ in range(200)} | {len(content) - 1}):
        message = refusal(tmp_path / "cut.jsonl", [content[:size]])
        if size == 0:
            assert message == ": the recording is empty"
            continue
        torn = 0 if size in ends else 1
        assert message.startswith(f":{content[:size].count(10) + torn}: the recording is cut off"), (
            size,
            message,
        )


def test_a_line_that_is_doubled_missing_or_elsewhere_is_refused(tmp_path: Path) -> None:
    rows = list(lines(sample()))
    path = tmp_path / "r.jsonl"
    for at, row in enumerate(rows):
        assert refusal(path, [*rows[:at], row, *rows[at:]]), row
        assert refusal(path, [*rows[:at], *rows[at + 1 :]]), row
        for other in range(at + 1, len(rows)):
            swapped = list(rows)
            swapped[at], swapped[other] = rows[other], row
            assert refusal(path, swapped), (row, rows[other])


def test_any_edited_line_is_refused_unless_its_hashes_are_edited_too(tmp_path: Path) -> None:
    rows = list(lines(sample()))
    path = tmp_path / "r.jsonl"
    for at, row in enumerate(rows[:-1]):
        edited = row.replace(b'"type"', b'"more": 1, "type"', 1)
        assert f":{len(rows)}: the lines before do not have the recorded sha256" in refusal(
            path, [*rows[:at], edited, *rows[at + 1 :]]
        )
    at = next(at for at, row in enumerate(rows) if b'"content": "u"' in row)
    edited = [*rows[:at], rows[at].replace(b'"content": "u"', b'"content": "v"'), *rows[at + 1 :]]
    message = refusal(path, edited)
    assert message.startswith(f":{at + 1}: the request does not have the recorded sha256; it is ")
    correct = message.partition(" it is ")[2][:64]
    wrong = json.loads(rows[at])["sha256"]
    edited[at] = edited[at].replace(wrong.encode(), correct.encode())
    message = refusal(path, edited)
    assert "it is" in message and "write this hash" in message


@pytest.mark.parametrize(
    ("kind", "change", "said"),
    [
        ("recording", {"version": 2}, ":1: is of version 2; this cordisd reads version 1"),
        ("recording", {"version": True}, ":1: is of version True"),
        ("recording", {"type": "session"}, "a session log is played with mode: cursor"),
        ("recording", {"session": None}, "session must be of type str"),
        ("recording", {"agent": []}, "agent must be of type dict"),
        ("recording", {"masks": {"t": "("}}, 'mask "t": missing )'),
        ("recording", {"masks": {"t": ".+"}}, 'mask "t" finds too much: it hits the token {{cwd}}'),
        ("recording", {"masks": {"t": 1}}, "masks must be"),
        ("recording", {"masks": {"t": "x*"}}, "matches an empty text"),
        ("recording", {"secrets": "A"}, "secrets must be names"),
        ("recording", {"composition": 1}, "composition must be"),
        ("prompt", {"type": "wish"}, ':2: unknown line of type "wish"'),
        ("prompt", {"turn": "1"}, "turn must be of type int"),
        ("prompt", {"turn": 2}, "is of turn 2, but the turn is 1"),
        ("prompt", {"content": ["x"]}, "content must be a list of blocks"),
        ("request", {"kept": -1}, "keeps -1 messages of 0"),
        ("request", {"kept": 1}, "keeps 1 messages of 0"),
        ("request", {"members": []}, "members must be of type dict"),
        ("request", {"messages": [1]}, "messages must be a list of objects"),
        ("request", {"sha256": 1}, "sha256 must be of type str"),
        ("response", {"status": "200"}, "status must be of type int"),
        ("response", {"headers": {"a": 1}}, "headers must be texts"),
        ("chunk", {"atMs": 1.5}, "atMs must be of type int"),
        ("chunk", {"text": "ab"}, "a chunk needs a text, or bytes"),
        ("chunk", {"base64": "€"}, "cannot be decoded"),
        ("failed", {"failure": {"message": "x"}}, "a failure must have a message and a code"),
        ("result", {"isError": 0}, "isError must be of type bool"),
        ("turn-end", {"stopReason": 1}, "stopReason must be of type str"),
        ("turn-end", {"turn": 7}, "is of turn 7, but the turn is 1"),
        ("end", {"requests": 3}, "says 3 requests, but there are 4"),
        ("end", {"requests": True}, "requests must be of type int"),
    ],
)
def test_what_no_recorder_writes_is_refused_at_its_line(
    tmp_path: Path, kind: str, change: dict[str, Any], said: str
) -> None:
    rows = list(lines(sample()))
    at = next(at for at, row in enumerate(rows) if json.loads(row)["type"] == kind)
    rows[at] = json.dumps(json.loads(rows[at]) | change).encode() + b"\n"
    if kind != "end":
        rows = with_end(rows)
    message = refusal(tmp_path / "r.jsonl", rows)
    assert message.startswith(f":{at + 1}:") and said in message, message


@pytest.mark.parametrize(
    "raw", [b"{\n", b"[]\n", b"null\n", b'{"type": 1}\n', b"\n", b"\xff\n", b"[" * 9000 + b"\n"]
)
def test_a_line_that_is_no_json_object_is_refused(tmp_path: Path, raw: bytes) -> None:
    rows = list(lines(sample()))
    for at in (0, 1, len(rows) - 1):
        assert refusal(tmp_path / "r.jsonl", [*rows[:at], raw, *rows[at + 1 :]]).startswith(
            f":{at + 1}: is no"
        )


def test_a_missing_file_or_a_folder_is_refused(tmp_path: Path) -> None:
    for path, said in ((tmp_path / "none.jsonl", "No such file"), (tmp_path, "is no regular file")):
        with pytest.raises(CompositionError, match=said):
            read_recording(path)


@given(st.data())
def test_a_damaged_byte_never_passes_and_never_crashes(tmp_path_factory: Any, data: st.DataObject) -> None:
    content = bytearray(b"".join(lines(sample())))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] = data.draw(st.integers(0, 255).filter(lambda one: one != content[at]))
    path = tmp_path_factory.getbasetemp() / "damaged.jsonl"
    end = content.rindex(b'{"type": "end"')
    path.write_bytes(content)
    try:
        recording = read_recording(path)
    except CompositionError as error:
        assert str(path) in str(error)
    else:
        assert at > end and recording.turns == sample().turns  # in a name of the end line that nobody reads

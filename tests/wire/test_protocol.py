"""Every frame with a readable id gets an answer, whatever it holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from daemon import Daemon


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One initialised daemon for all that is refused, after which each finds it as it was.

    Its own requests have the ids from 1; the frames of the tests have others.
    """
    with Daemon(tmp_path_factory.mktemp("served")) as daemon:
        daemon.initialize()
        yield daemon


def exchange(daemon: Daemon, *lines: bytes) -> list[dict[str, Any]]:
    """Every frame that the lines and a final ping are answered with, in order, ping excluded."""
    start = len(daemon.frames)
    daemon.send_raw(b"".join(line + b"\n" for line in lines))
    daemon.request("rpc.ping")
    return daemon.frames[start:-1]


def read_line(daemon: Daemon) -> Any:
    """The next line that the daemon writes, decoded; it must be ASCII."""
    line = daemon.next_line()
    assert line.isascii()
    return json.loads(line)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"jsonrpc":"2.0","id":-3,', (-32700, None)),
        (b"not json", (-32700, None)),
        (b'{"jsonrpc":"2.0","id":-1,"method":"no\xff"}', (-32700, None)),
        (b'{"jsonrpc":"2.0","id":-1,"method":"rpc.ping","params":{"x":NaN}}', (-32700, None)),
        (b"[" * 100_000, (-32700, None)),
        (b"null", (-32600, None)),
        (b"17", (-32600, None)),
        (b'"text"', (-32600, None)),
        (b"[]", (-32600, None)),
        (b'{"jsonrpc":"2.0","id":-4}', (-32600, -4)),
        (b'{"jsonrpc":"2.0","id":-4,"method":5}', (-32600, -4)),
        (b'{"jsonrpc":"1.0","id":-4,"method":"rpc.ping"}', (-32600, -4)),
        (b'{"id":"x","method":"rpc.ping"}', (-32600, "x")),
        (b'{"jsonrpc":"2.0","id":true,"method":"rpc.ping"}', (-32600, None)),
        (b'{"jsonrpc":"2.0","id":{},"method":"rpc.ping"}', (-32600, None)),
        (b'{"jsonrpc":"2.0","id":-5,"method":"nope"}', (-32601, -5)),
        (b'{"jsonrpc":"2.0","id":-5,"method":"session/prompt","params":["a"]}', (-32602, -5)),
        (b'{"jsonrpc":"2.0","id":-5,"method":"session/prompt","params":"a"}', (-32602, -5)),
        (b'{"jsonrpc":"2.0","id":-5,"method":"session/prompt"}', (-32602, -5)),
    ],
)
def test_a_bad_frame_gets_one_error_and_the_connection_goes_on(
    line: bytes, expected: tuple[int, object], served: Daemon
) -> None:
    [answer] = exchange(served, line)
    assert (answer["error"]["code"], answer["id"]) == expected
    assert set(answer["error"]) == {"code", "message"}


def test_ids_come_back_with_their_type(tmp_path: Path) -> None:
    with Daemon(tmp_path) as daemon:
        ids = [0, "0", "", 1.5, -7, "x" * 1000]
        lines = [json.dumps({"jsonrpc": "2.0", "id": one, "method": "rpc.ping"}).encode() for one in ids]
        answers = [answer["id"] for answer in exchange(daemon, *lines)]
        assert [(type(one), one) for one in answers] == [(type(one), one) for one in ids]


def test_notifications_are_served_unanswered_and_stray_answers_have_no_effect(tmp_path: Path) -> None:
    with Daemon(tmp_path) as daemon:
        daemon.initialize()
        frames = exchange(
            daemon,
            b'{"jsonrpc":"2.0","method":"session/create","params":{"sessionId":"told"}}',
            b'{"jsonrpc":"2.0","method":"session/create","params":{"sessionId":7}}',
            b'{"jsonrpc":"2.0","id":77,"result":{}}',
            b"",
            b"  \r",
        )
        assert frames == []
        assert [one["sessionId"] for one in daemon.request("session/list")["sessions"]] == ["told"]
        daemon.end()
        assert b"notification session/create failed: session/create: sessionId" in daemon.stderr


def test_a_null_id_is_refused_and_nothing_is_done(tmp_path: Path) -> None:
    with Daemon(tmp_path) as daemon:
        [frame] = exchange(daemon, b'{"jsonrpc":"2.0","id":null,"method":"shutdown"}')
        assert (frame["id"], frame["error"]["code"]) == (None, -32600)


def test_a_batch_is_answered_member_by_member(tmp_path: Path) -> None:
    with Daemon(tmp_path) as daemon:
        batch = [
            {"jsonrpc": "2.0", "id": 1, "method": "rpc.ping"},
            {"jsonrpc": "2.0", "method": "rpc.ping"},
            17,
            {"jsonrpc": "2.0", "id": "b", "method": "nope"},
        ]
        daemon.send_raw(json.dumps(batch).encode() + b"\n")
        answer = read_line(daemon)
        assert [(one["id"], one.get("result"), one.get("error", {}).get("code")) for one in answer] == [
            (1, {}, None),
            (None, None, -32600),
            ("b", None, -32601),
        ]


def test_two_frames_in_one_write_and_one_frame_in_many_are_both_read(tmp_path: Path) -> None:
    with Daemon(tmp_path) as daemon:
        frame = '{"jsonrpc":"2.0","id":"é€😀","method":"rpc.ping"}\r\n'.encode()
        daemon.send_raw(frame + frame)
        for position in range(len(frame)):
            daemon.send_raw(frame[position : position + 1])
        daemon.request("rpc.ping")
        assert [answer["id"] for answer in daemon.frames[:3]] == ["é€😀"] * 3


def test_output_is_ascii_whatever_was_said(tmp_path: Path) -> None:
    with Daemon(tmp_path) as daemon:
        daemon.send_raw('{"jsonrpc":"2.0","id":"\\ud83d\u2028","method":"nöpe"}\n'.encode())
        assert read_line(daemon)["id"] == "\ud83d\u2028"


def test_an_oversize_frame_is_one_error_and_the_next_frame_is_served(tmp_path: Path) -> None:
    with Daemon(tmp_path) as daemon:
        limit = daemon.initialize()["maxFrameBytes"]
        [answer] = exchange(daemon, b'{"x":"' + b"y" * limit + b'"}')
        assert answer["error"]["code"] == -32600
        assert answer["id"] is None
        assert str(limit) in answer["error"]["message"]


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"contentBlocks": [{"type": "text", "text": "x"}]}, "missing required field sessionId"),
        ({"sessionId": "s"}, "missing required field contentBlocks"),
        ({"sessionId": "", "contentBlocks": [{"type": "text"}]}, "sessionId"),
        ({"sessionId": 5, "contentBlocks": [{"type": "text"}]}, "sessionId"),
        ({"sessionId": "s", "contentBlocks": "str"}, "contentBlocks"),
        ({"sessionId": "s", "contentBlocks": []}, "contentBlocks"),
        ({"sessionId": "s", "contentBlocks": ["x"]}, "contentBlocks[0]"),
        ({"sessionId": "s", "contentBlocks": [{"text": "x"}]}, "contentBlocks[0].type"),
        (
            {"sessionId": "s", "contentBlocks": [{"type": "text"}], "contentBlock": 1},
            "unknown field contentBlock",
        ),
        ({"sessionId": "s" * 300, "contentBlocks": [{"type": "text", "text": "x"}]}, "255"),
    ],
)
def test_params_that_do_not_fit_are_named(params: object, named: str, served: Daemon) -> None:
    code, message = served.refused("session/prompt", params)
    assert code == -32602
    assert named in message
    assert served.request("session/list")["sessions"] == []


@pytest.mark.parametrize(
    "block",
    [
        {"type": "text"},
        {"type": "text", "text": 5},
        {"type": "tool-result", "toolCallId": "x", "content": []},
        {"type": "tool-call", "id": "x", "name": "bash", "arguments": "{}"},
        {"type": "x", "deep": json.loads("[" * 200 + "]" * 200)},
    ],
)
def test_a_block_that_no_user_can_say_is_refused(block: dict[str, object], served: Daemon) -> None:
    code, message = served.refused("session/prompt", {"sessionId": "s", "contentBlocks": [block]})
    assert code == -32602
    assert "contentBlocks" in message
    assert served.request("session/list")["sessions"] == []


def test_an_unknown_method_names_the_nearest(served: Daemon) -> None:
    code, message = served.refused("session/promt")
    assert (code, message) == (-32601, 'unknown method "session/promt" (did you mean "session/prompt"?)')


def test_the_announced_methods_are_the_served_ones(tmp_path: Path) -> None:
    from cordisd.rpc.methods import METHODS

    with Daemon(tmp_path) as daemon:
        announced = set(daemon.initialize()["capabilities"]["methods"])
    assert announced == {"initialize", "shutdown", *METHODS}

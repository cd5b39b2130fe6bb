"""JSON-RPC 2.0, as its specification has it, on the standard input and output of a real daemon.

Section 7 of the specification gives examples; the first tests are those, with methods of ours. What is only
ours: params are by name, and notifications (in `test_notifications.py`) are served too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon import Daemon
from exchanges import PING, codes, exchange, request


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One initialized daemon for all that leaves it as it was."""
    with Daemon(tmp_path_factory.mktemp("conformance")) as daemon:
        daemon.initialize()
        yield daemon


def test_a_call_with_named_params_is_answered_with_its_result(served: Daemon) -> None:
    [answer] = exchange(served, request(3, "session/list", params={}))
    assert answer == {"jsonrpc": "2.0", "id": 3, "result": {"sessions": []}}


def test_params_by_position_are_invalid_params(served: Daemon) -> None:
    for method in ("session/list", "session/get", "initialize", "shutdown"):
        for params in ([], [42, 23], ["s"]):
            assert codes(exchange(served, request(1, method, params=params))) == [(1, -32602)]


def test_params_that_are_no_structure_are_invalid_params(served: Daemon) -> None:
    for params in (None, True, 0, "bar"):
        assert codes(exchange(served, request(1, "session/list", params=params))) == [(1, -32602)]


def test_a_method_that_does_not_exist_is_not_found(served: Daemon) -> None:
    for method in ("foobar", "", "rpc.foobar", "Initialize", "session.list", "ping", "__class__"):
        assert codes(exchange(served, request("1", method))) == [("1", -32601)]


def test_invalid_json_is_a_parse_error_without_an_id(served: Daemon) -> None:
    line = '{"jsonrpc": "2.0", "id": 1, "method": "foobar, "params": "bar", "baz]'
    assert codes(exchange(served, line)) == [(None, -32700)]


def test_an_invalid_request_keeps_its_id_if_that_can_be_read(served: Daemon) -> None:
    assert codes(exchange(served, '{"jsonrpc":"2.0","method":1,"params":"bar"}')) == [(None, -32600)]
    assert codes(exchange(served, '{"jsonrpc":"2.0","id":9,"method":1,"params":"bar"}')) == [(9, -32600)]


def test_a_batch_of_invalid_json_is_one_parse_error(served: Daemon) -> None:
    batch = '[{"jsonrpc":"2.0","method":"rpc.ping","id":"1"},{"jsonrpc":"2.0","method"]'
    assert codes(exchange(served, batch)) == [(None, -32700)]


def test_an_empty_batch_is_one_invalid_request(served: Daemon) -> None:
    assert codes(exchange(served, "[]")) == [(None, -32600)]


@pytest.mark.parametrize("members", ["1", "1,2,3", "[]", "[[]],null", '"x",true,{}'])
def test_each_member_of_a_batch_that_is_no_request_has_its_error(members: str, served: Daemon) -> None:
    [answers] = exchange(served, f"[{members}]")
    assert codes(answers) == [(None, -32600)] * len(json.loads(f"[{members}]"))


def test_nested_batches_are_not_opened(served: Daemon) -> None:
    [answers] = exchange(served, f"[[{PING % 1}],{PING % 2}]")
    assert codes(answers) == [(None, -32600), (2, None)]


def test_a_mixed_batch_is_answered_member_by_member(served: Daemon) -> None:
    batch = [
        json.loads(request("1", "session/list", params={})),
        {"foo": "boo"},
        json.loads(request("5", "foo.get", params={"name": "myself"})),
        json.loads(request(0)),
        json.loads(request("9", "session/get", params={})),
    ]
    [answers] = exchange(served, json.dumps(batch))
    expected = [("1", None), (None, -32600), ("5", -32601), (0, None), ("9", -32602)]
    assert sorted(codes(answers), key=repr) == sorted(expected, key=repr)


def test_a_thousand_requests_in_a_batch_are_answered_in_one_line(served: Daemon) -> None:
    [answers] = exchange(served, f"[{','.join(PING % number for number in range(1000))}]")
    assert sorted(answer["id"] for answer in answers) == list(range(1000))
    assert all(answer["result"] == {} for answer in answers)


def test_a_batch_of_more_is_one_error_and_none_of_it_is_served(served: Daemon) -> None:
    batch = [request(n, "session/create", params={"sessionId": "of too many"}) for n in range(1001)]
    assert codes(exchange(served, f"[{','.join(batch)}]")) == [(None, -32600)]
    assert "of too many" not in json.dumps(served.request("session/list"))


def test_a_batch_may_initialize_and_use_what_it_has_initialized(tmp_path: Path) -> None:
    params = {"cwd": str(tmp_path), "provider": "deepseek-official", "model": "m"}
    batch = [request(1, "initialize", params=params), request(2, "session/create", params={"sessionId": "s"})]
    with Daemon(tmp_path) as daemon:
        [answers] = exchange(daemon, f"[{','.join(batch)}]")
        assert sorted(codes(answers)) == [(1, None), (2, None)]


@pytest.mark.parametrize(
    "id",
    [
        "0",
        '"0"',
        '""',
        "1.5",
        "-1",
        "1e2",
        "0.1",
        str(2**53 + 1),
        str(-(2**70)),
        "9" * 4000,
        '"\\u0000"',
        '"é"',
    ],
)
def test_an_id_comes_back_as_it_was_written(id: str, served: Daemon) -> None:
    [answer] = exchange(served, PING % id)
    assert (type(answer["id"]), answer["id"]) == (type(json.loads(id)), json.loads(id))
    assert answer["result"] == {}


@pytest.mark.parametrize("id", ["true", "false", "{}", "[]", "[1]", '{"id":1}'])
def test_a_request_with_an_id_of_another_type_is_invalid(id: str, served: Daemon) -> None:
    assert codes(exchange(served, PING % id)) == [(None, -32600)]
    [answers] = exchange(served, f"[{PING % id},{PING % 7}]")
    assert codes(answers) == [(None, -32600), (7, None)]


def test_requests_with_the_same_id_are_each_answered(served: Daemon) -> None:
    assert codes(exchange(served, PING % 7, PING % 7, request(7, "nope"))) == [
        (7, None),
        (7, None),
        (7, -32601),
    ]
    [answers] = exchange(served, f"[{PING % 7},{PING % 7}]")
    assert codes(answers) == [(7, None), (7, None)]


def test_the_version_must_be_there_and_be_ours(served: Daemon) -> None:
    for version in ('"1.0"', "2.0", "2", "null", '"2.0 "'):
        frame = f'{{"jsonrpc":{version},"id":1,"method":"rpc.ping"}}'
        assert codes(exchange(served, frame)) == [(1, -32600)]
    assert codes(exchange(served, '{"id":1,"method":"rpc.ping"}')) == [(1, -32600)]


def test_members_that_the_specification_does_not_have_are_ignored(served: Daemon) -> None:
    assert codes(exchange(served, request(1, auth="x", result=None))) == [(1, None)]


def test_unknown_params_are_refused_by_name_and_with_the_nearest(served: Daemon) -> None:
    [answer] = exchange(served, request(1, "session/get", params={"sessionID": "s"}))
    assert codes([answer]) == [(1, -32602)]
    assert "unknown field sessionID" in answer["error"]["message"]
    assert "sessionId" in answer["error"]["message"]


def test_answers_and_empty_lines_are_no_requests(served: Daemon) -> None:
    stray = [
        '{"jsonrpc":"2.0","id":1,"result":{}}',
        '{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"x"}}',
    ]
    assert exchange(served, *stray, f"[{','.join(stray)}]", "", " \t ", "\r", n=0) == []


def test_every_broken_line_of_many_has_its_own_error(served: Daemon) -> None:
    lines = ["{", PING % 1, "}", "[" * 50, PING % 2, '{"id":3}', "\x00", PING % 4]
    broken: tuple[object, object] = (None, -32700)
    expected = [broken, (1, None), broken, broken, (2, None), (3, -32600), broken, (4, None)]
    assert sorted(codes(exchange(served, *lines)), key=repr) == sorted(expected, key=repr)


@pytest.mark.parametrize(
    "line",
    [
        *(f" {PING % 1}", f"\t{PING % 1} \t", f"{PING % 1}\r", f"\r{PING % 1}\r\r"),
        *((PING % 1).replace(":", " :\r\t"), (PING % 1).replace("rpc", "\\u0072\\u0070\\u0063")),
    ],
)
def test_white_space_and_escapes_are_jsons(line: str, served: Daemon) -> None:
    assert codes(exchange(served, line)) == [(1, None)]


@pytest.mark.parametrize(
    "line",
    [
        b"\xef\xbb\xbf" + (PING % 1).encode(),
        (PING % 1).encode() + b"\x00",
        (PING % 1).encode("utf-16-le"),
        (PING % '"\n"').encode(),
        (PING % b"'1'".decode()).encode(),
        (PING % "01").encode(),
        (PING % "NaN").encode(),
        (PING % "-Infinity").encode(),
        (PING % "1e400").encode(),
        (PING % ("9" * 5000)).encode(),
        (PING % '"\\ud8"').encode(),
        (PING % '"\xff"').encode("latin-1"),
        b"//" + (PING % 1).encode(),
        (PING % 1).encode()[:-1] + b",}",
        (PING % 1).encode() * 2,
        (PING % 1).replace("{", '{"a":' + "[" * 200_000 + "]" * 200_000 + ",").encode(),
    ],
)
def test_what_is_no_json_is_a_parse_error(line: bytes, served: Daemon) -> None:
    n_lines = line.count(b"\n") + 1
    assert codes(exchange(served, line, n=n_lines)) == [(None, -32700)] * n_lines


def test_nesting_that_can_be_read_is_refused_where_it_does_not_fit(served: Daemon) -> None:
    deep = "[" * 500 + "]" * 500
    assert codes(
        exchange(served, f'{{"jsonrpc":"2.0","id":1,"method":"session/get","params":{{"x":{deep}}}}}')
    ) == [(1, -32602)]


def test_of_a_key_that_comes_twice_the_last_counts(served: Daemon) -> None:
    frame = '{"jsonrpc":"2.0","id":1,"id":2,"method":"shutdown","method":"rpc.ping"}'
    assert codes(exchange(served, frame)) == [(2, None)]


def test_a_frame_of_exactly_the_announced_limit_is_served_and_a_longer_one_is_one_error(
    tmp_path: Path,
) -> None:
    with Daemon(tmp_path) as daemon:
        limit = daemon.initialize()["maxFrameBytes"]
        fits = (PING % 1)[:-1].ljust(limit - 1) + "}"
        answers = exchange(daemon, PING % 0, fits, f" {fits}", PING % 2)
        assert codes(answers) == [(0, None), (1, None), (None, -32600), (2, None)]
        assert str(limit) in answers[2]["error"]["message"]


def test_many_faults_of_one_request_are_told_in_a_short_message(served: Daemon) -> None:
    fields = {f"field{number}": 1 for number in range(100_000)}
    answers = exchange(served, request(1, "session/get", params=fields))
    blocks = [{}] * 100_000
    answers += exchange(
        served, request(2, "session/prompt", params={"sessionId": "s", "contentBlocks": blocks})
    )
    assert codes(answers) == [(1, -32602), (2, -32602)]
    for answer in answers:
        assert len(answer["error"]["message"]) < 2000
        assert "more" in answer["error"]["message"]

"""What `initialize` takes, refuses and changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordisd.mock import MockModelThread, text
from daemon import Daemon, blocks


@pytest.mark.parametrize("limit", [None, True, "5", 0, -1, 1.5, 2**53])
def test_an_initialize_limit_that_is_no_positive_safe_integer_is_refused(
    limit: object, tmp_path: Path
) -> None:
    with Daemon(tmp_path) as daemon:
        params = {"cwd": ".", "provider": "deepseek-official", "model": "m", "maxTokens": limit}
        code, message = daemon.refused("initialize", params)
        assert (code, message) == (-32602, "initialize maxTokens must be a positive safe integer")
        assert daemon.refused("session/prompt", {"sessionId": "s", "contentBlocks": blocks("x")})[0] == -32004


def test_the_least_and_the_greatest_limit_pass_and_reach_the_request(tmp_path: Path) -> None:
    with MockModelThread([text("ok"), text("ok")]) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        for number, limit in enumerate((1, 2**53 - 1)):
            daemon.initialize(maxTokens=limit)
            daemon.run(f"s{number}", "x")
        assert [request.json["max_tokens"] for request in mock.requests] == [1, 2**53 - 1]


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"provider": "zzz"}, 'no adapter registered for provider "zzz"'),
        ({"cwd": 5}, "cwd must be a non-empty string"),
        ({"model": ""}, "model must be a non-empty string"),
        ({"reasoningEffort": ""}, "reasoningEffort must be a non-empty string"),
        ({"modle": "x"}, "unknown field modle"),
    ],
)
def test_a_failed_initialize_names_the_field_and_changes_nothing(
    params: dict[str, object], named: str, tmp_path: Path
) -> None:
    with Daemon(tmp_path) as daemon:
        good = {"cwd": ".", "provider": "deepseek-official", "model": "m"}
        assert named in daemon.refused("initialize", good | params)[1]
        assert "not initialized" in daemon.refused("session/create", {})[1]
        daemon.request("initialize", good)
        daemon.refused("initialize", good | params)
        assert daemon.request("session/create", {})["cwd"] == str(tmp_path)


def test_a_second_initialize_changes_only_later_sessions(tmp_path: Path) -> None:
    with (
        MockModelThread([text("a"), text("b"), text("c")]) as mock,
        Daemon(tmp_path, model_url=mock.url) as daemon,
    ):
        daemon.initialize(model="one")
        daemon.run("s1", "x")
        daemon.initialize(model="two")
        daemon.run("s2", "x")
        daemon.run("s1", "x")
        assert [request.json["model"] for request in mock.requests] == ["one", "two", "one"]


def test_a_relative_cwd_becomes_absolute_in_the_header(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    with MockModelThread([text("ok")]) as mock, Daemon(tmp_path, model_url=mock.url) as daemon:
        daemon.initialize(cwd="sub")
        daemon.run("s", "x")
        header, *_ = daemon.log("s")
        assert header["cwd"] == str(tmp_path / "sub")
        assert header["cordisd"]["version"]

"""What a client sends does not come back at length, and is not kept without bounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemon import Daemon


def test_an_error_repeats_little_of_a_long_request(tmp_path: Path) -> None:
    word = "x" * 1_000_000
    with Daemon(tmp_path) as daemon:
        daemon.initialize()
        for method, params in (
            (word, {}),
            ("session/get", {word: 1}),
            ("initialize", {"cwd": ".", "provider": word, "model": "m"}),
            ("session/working-directory/set", {"sessionId": "s", "path": f"/{word}"}),
        ):
            _, message = daemon.refused(method, params)
            assert len(message) < 11_000
            assert message.endswith(" characters more)")


@pytest.mark.parametrize("field", ["rolloutId", "groupId", "model", "provider"])
def test_a_name_of_a_session_is_not_kept_at_any_length(tmp_path: Path, field: str) -> None:
    with Daemon(tmp_path) as daemon:
        daemon.initialize()
        code, message = daemon.refused("session/create", {field: "x" * 1001})
        assert (code, message) == (
            -32602,
            f"session/create: {field}: string should have at most 1000 characters",
        )


def test_shutdown_with_a_field_is_refused_and_ends_nothing(tmp_path: Path) -> None:
    with Daemon(tmp_path) as daemon:
        assert daemon.refused("shutdown", {"force": True}) == (
            -32602,
            "shutdown: unknown field force; allowed: none",
        )
        assert daemon.request("rpc.ping") == {}

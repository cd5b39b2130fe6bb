"""Recordings served over HTTP by the mock model."""

from __future__ import annotations

import json
from pathlib import Path

from cordisd.mock import MockModelThread, error, text
from cordisd.replay.recording import read_recording
from cordisd.replay.served import replies_of
from cordisd_sdk import Client
from recorded_sessions import PROMPTS, record


def play(folder: Path, url: str, prompts: tuple[str, ...]) -> list[str | None]:
    """The final answers, or what the failure says, of a live daemon that works in `folder`."""
    folder.mkdir()
    answers: list[str | None] = []
    with Client(cwd=folder, base_url=url, session_root=folder.parent / f"{folder.name}-logs") as client:
        for prompt in prompts:
            result = client.session("s").run(prompt.replace("{{cwd}}", str(folder)))
            answers.append(result.error["message"] if result.error else result.final_response)
    return answers


def test_a_live_daemon_gets_what_was_recorded_and_nothing_for_another_request(tmp_path: Path) -> None:
    path = record(tmp_path, "one")
    with MockModelThread(replies_of([read_recording(path)], str(tmp_path / "again"))) as mock:
        assert play(tmp_path / "again", mock.url, PROMPTS) == ["done in X", "bye"]
        assert len(mock.requests) == 4
    with MockModelThread(replies_of([read_recording(path)], str(tmp_path / "other"))) as mock:
        (told,) = play(tmp_path / "other", mock.url, ("make g in {{cwd}}",))
    assert told is not None
    assert "the request was not recorded" in told and "messages[1] (user).content" in told
    assert "-make f in {{cwd}}" in told and "+make g in {{cwd}}" in told


def test_a_request_that_was_recorded_twice_gets_its_answers_in_turn(tmp_path: Path) -> None:
    script = [error(503, "busy", retry_after="0"), text("late")]
    path = record(tmp_path, "one", script=script, prompts=["hello"])
    recording = read_recording(path)
    assert [one.answer.status for one in recording.exchanges] == [503, 200]
    with MockModelThread(replies_of([recording], str(tmp_path / "again"))) as mock:
        assert play(tmp_path / "again", mock.url, ("hello",)) == ["late"]
        assert len(mock.requests) == 2


def test_what_is_no_request_is_refused(tmp_path: Path) -> None:
    reply = replies_of([], str(tmp_path))
    with MockModelThread([text("x")]) as mock:
        with Client(cwd=tmp_path, base_url=mock.url, session_root=tmp_path / "logs") as client:
            client.session().run("hi")
        (received,) = mock.requests
    (body,) = reply(received).parts
    assert isinstance(body, bytes)
    assert json.loads(body)["error"]["message"] == "no recording has a request"
